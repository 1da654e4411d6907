//! Which of a host's addresses the data of its processes take.
//!
//! The one by which the two have met, which has just been shown to work. Where nothing was reached, the
//! kernel says from which of its addresses it would send to those of the peer. The first of a list decides
//! nothing: an interface may lead nowhere (a container bridge, whose address is the same on all hosts), or
//! mean something on one link only.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Once;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt};
use vm::forks::Alone;

/// A host tells no more addresses than that.
pub(in crate::job) const TOLD_MAX: usize = 32;

/// Addresses that are nobody's (RFC 5737 and 3849): only a default route leads there.
const NOWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// The meaning of an answer that the system gives no port, in words.
pub(crate) const NO_PORT_LEFT: &str =
    "all local ports are taken: net.ipv4.ip_local_port_range says which there are";

/// Connections that wait to be accepted, as the standard library has it.
const BACKLOG: i32 = 128;

/// A port to ask the kernel for a way to. Nothing is sent there.
const ANY_PORT: u16 = 9;

/// The address that the kernel would send from to that one; `None` where no way leads there. Nothing is sent.
pub(crate) fn source_towards(there: IpAddr) -> Option<IpAddr> {
    let any = if there.is_ipv4() { unspecified_v4() } else { unspecified_v6() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((there, ANY_PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
}

/// Begins to connect by TCP, without waiting: the socket, which children that are forked meanwhile do not
/// share, and the system's first answer (`INPROGRESS` mostly). Any thread.
///
/// # Errors
/// The system gives no socket.
pub(crate) fn start_connecting(address: &SocketAddr) -> Result<(Alone<OwnedFd>, Result<(), Errno>), Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = Alone::new(socket_with(family, SocketType::STREAM, flags, None)?);
    let answer = connect(socket.as_fd(), address);
    Ok((socket, answer))
}

/// An address by which the processes of this host reach each other, of loopback if there is one; the error
/// names those that were tried.
pub(crate) fn within_host() -> Result<IpAddr, String> {
    let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let all = loopback.into_iter().chain(vm::host::addresses());
    let (mut tried, leads) = (Vec::new(), |ip: &IpAddr| source_towards(*ip) == Some(*ip));
    for ip in all {
        if leads(&ip) {
            return Ok(ip);
        }
        tried.push(ip);
    }
    let down = if vm::host::has_loopback() { "" } else { "; the interface lo is down: `ip link set lo up`" };
    Err(format!("no address of this host's leads to itself: {}{down}", listed(&tried)))
}

/// The address that stands for all addresses of this host: of both families, where the system lets one socket
/// have both.
pub(crate) fn everywhere() -> IpAddr {
    // Loopback counts where nothing else is there yet.
    let all = vm::host::addresses();
    let likeliest = all.first().map(IpAddr::is_loopback);
    let has_v4 = || all.iter().any(|ip| ip.is_ipv4() && Some(ip.is_loopback()) == likeliest);
    match takes_both() {
        Some(both) if both || !has_v4() => unspecified_v6(),
        _ => unspecified_v4(),
    }
}

/// Whether a socket of IPv6 takes what comes by IPv4, too, unless it is told otherwise; `None`: there is no
/// IPv6.
fn takes_both() -> Option<bool> {
    sockopt::ipv6_v6only(socket_of_v6().ok()?).ok().map(|only| !only)
}

fn socket_of_v6() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// A listener at this port of all addresses of the host, of both families whatever the system would have it
/// take; of IPv4 alone where that is all there is.
pub(in crate::job) fn listen_everywhere(port: u16) -> io::Result<TcpListener> {
    let listener = of_both_families(port).or_else(|_| TcpListener::bind((unspecified_v4(), port)));
    listener.map_err(|error| match error.kind() {
        kind @ ErrorKind::AddrInUse if port == 0 => no_port_left(kind),
        _ => error,
    })
}

/// The error of this kind that says what the system's own words hide.
pub(in crate::job) fn no_port_left(kind: ErrorKind) -> io::Error {
    io::Error::new(kind, NO_PORT_LEFT)
}

/// A listener for those who look for this host by that name or address, which leads here to these addresses.
/// It listens at the first of them that can be had, and at all of the host's where others may find the name
/// elsewhere.
pub(in crate::job) fn listen_for(name: &str, found: &[SocketAddr]) -> io::Result<TcpListener> {
    let elsewhere = found.first().filter(|_| may_lead_elsewhere(name, found));
    match elsewhere.map(|at| listen_everywhere(at.port())) {
        None => {}
        Some(Err(error)) => {
            tracing::warn!(name, %error, "cannot listen at all addresses: others may not find this host by its name");
        }
        Some(Ok(listener)) => {
            tracing::debug!(name, ?found, "others may find this name elsewhere: listening at all addresses");
            return Ok(listener);
        }
    }
    let mut bound = Err(io::Error::new(ErrorKind::NotFound, "the name has no address"));
    for address in found {
        bound = TcpListener::bind(address);
        if bound.is_ok() {
            break;
        }
    }
    bound
}

/// Whether others may find other addresses by this name. A host's own name leads to its loopback on many
/// hosts (Debian's installer writes 127.0.1.1), and of several addresses others may know another one. A
/// literal address means itself everywhere, and `localhost` each host's own loopback.
fn may_lead_elsewhere(name: &str, found: &[SocketAddr]) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    // Forms such as `127.1`, which the resolver takes, too.
    let is_literal = name.chars().all(|char| char.is_ascii_digit() || char == '.') || name.contains(':');
    let is_loopbacks = LOOPBACKS.contains(&name.as_str()) || name.ends_with(".localhost");
    let leads_home = found.iter().any(|at| at.ip().to_canonical().is_loopback());
    !is_literal && !is_loopbacks && (leads_home || found.len() > 1)
}

/// Names of loopback, as systems have them.
const LOOPBACKS: [&str; 5] =
    ["localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost"];

/// A remark to what is said of a name that was looked for in vain, where it leads to this host's own
/// loopback.
pub(in crate::job) fn remark_of_loopback(found: &[SocketAddr]) -> String {
    let first = found.first().map(|at| at.ip().to_canonical());
    match first.filter(|_| found.iter().all(|at| at.ip().to_canonical().is_loopback())) {
        Some(ip) => format!(" (which leads to this host's own loopback, {ip})"),
        None => String::new(),
    }
}

fn of_both_families(port: u16) -> io::Result<TcpListener> {
    let socket = socket_of_v6()?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    // As the standard library does: a port is free again as soon as nobody listens there.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::new(unspecified_v6(), port))?;
    listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

fn unspecified_v4() -> IpAddr {
    Ipv4Addr::UNSPECIFIED.into()
}

fn unspecified_v6() -> IpAddr {
    Ipv6Addr::UNSPECIFIED.into()
}

/// This host's addresses with their interfaces, the likeliest to be reached by others first: those that a
/// default route sends from, and then by [`vm::host::interfaces`].
fn in_order() -> Vec<(String, IpAddr)> {
    let usual = NOWHERE.map(source_towards);
    let mut all = vm::host::interfaces();
    all.sort_by_key(|(_, ip)| ip.is_loopback() || !usual.contains(&Some(*ip)));
    all
}

/// The ways to a listener at that address, the likeliest first; loopback comes last.
pub(in crate::job) fn ways_to(bound: SocketAddr) -> Vec<SocketAddr> {
    if !bound.ip().is_unspecified() {
        return vec![bound];
    }
    let leads = |ip: &IpAddr| ip.is_ipv4() || bound.is_ipv6();
    let all = in_order().into_iter().map(|(_, ip)| ip).filter(leads);
    all.map(|ip| SocketAddr::new(ip, bound.port())).collect()
}

/// Leaves out all addresses but the first that others may be told, and says so once.
pub(in crate::job) fn cut<T>(addresses: &mut Vec<T>) {
    static SAID: Once = Once::new();
    let left_out = addresses.len().saturating_sub(TOLD_MAX);
    if left_out > 0 {
        SAID.call_once(|| {
            tracing::warn!(
                told = TOLD_MAX,
                left_out,
                "this host has more addresses than others are told, who do not try those left out; \
                 STANDPIPE_INTERFACE (in a job) or STANDPIPE_LISTEN names the address to use"
            );
        });
    }
    addresses.truncate(TOLD_MAX);
}

/// This host's addresses, as it tells them to others: those of the interface, or the one, that the user
/// names.
///
/// # Errors
/// There is no such interface; which there are.
pub(crate) fn own(named: Option<&str>) -> Result<Vec<IpAddr>, String> {
    let all = in_order();
    let mut told: Vec<IpAddr> = match named {
        // An address may lead here and be no interface's.
        Some(name) if name.parse::<IpAddr>().is_ok() => name.parse().into_iter().collect(),
        Some(name) => all.iter().filter(|(of, _)| of == name).map(|(_, ip)| *ip).collect(),
        None => all.iter().map(|(_, ip)| *ip).filter(|ip| !ip.is_loopback()).collect(),
    };
    if let (Some(name), true) = (named, told.is_empty()) {
        let names: BTreeSet<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        return Err(format!(
            "no interface named {name} is up and has an address; these are: {}",
            names.join(", ")
        ));
    }
    cut(&mut told);
    Ok(told)
}

/// A process of another host, as rank 0 sees it: this host's address that it has reached, and its own.
pub(in crate::job) struct Other<'a> {
    pub(in crate::job) reached: Option<IpAddr>,
    pub(in crate::job) told: &'a [IpAddr],
}

/// The address of rank 0's host that its endpoint has. It is the one that most of the others have reached,
/// or, where nothing was reached, that the kernel sends from to most of them. `None`: there is none that
/// leads to any of them.
pub(in crate::job) fn of_rank_0(own: &[IpAddr], named: bool, others: &[Other<'_>]) -> Option<IpAddr> {
    let towards = |other: &Other<'_>| -> Vec<IpAddr> {
        match other.reached {
            Some(ip) => vec![ip],
            // One that this host has, too, is of some bridge.
            None => other
                .told
                .iter()
                .filter(|ip| !own.contains(ip))
                .filter_map(|ip| source_towards(*ip))
                .collect(),
        }
    };
    let votes: Vec<Vec<IpAddr>> = others.iter().map(towards).collect();
    let reached = others.iter().filter_map(|other| other.reached).filter(|_| !named);
    let mut best = (0, None);
    for ip in reached.chain(own.iter().copied()).filter(|ip| !ip.is_loopback()) {
        let count = votes.iter().filter(|vote| vote.contains(&ip)).count();
        if count > best.0 {
            best = (count, Some(ip));
        }
    }
    best.1.or_else(|| own.first().copied().filter(|_| named))
}

/// The remedy where no way is found.
pub(in crate::job) const REMEDY: &str =
    "STANDPIPE_INTERFACE names another interface or address of this host's";

/// The address of this host that leads to rank 0's; of those named by the user, if any were. The error says
/// what was tried.
pub(in crate::job) fn towards_rank_0(own: &[IpAddr], named: bool, zero: IpAddr) -> Result<IpAddr, String> {
    let source = source_towards(zero);
    let alike = |ip: &&IpAddr| ip.is_ipv4() == zero.is_ipv4();
    match source.filter(|ip| !named || own.contains(ip)) {
        Some(ip) => Ok(ip),
        None if named => own.iter().find(alike).copied().ok_or(format!(
            "STANDPIPE_INTERFACE names {}, which is of another family than rank 0's {zero}",
            listed(own)
        )),
        None => {
            Err(format!("no way leads from this host, of {}, to rank 0 at {zero}; {REMEDY}", listed(own)))
        }
    }
}

/// Addresses in words.
pub(in crate::job) fn listed(all: &[IpAddr]) -> String {
    let texts: Vec<String> = all.iter().map(IpAddr::to_string).collect();
    if texts.is_empty() { "no address".to_owned() } else { texts.join(", ") }
}

/// An address that was reached over a socket of both families, as one of its own.
pub(in crate::job) fn canonical(at: SocketAddr) -> SocketAddr {
    match at.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, at.port()),
        IpAddr::V6(_) => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips<const N: usize>(texts: [&str; N]) -> Vec<IpAddr> {
        texts.map(|text| text.parse().expect("an address")).to_vec()
    }

    #[test]
    fn what_was_reached_counts_before_what_is_listed_first() {
        let own = ips(["172.17.0.1", "10.0.0.1"]);
        let [reached, service] = ["10.0.0.1", "10.99.0.1"].map(|ip| ip.parse().expect("an address"));
        let other = |reached| Other { reached: Some(reached), told: &[] };
        assert_eq!(of_rank_0(&own, false, &[other(reached)]), Some(reached));
        let most = [other(service), other(reached), other(service)];
        assert_eq!(of_rank_0(&own, false, &most), Some(service));
        // The user's word counts most.
        assert_eq!(of_rank_0(&own[..1], true, &most), Some(own[0]));
        assert_eq!(of_rank_0(&own, false, &[]), None);
    }

    #[test]
    fn a_bridge_that_both_hosts_have_is_no_way() {
        let own = ips(["192.0.2.77"]);
        let other = Other { reached: None, told: &own };
        assert_eq!(of_rank_0(&own, false, &[other]), None);
    }

    #[test]
    fn a_host_reaches_itself_and_what_it_has_not_is_named() {
        let ip = within_host().expect("loopback is up");
        assert_eq!(source_towards(ip), Some(ip));
        let error = own(Some("no-such-0")).expect_err("no interface has that name");
        assert!(error.contains("no-such-0") && error.contains("lo"), "{error}");
        assert_eq!(own(Some("10.99.0.5")), Ok(ips(["10.99.0.5"])));
        let named = ips(["fd00::77"]);
        let zero = "127.0.0.1".parse().expect("an address");
        let error = towards_rank_0(&named, true, zero).expect_err("of another family");
        assert!(error.contains("fd00::77") && error.contains("127.0.0.1"), "{error}");
    }

    #[test]
    fn of_too_many_addresses_the_first_are_told() {
        let mut many: Vec<usize> = (0..TOLD_MAX + 8).collect();
        cut(&mut many);
        assert!(many.into_iter().eq(0..TOLD_MAX));
        let ways = ways_to("[::]:7".parse().expect("an address"));
        let firsts = ways.iter().take_while(|way| !way.ip().is_loopback()).count();
        assert!(ways[firsts..].iter().all(|way| way.ip().is_loopback() && way.port() == 7), "{ways:?}");
    }

    #[test]
    fn a_name_may_lead_elsewhere_and_a_literal_address_may_not() {
        let at = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().expect("an address")).collect()
        };
        let (debians, one, two) =
            (at(&["127.0.1.1:7"]), at(&["10.0.0.1:7"]), at(&["10.0.0.1:7", "10.0.0.2:7"]));
        assert!(may_lead_elsewhere("node0", &debians) && may_lead_elsewhere("node0.example", &two));
        assert!(!may_lead_elsewhere("node0", &one));
        for name in ["127.0.1.1", "127.1", "::1", "fe80::1%cable", "localhost", "LocalHost.", "ip6-localhost"]
        {
            assert!(!may_lead_elsewhere(name, &debians), "{name}");
        }
        // Whoever looks for it by another address finds it, too.
        let [everywhere, here] = ["node0", "localhost"].map(|name| listen_for(name, &at(&["127.0.0.1:0"])));
        assert!(everywhere.and_then(|it| it.local_addr()).expect("a free port").ip().is_unspecified());
        assert!(here.and_then(|it| it.local_addr()).expect("a free port").ip().is_loopback());
        assert!(remark_of_loopback(&debians).contains("127.0.1.1") && remark_of_loopback(&one).is_empty());
        assert!(remark_of_loopback(&[]).is_empty());
    }

    #[test]
    fn who_listens_everywhere_is_reached_by_each_family() {
        let port = listen_everywhere(0).and_then(|it| it.local_addr()).expect("a free port").port();
        let listener = listen_everywhere(port).expect("free again");
        let of_host = vm::host::addresses();
        for ip in
            [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()].iter().filter(|ip| of_host.contains(ip))
        {
            std::net::TcpStream::connect((*ip, port)).expect("it listens there");
            listener.accept().expect("it has come");
        }
    }

    #[test]
    fn addresses_of_sockets_of_both_families_are_told_as_their_own() {
        let of = |text: &str| canonical(text.parse().expect("an address")).to_string();
        assert_eq!(of("[::ffff:10.0.0.1]:7"), "10.0.0.1:7");
        assert_eq!(of("[fe80::1%3]:7"), "[fe80::1%3]:7");
    }
}
