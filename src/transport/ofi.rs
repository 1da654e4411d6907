//! libfabric: peers on other hosts, and on this one where nothing else reaches them.
//!
//! One [endpoint](port) serves all peers. Nothing is kept for a peer before it is talked to.
//!
//! | module | what it does |
//! |---|---|
//! | [`port`] | the endpoint; the buffers that are lent to it; what is registered |
//! | `envelope`, `token` | what messages look like; what strangers cannot put on them |
//! | `lane`, `link` | flow control and order; all that is kept for one peer |
//! | [`transport`] | the state, and making links |
//! | `verbs` | the engine's transport |
//! | `sending`, `arrival` | messages out and in |
//! | `copies`, `copying` | copies by key |
//! | `atomics` | atomics, by message |
//! | `losses` | peers that are gone |
//!
//! # Messages
//! All peers' messages come into one pool of posted buffers. Each is copied at once into the queue of its peer and lane,
//! and its buffer posted again: what the engine cannot take yet keeps nobody else's messages out. Credits bound the
//! queues. Messages carry a number in their lane, and a token of 128 bits that only the two processes know; what does
//! not match is dropped and counted, and what breaks the rules ends the peer ([`engine::Event::Garbled`]).
//!
//! # Copies
//! By key, to memory that its owner registered at the engine's word. A put is complete when its bytes lie in the peer's
//! memory: by the provider's word, or else by that of a read that follows the writes. All that a caller's buffer holds
//! goes through buffers of this transport: see [`port`] for why. Keys are random, so that an old one means nothing to
//! whoever has the address later. Heaps are not registered here, and go by message.
//!
//! # Atomics
//! Go by message, and are done by the owner's processor: so words that peers on the same host use, too, stay atomic.
//! An owner answers them when it makes progress, without its engine.
//!
//! # Peers that are gone
//! An operation that the provider gives up ends its peer, as does one that it does not take in time: two seconds for a
//! peer that was reached before, the patience given for one that was not. A dead peer gives no other sign, and none at
//! all while nothing is sent to it: so whoever is not heard from is pinged, twice a second. See
//! [`transport::OfiTransport::take_lost`]. The provider may also give up operations with a peer that lives, when a key
//! was bad: that ends the connection, and here the peer. A peer that merely hangs is not lost, nor is one whose host is
//! gone without a word, before its system's connections time out; deadlines are the caller's. What a peer that was given
//! up had begun to write may still arrive: the connections are the provider's.

mod arrival;
mod atomics;
mod copies;
mod copying;
mod envelope;
mod lane;
mod link;
mod losses;
pub(crate) mod port;
mod sending;
#[cfg(test)]
mod tests;
mod token;
pub(crate) mod transport;
mod verbs;
