//! Nodes that nobody launched: one listens, another calls its address, and a rendezvous keeps addresses.

mod address;
mod p2p;
pub(in crate::job) mod registry;

pub(crate) use address::ways_to;
pub use address::{Address, AddressError, check_address};
pub(crate) use p2p::{
    Arrival, CallError, Introduce, Introduction, ListenError, ListenerConfig, PeerListener, PeerRoute,
};
pub use p2p::{Listen, check_handshake_words};
pub use registry::{Registry, Rendezvous, RendezvousError, Visit};
