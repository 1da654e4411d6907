//! libfabric: peers on other hosts, and on this one where nothing else reaches them.
//!
//! One [endpoint] serves all peers. Nothing is kept for a peer before it is talked to.
//!
//! | module | what it does |
//! |---|---|
//! | [`endpoint`] | the endpoint and its auxiliary endpoints; what is registered |
//! | `buffers` | memory of this transport's own, for what does not go from or to callers' |
//! | `frame`, `token` | what goes over the network looks like; what strangers cannot put on them |
//! | `lane`, `link` | flow control and order; all that is kept for one peer |
//! | [`transport`] | the state, and making links |
//! | `verbs`, `node_verbs` | what the engine asks of it, and what the node does |
//! | `chores` | what a poll sees to besides the provider |
//! | `keys` | what registrations are known by |
//! | `sending`, `arrival` | messages out and in |
//! | `rma_small`, `rma_slots` | copies by key of few bytes, and what each goes in |
//! | `rma_state`, `rma_driver` | all others |
//! | [`endpoint_pool`] | which auxiliary endpoint carries whose copies |
//! | [`landings`] | endpoints by which peers' long puts come in |
//! | `heaps` | copies to and from heaps by key |
//! | `atomics`, `pending_requests` | atomics, by message |
//! | `peer_loss`, `heartbeat`, `liveness_probe` | peers that are gone, and how that is found out |
//! | `wait_set` | one descriptor to sleep on |
//! | `deferred_close` | registrations that the provider would not close |
//!
//! # Messages
//! They travel in frames, and [gather](sending) in them. That is done here, not in the engine, so that this
//! transport's own messages gather with the engine's: atomics, their answers, and credits. Within a host,
//! where gathering gains nothing, nobody asks for it.
//!
//! All peers' frames come into one pool of posted buffers. Each message is copied at once into the queue of
//! its peer and lane, and the buffer posted again: what the engine cannot take yet keeps nobody else's
//! messages out. Credits bound the queues. Messages carry a number in their lane, and frames a token of 128
//! bits that only the two processes know. A frame whose token does not match is dropped and counted, and one
//! that breaks the rules ends the peer ([`engine::Event::Garbled`]).
//!
//! # Copies
//! By key, to memory that its owner registered at the engine's word. A put is complete when its bytes lie in
//! the peer's memory: by the provider's word, or else by that of a read that follows the writes. Keys are
//! random, so that an old one means nothing to whoever has the address later. Heaps need no word of the
//! engine's where a registration pins nothing: see [`heaps`].
//!
//! Copies of up to 4 KiB go through buffers of this transport, from the endpoint that messages have. A copy
//! to or from one place keeps [hardly any state](rma_small) while it is under way. Longer ones go straight
//! from and to the caller's memory, from [auxiliary endpoints](endpoint): endpoints that can be closed, each
//! of which carries copies with [one peer at a time](endpoint_pool). There are as many auxiliary endpoints as
//! there are peers with long copies under way, but no more than eight. Beyond these, where none can be
//! opened, and to peers that do not say when a write has arrived, long copies go through buffers, too. Long
//! puts come in by a [landing](landings) at the peer, or go through buffers where it has no room for one.
//!
//! *A copy that is given up* has its caller's memory touched no more when [`engine::Transport::abandon`]
//! returns. If it goes through buffers, that is so anyway. If not, what has ended is asked for once more, and
//! then its auxiliary endpoint is closed: a deadline costs a connection to that peer. The peer's other copies
//! begin anew through buffers, and until it has done something since, it is *suspect*: all of its copies go
//! that way, so that many deadlines cost one connection. Bytes that the closed connection had taken may still
//! arrive at the peer, even behind those sent by the other one. So the end of a put that was broken off is
//! reported only when the peer has said that the landing by which it came in is closed. Until then its
//! registrations stay in use, and nobody is told that it is complete. A provider that is told to have the
//! kernel send from callers' memory (`FI_TCP_ZEROCOPY_SIZE`) is not provided for: what that has begun to send
//! goes on being read.
//!
//! *An auxiliary endpoint that does not reach its peer* (it has found no room for two seconds, and carried
//! nothing) is closed. The peer may be talked to by the endpoint's connection all the while. Long copies with
//! that peer go through buffers for some time then. Copies of an auxiliary endpoint that loses its connection
//! go through buffers, too, and find out whether the peer is there.
//!
//! *An auxiliary endpoint that ends nothing* of what it took is closed, if the peer was heard from for long
//! enough since the last part has ended. That is half as long as it may be silent, and two seconds at least
//! ([`heartbeat`]). A network may forget a connection that was idle, or drop long packets. So the copies
//! begin anew by another auxiliary endpoint, in parts of 64 KiB, which end over a slow network, too. They do
//! not go by the endpoint's connection, which such a network would end. If the other auxiliary endpoint ends
//! nothing either, they end with a `Timeout`. The peer is not lost.
//!
//! *Callers' memory that is not there* ends the connection of the auxiliary endpoint that is to read or write
//! it, and all that this carries. So after a part has failed the memory is looked at. Copies of what is not
//! there end with its address; the others begin anew, as after a deadline, and no peer is lost.
//!
//! # Atomics
//! Go by message, and are done by the owner's processor: so words that peers on the same host use, too, stay
//! atomic. An owner answers them when it makes progress, without its engine.
//!
//! # Peers that are gone
//! An operation that the provider gives up ends its peer, as does one that it does not take in time. That is
//! as long as the peer may be silent. It is two seconds, if nobody listens [where it did](liveness_probe) or
//! it is said to be gone, and four seconds if it is said to be gone and was never reached. A dead peer gives
//! no other sign, and none at all while nothing is sent to it: so there is something to hear twice a second
//! ([`heartbeat`]). A peer that is silent for longer than [`transport::OfiTransport::silence`] allows is
//! lost, and told so in case that it hears it. The provider may also give up operations with a peer that
//! lives, when a key was bad: that ends the connection, and here the peer. A peer that merely hangs is not
//! lost before that time, deadlines are the caller's. Writes that a peer had begun before it was given up may
//! still arrive: the connections are the provider's.

mod arrival;
mod atomics;
mod buffers;
mod chores;
mod deferred_close;
pub(crate) mod endpoint;
mod endpoint_pool;
mod frame;
mod gone;
mod heaps;
mod heartbeat;
mod keys;
mod landings;
mod lane;
mod link;
mod liveness_probe;
mod node_verbs;
mod peer_loss;
mod pending_requests;
pub mod provider;
pub(crate) mod provider_env;
mod rma_driver;
mod rma_faults;
mod rma_slots;
mod rma_small;
mod rma_state;
#[cfg(test)]
mod script;
mod sending;
#[cfg(test)]
mod tests;
pub(crate) mod token;
pub(crate) mod transport;
mod verbs;
mod wait_set;
