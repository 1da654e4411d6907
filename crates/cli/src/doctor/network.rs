//! Why no network can be used, and what would mend that.

use standpipe::{Transport, host, network};

/// How to get a libfabric. One that is compiled in is there unless the environment names another.
pub(super) const GET_LIBFABRIC: &str = if cfg!(feature = "bundled") {
    "unset STANDPIPE_LIBFABRIC"
} else {
    "install libfabric (Debian: `apt install libfabric1`) or build with `--features bundled`"
};

const BRING_LO_UP: &str =
    "bring the loopback interface up, which a new network namespace has down: `ip link set lo up`";

/// A network that nodes cannot use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoNetwork {
    /// Why not.
    pub(super) why: String,
    /// The remedy, apart from doing without a network.
    pub(super) mend: &'static str,
}

impl NoNetwork {
    /// Why there is no libfabric, or in it no such provider, where the transport of this name needs it.
    pub(super) fn of_transport(name: &str) -> Option<NoNetwork> {
        match Transport::parse(name)? {
            Transport::Ofi { provider } => NoNetwork::of_provider(provider.as_deref()),
            _ => None,
        }
    }

    /// Why nodes cannot use the provider of this name, or any that they take by themselves.
    pub(super) fn of_provider(name: Option<&str>) -> Option<NoNetwork> {
        network::look_for(name).err().map(|error| NoNetwork::of(&error, host::has_loopback()))
    }

    fn of(error: &network::NetworkError, has_loopback: bool) -> NoNetwork {
        let why = error.to_string();
        let mend = match error {
            network::NetworkError::Library(_) => GET_LIBFABRIC,
            network::NetworkError::NoAddress { .. } if !has_loopback => BRING_LO_UP,
            network::NetworkError::NoAddress { .. } => {
                "let an address of this host lead to itself: see `ip address` and `ip route`"
            }
            _ if why.contains("may hide it") => "unset the variable that hides the provider",
            network::NetworkError::SmallBuffers { .. } => "unset the variable that makes buffers so small",
            network::NetworkError::BuffersForTcp { .. } => "set the variable that makes buffers large",
            _ => "name a provider that is there: `standpipe info` lists them",
        };
        NoNetwork { why, mend }
    }
}

#[cfg(test)]
mod tests {
    use standpipe::network::NetworkError;

    use super::*;

    #[test]
    fn what_would_mend_it_depends_on_what_is_missing() {
        let mend = |error: NetworkError, has_loopback| NoNetwork::of(&error, has_loopback).mend;
        let no_address = || NetworkError::NoAddress { why: "no way".to_owned() };
        assert!(mend(no_address(), false).contains("`ip link set lo up`"));
        assert!(!mend(no_address(), true).contains("lo up"));
        let pigeon = || NetworkError::NoProvider { name: "pigeon".to_owned() };
        assert!(mend(pigeon(), false).contains("provider"), "{}", mend(pigeon(), false));
        let variable = "FI_OFI_RXM_BUFFER_SIZE";
        let small = NetworkError::SmallBuffers {
            provider: "tcp;ofi_rxm".to_owned(),
            variable,
            value: "1".to_owned(),
        };
        assert!(mend(small, true).contains("unset the variable"));
        let for_tcp = NetworkError::BuffersForTcp { provider: "net;ofi_rxm".to_owned() };
        assert!(
            for_tcp.to_string().contains(variable) && mend(for_tcp, true).starts_with("set the variable")
        );
    }
}
