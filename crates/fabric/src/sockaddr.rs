//! Addresses of IP, as endpoints over them have them: the bytes of a `sockaddr_in` or `sockaddr_in6`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

const V4_BYTES: usize = size_of::<libc::sockaddr_in>();
const V6_BYTES: usize = size_of::<libc::sockaddr_in6>();

/// The address that these bytes are, if they are one of IP.
pub(crate) fn read(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match (family, bytes.len()) {
        (libc::AF_INET, V4_BYTES) => {
            let ip: [u8; 4] = *bytes[4..].first_chunk()?;
            Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port))
        }
        (libc::AF_INET6, V6_BYTES) => {
            let ip: [u8; 16] = *bytes[8..].first_chunk()?;
            let scope = u32::from_ne_bytes(*bytes[24..].first_chunk()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
        }
        _ => None,
    }
}

/// The bytes of an address for an endpoint whose own address is of that kind. One of IPv6 takes all, and who
/// has one of IPv4 reaches no other.
fn write(at: SocketAddr, as_v6: bool) -> Option<Vec<u8>> {
    let port = at.port().to_be_bytes();
    match (as_v6, at.ip().to_canonical()) {
        (false, IpAddr::V4(ip)) => {
            let head = [(libc::AF_INET as u16).to_ne_bytes(), port].concat();
            Some([&head[..], &ip.octets(), &[0; 8]].concat())
        }
        (false, IpAddr::V6(_)) => None,
        (true, ip) => {
            let (ip, scope) = match (ip, at) {
                (IpAddr::V4(ip), _) => (ip.to_ipv6_mapped(), 0),
                (IpAddr::V6(ip), SocketAddr::V6(at)) => (ip, at.scope_id()),
                (IpAddr::V6(ip), SocketAddr::V4(_)) => (ip, 0),
            };
            let head = [(libc::AF_INET6 as u16).to_ne_bytes(), port, [0; 2], [0; 2]].concat();
            Some([&head[..], &ip.octets(), &scope.to_ne_bytes()].concat())
        }
    }
}

/// The address of a peer as the endpoint whose own address is `own` is to be told it. A peer that listens at
/// all its host's addresses is reached by that at which it was `met`. An address that means something on one
/// link only is of the link that it was met on, or that this endpoint is on. Other bytes than addresses of IP
/// stay as they are.
pub(crate) fn for_endpoint(own: &[u8], told: &[u8], met: Option<SocketAddr>) -> Option<Vec<u8>> {
    let (Some(own), Some(mut at)) = (read(own), read(told)) else { return Some(told.to_vec()) };
    let mut scope = scope(own);
    if at.ip().is_unspecified() {
        let met = met?;
        at.set_ip(met.ip());
        scope = self::scope(met);
    }
    if let SocketAddr::V6(v6) = &mut at {
        v6.set_scope_id(if v6.ip().is_unicast_link_local() { scope } else { 0 });
    }
    write(at, own.is_ipv6())
}

fn scope(at: SocketAddr) -> u32 {
    match at {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn addresses_go_there_and_back() {
        for text in ["10.0.0.1:7", "[fd00::1]:8", "[fe80::1%3]:9", "0.0.0.0:1"] {
            let bytes = write(at(text), at(text).is_ipv6()).expect("of its own family");
            assert_eq!(read(&bytes), Some(at(text)));
            assert_eq!(read(&bytes[1..]), None);
        }
        assert_eq!((read(&[]), read(&[0xff; 32]), write(at("[fd00::1]:8"), false)), (None, None, None));
    }

    #[test]
    fn a_peer_is_named_as_the_endpoint_knows_addresses() {
        let named = |own: &str, told: &str, met: Option<&str>| {
            let [own, told] = [own, told].map(|text| write(at(text), at(text).is_ipv6()).expect("its own"));
            for_endpoint(&own, &told, met.map(at)).and_then(|bytes| read(&bytes)).map(|at| at.to_string())
        };
        let of = |text: &str| Some(text.to_owned());
        assert_eq!(named("0.0.0.0:1", "0.0.0.0:7", Some("10.0.0.2:99")), of("10.0.0.2:7"));
        assert_eq!(named("[::]:1", "0.0.0.0:7", Some("10.0.0.2:99")), of("[::ffff:10.0.0.2]:7"));
        assert_eq!(named("0.0.0.0:1", "[::]:7", Some("10.0.0.2:99")), of("10.0.0.2:7"));
        assert_eq!(named("[::]:1", "[::]:7", Some("[fe80::2%4]:99")), of("[fe80::2%4]:7"));
        // One of its own stays, with this end's link.
        assert_eq!(named("[fe80::1%3]:1", "[fe80::2%9]:7", None), of("[fe80::2%3]:7"));
        assert_eq!(named("10.0.0.1:1", "10.0.0.2:7", Some("10.9.0.2:99")), of("10.0.0.2:7"));
        assert_eq!(
            (named("10.0.0.1:1", "[::]:7", None), named("10.0.0.1:1", "[fd00::2]:7", None)),
            (None, None)
        );
        assert_eq!(for_endpoint(&[7; 32], &[9; 32], None), Some(vec![9; 32]));
    }
}
