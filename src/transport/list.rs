//! The transports that there are. A new one is a folder beside `shm` and `ofi`, an entry in each of the lists
//! here, and a word in the settings' table.
//!
//! [`Transport`] is what a program asks for, [`open`] opens the network that this means, and [`Network`] is
//! the one that there is. A second would make an enum of it, as tests have one.

use std::fmt;
use std::time::Duration;

use engine::registration::{Settings, Strategy};

use super::contract::{Endpoint, Reach, Setup};
use super::ofi::endpoint::NetEndpoint;
use super::ofi::provider::{self, NetworkError};
use super::protocol::NetProtocol;
use crate::job::unlaunched::Listen;

/// How a node reaches other ranks. Itself it reaches within this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// By shared memory and cross-memory attach: all ranks are on one host.
    #[default]
    Shm,
    /// By libfabric, and nothing else.
    Ofi {
        /// libfabric's name of the provider, such as `tcp` or `verbs;ofi_rxm`; `None`: the best that can be
        /// opened.
        provider: Option<String>,
    },
    /// By channels between the threads of one process.
    #[cfg(all(test, debug_assertions))]
    #[doc(hidden)]
    Channels,
}

impl Transport {
    /// The transport of this name, as the setting `STANDPIPE_TRANSPORT` takes it.
    pub fn parse(name: &str) -> Option<Transport> {
        match name.split_once(':') {
            None if name == "shm" => Some(Transport::Shm),
            None if name == "ofi" => Some(Transport::Ofi { provider: None }),
            Some(("ofi", provider)) if !provider.is_empty() => {
                Some(Transport::Ofi { provider: Some(provider.to_owned()) })
            }
            #[cfg(all(test, debug_assertions))]
            None if name == "channels" => Some(Transport::Channels),
            _ => None,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Shm => f.write_str("shm"),
            Transport::Ofi { provider: None } => f.write_str("ofi"),
            Transport::Ofi { provider: Some(provider) } => write!(f, "ofi:{provider}"),
            #[cfg(all(test, debug_assertions))]
            Transport::Channels => f.write_str("channels"),
        }
    }
}

/// Opens an endpoint of the network that a node of this transport has: peers of other hosts are reached by
/// libfabric where shared memory is asked for.
pub(crate) fn open(transport: &Transport, reach: Reach) -> Result<OpenEndpoint, NetworkError> {
    match transport {
        Transport::Shm => Ok(OpenEndpoint::Ofi(provider::open(None, reach)?)),
        Transport::Ofi { provider } => Ok(OpenEndpoint::Ofi(provider::open(provider.as_deref(), reach)?)),
        #[cfg(all(test, debug_assertions))]
        Transport::Channels => Ok(OpenEndpoint::Channels(super::channels::open())),
    }
}

/// The same for a node that nobody launched, whose peers may be anywhere.
pub(crate) fn open_to_all(transport: &Transport, listen: Listen) -> Result<OpenEndpoint, NetworkError> {
    match transport {
        Transport::Shm => Ok(OpenEndpoint::Ofi(provider::open_to_all(None, listen)?)),
        Transport::Ofi { provider } => {
            Ok(OpenEndpoint::Ofi(provider::open_to_all(provider.as_deref(), listen)?))
        }
        #[cfg(all(test, debug_assertions))]
        Transport::Channels => Ok(OpenEndpoint::Channels(super::channels::open())),
    }
}

/// How a node uses the network, when it comes to that.
#[derive(Clone, Debug)]
pub(crate) struct NetworkPlan {
    pub(crate) transport: Transport,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) pin_bytes: Option<u64>,
    /// How long peers of other hosts may be silent.
    pub(crate) silence: Option<Duration>,
    /// Whether the node may have a progress thread.
    pub(crate) attends: bool,
    /// Where the node listens, if it is of no job.
    pub(crate) listen: Listen,
}

/// An endpoint in any network.
#[cfg_attr(
    all(test, debug_assertions),
    expect(clippy::large_enum_variant, reason = "it is there while a node opens")
)]
pub(crate) enum OpenEndpoint {
    Ofi(NetEndpoint),
    #[cfg(all(test, debug_assertions))]
    Channels(super::channels::OpenEndpoint),
}

impl OpenEndpoint {
    /// As [`Endpoint::address`].
    pub(crate) fn address(&self) -> &[u8] {
        match self {
            OpenEndpoint::Ofi(endpoint) => Endpoint::address(endpoint),
            #[cfg(all(test, debug_assertions))]
            OpenEndpoint::Channels(endpoint) => endpoint.address(),
        }
    }

    /// As [`Endpoint::protocol`].
    pub(crate) fn protocol(&self) -> NetProtocol {
        match self {
            OpenEndpoint::Ofi(endpoint) => endpoint.protocol(),
            #[cfg(all(test, debug_assertions))]
            OpenEndpoint::Channels(endpoint) => endpoint.protocol(),
        }
    }

    /// As [`Endpoint::into_network`].
    pub(crate) fn into_network(self, setup: Setup) -> (Network, Option<Settings>) {
        match self {
            OpenEndpoint::Ofi(endpoint) => {
                let (network, settings) = endpoint.into_network(setup);
                (of_ofi(network), settings)
            }
            #[cfg(all(test, debug_assertions))]
            OpenEndpoint::Channels(endpoint) => {
                let (network, settings) = endpoint.into_network(setup);
                (Network::Channels(network), settings)
            }
        }
    }
}

/// The network of a node.
#[cfg(not(all(test, debug_assertions)))]
pub(crate) type Network = super::ofi::transport::OfiTransport;

/// This one as the network of a node.
#[cfg(not(all(test, debug_assertions)))]
pub(crate) fn of_ofi(network: Network) -> Network {
    network
}

/// In tests a node may have another, so that what one makes of a network is not what libfabric makes of it.
#[cfg(all(test, debug_assertions))]
pub(crate) use super::channels::any::{Network, of_ofi};
