//! A safe, small face over libfabric: reliable datagram endpoints, found at run time.
//!
//! This crate is the second of the project's two fences. Neither headers nor a library are needed to build
//! it: [`Fabric::load`] finds the system's `libfabric.so.1` (1.17 to 2.x), or says politely that it cannot be
//! used. The feature `bundled` compiles version 1.22 in (core, tcp, rxm), for machines that have none, and
//! asks for a C compiler.
//!
//! | module | what it does |
//! |---|---|
//! | `library` | finds the library |
//! | `provider` | what providers there are, what each can do and needs |
//! | `endpoint` | an endpoint with its fabric, domain, address vector; peers |
//! | `aux_endpoint` | more endpoints of its domain, to write and read from |
//! | `queued_endpoint` | any of them with its completion queue |
//! | `region` | registered memory, in every mode that a provider may ask for |
//! | [`post`] | writes, reads, messages |
//! | `repeat`, `persistent_table` | writes and reads that are prepared once and started often |
//! | `poll` | how operations ended; sleeping until some do |
//! | `slots` | the operations in flight |
//! | `ffi`, `symbols`, `info`, `object`, `bundled` | the binary interface, and owning what the library makes |
//! | `signals` | keeping the process's signal handlers |
//! | `environment` | what the library is told by variables, so that it asks for no memory that nobody fills |
//!
//! # Who owns what
//! An [`Endpoint`] owns everything that the library made for it, and closes it in the order that providers
//! want. It may be sent between threads; every call that reaches the library takes `&mut self`, so one thread
//! at a time uses it, which is what the library was promised (`FI_THREAD_DOMAIN`). [Peers](Peer) and
//! [regions](RegionId) are numbers that are checked. Memory cannot be checked: posts and registrations are
//! `unsafe`, and say [what they ask](post). Nothing is allocated by a post or a poll, unless an operation has
//! failed.
//!
//! Nothing here waits or spins: a post is [taken or busy](Post), a [poll](Endpoint::poll) returns at once.
//! Sleeping is the caller's, on a [descriptor](Endpoint::wait_fd) and after [asking](Endpoint::try_wait).
//!
//! # What was found out about providers
//! By the tests of this crate, which fail when one of these changes, with libfabric 1.17 (where `tcp` is
//! `tcp;ofi_rxm`, and `net` is what became `tcp`) and 2.5:
//!
//! - **One key for the whole address space does not do over TCP**, although TCP needs no registration. The
//!   provider believes what was registered. It copies what arrives from a buffer of its own to the target's
//!   address, so a *write* to memory that is not there kills the target by SIGSEGV, whatever its size. Of a
//!   *read* of such memory the target drops the answer, and nothing ever comes back: neither an error nor an
//!   end of the connection. So bad addresses must be kept from the provider by what is registered.
//! - **What no registration allows ends in an error, where it is a read or a
//!   [delivered](post::Until::Delivered) write**: a bad key, or bytes beyond its end, gives `FI_ECANCELED`.
//!   Another write is complete when its bytes have left: over `tcp` of 2.5 one with a closed key completes
//!   well at the sender. And the good messages that were sent behind it are lost with the connection, though
//!   they have completed, too. The target answers what it does not allow by closing the connection.
//!   Everything else in flight to that peer fails with it, and the errno is the one that a peer's death
//!   gives. The provider then connects again by itself, within 60 ms here; until it has, `rxm` fails
//!   operations with `FI_ENOTCONN`. So a write with an old key may well reach a new process at an old
//!   address: keys should be drawn at random.
//! - **A peer that dies** gives `FI_ECANCELED` for all that is in flight, within 0.1 ms of its death on one
//!   host. Operations that are posted to it afterwards, or to a peer that was never reached, are
//!   [busy](Post::Busy) for ever or fail with `FI_ENOTCONN`; a peer that hangs gives nothing at all.
//!   Deadlines are the caller's.
//! - **Closing a registration does not stop a write that has begun to arrive**: the rest of it is still
//!   written, as the target polls. The memory is safe only when the sender says that it is done, or the
//!   endpoint is closed.
//! - **Closing an endpoint of 1.17's `tcp;ofi_rxm` while the answer to a read has arrived in part kills the
//!   process** (by SIGSEGV: the layer above reads the context of an operation that is freed). Its bytes move
//!   only while it is polled, so an endpoint or auxiliary endpoint there that has reads under way is left
//!   open and not polled, until the process ends. That the peer's end closes in the middle, and to forget the
//!   peer, does no harm; `net` and `sockets` may be closed. (Reads that the layer does by itself, of messages
//!   longer than 16 KiB, are not known here.) 1.22 closes all of them.
//! - *Sleeping*: the descriptor of 1.17's `net` is always readable once it is connected, that of `rxm` until
//!   it is; `sockets` has none with manual progress.
//! - *Signals*: loading Debian 12's library installs PSM's handlers for six signals; see `signals`.
//! - `sockets` of 2.x cannot remove a peer, and `shm`'s failures do not say of which operation they are.

#[cfg(not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")))]
compile_error!("symbols by version, and the layouts written down here, are those of 64-bit Linux with glibc");

mod aux_endpoint;
#[cfg(feature = "bundled")]
mod bundled;
mod endpoint;
mod environment;
mod errno;
mod error;
mod ffi;
mod info;
mod library;
mod object;
mod persistent;
mod persistent_table;
mod poll;
pub mod post;
mod provider;
mod queued_endpoint;
mod region;
mod signals;
mod slots;
mod sockaddr;
mod symbols;

pub use aux_endpoint::{AuxEndpoint, AuxEndpointId};
pub use endpoint::{Endpoint, Peer};
pub use errno::Errno;
pub use error::Error;
pub use library::{Fabric, LoadError, Origin, Version};
pub use persistent_table::{PREPARED_MAX, Prepared};
pub use poll::{Completion, Failure, Look, Sleep};
pub use post::{Local, PIECES_MAX, Post, Remote, RemotePiece, Until};
pub use provider::{Description, Hints, MrMode, Progress, Provider};
pub use queued_endpoint::Options;
pub use region::{Access, Desc, Region, RegionId};
pub use slots::Op;
