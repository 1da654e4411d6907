//! Standpipe's operating-system layer: shared segments, rings, sleeping, cross-memory attach.
//!
//! This crate is the first of the project's two fences: the places where `unsafe` may stand. Its values are
//! safe to use however a peer behaves, except for the few functions that take raw addresses from the caller
//! and say so by being `unsafe`.
//!
//! **Peers are hostile input.** Every process that maps a segment may write any bytes anywhere in it at any
//! time. So no `&` or `&mut` to plain data ever points into shared memory. It is reached through
//! bounds-checked copies ([`SharedMemory`]) or through atomics ([`Words`]), and every value that comes out of
//! it is checked before it is believed.
//!
//! | module | what it does | unsafe |
//! |---|---|---|
//! | [`shared`] | a mapping, reached by copies and atomics | yes |
//! | [`segment`] | a sealed memfd and its mapping; opening a peer's | no |
//! | `global_heap` | a segment that the program's allocator divides (feature `allocator`) | yes |
//! | [`program_heap`] | how a node finds that segment, also a preloaded library's | yes |
//! | `heap_face` | what the one shows of it to the other | yes |
//! | `heap_file` | the memory file behind it, and a child's copy of it | yes |
//! | `fork_copy` | a copy of it for each child of a program that knows nothing of it | yes |
//! | `halted_threads` | halting all other threads of this process for a while | yes |
//! | [`heap`] | which bytes of a segment are in use, and which pages are not | no |
//! | `payload` | bytes in words that a peer may write: in and out | yes |
//! | [`ring`] | a single-producer single-consumer message ring | no |
//! | [`announcements`] | how an owner takes memory back that others reach without asking it | no |
//! | [`duplex`] | two rings, and a line that changes hands: the quick way to ask and answer | no |
//! | [`bell`] | waking a process that sleeps | no |
//! | [`biased`] | a lock that is nearly free to the thread that uses it most | yes |
//! | [`completion_queue`] | what has ended of what is under way, with a descriptor that tells of it | no |
//! | `proc_mem` | writing another process's memory by a descriptor | yes |
//! | `robust` | a word that the kernel marks when this process ends | yes |
//! | [`cma`] | copying to and from another process's memory | yes |
//! | [`fault_safe_copy`] | touching our own memory where there may be none | yes |
//! | [`own_word`] | atomics on words of our own memory, where there may be none | yes |
//! | [`host`] | what this machine allows | yes |
//! | [`forks`] | telling children made by `fork` apart, and keeping descriptors from them | yes |
//! | `change_log` | how those who start something hear of what changed before | no |
//! | [`futex`] | the system call under the bell | yes |
//! | `loaded` | staying in memory when the library is unloaded | yes |
//! | `threads` | threads that take no signals of the program's | yes |
//! | [`simd`] | loops compiled for wider vectors | yes |
//! | [`monitor`] | being told when memory is unmapped, moved or removed | yes |
//! | [`membarrier`] | the fence that lets senders go without one | yes |
//! | [`spawn`] | children that die with their parent; who is at the other end of a socket | yes |
//!
//! `ring`, `duplex`, `bell` and `announcements` know their memory only as a slice of atomics, so the same
//! code runs on a segment, under Miri and under loom (`--cfg loom`).

#[cfg(not(target_endian = "little"))]
compile_error!("the futex word is the low half of a 64-bit word: little-endian machines only");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("offsets and addresses are 64 bits wide");

#[cfg_attr(any(loom, miri), allow(dead_code))]
pub mod announcements;
pub mod bell;
pub mod biased;
#[cfg_attr(any(loom, miri), allow(dead_code, unreachable_pub))]
mod change_log;
pub mod cma;
pub mod completion_queue;
pub mod duplex;
pub mod fault_safe_copy;
#[cfg(all(feature = "allocator", not(any(loom, miri))))]
mod fork_copy;
pub mod forks;
pub mod futex;
#[cfg(all(feature = "allocator", not(any(loom, miri))))]
pub mod global_heap;
#[cfg(all(feature = "allocator", not(any(loom, miri))))]
mod halted_threads;
pub mod heap;
#[cfg(not(any(loom, miri)))]
mod heap_face;
#[cfg(all(feature = "allocator", not(any(loom, miri))))]
mod heap_file;
pub mod host;
#[cfg(not(any(loom, miri)))]
pub mod loaded;
mod mapping;
pub mod membarrier;
#[cfg(not(any(loom, miri)))]
pub mod monitor;
pub mod own_word;
pub mod pages;
mod payload;
#[cfg(not(loom))]
pub mod proc_mem;
#[cfg(not(any(loom, miri)))]
pub mod program_heap;
pub mod ring;
#[cfg(not(any(loom, miri)))]
pub mod robust;
pub mod segment;
pub mod shared;
pub mod simd;
pub mod spawn;
mod sync;
#[cfg(all(test, not(miri)))]
mod test_pages;
#[cfg(not(any(loom, miri)))]
pub mod threads;

pub use bell::{Bell, Ticket, Wake, bell_words};
pub use biased::{BiasedGuard, BiasedLock};
pub use cma::{CmaError, Iov};
pub use completion_queue::CompletionQueue;
pub use duplex::{BATON_PAYLOAD_BYTES, BATON_WORDS, Duplex, Side};
pub use fault_safe_copy::{CheckedCopy, LocalFault};
#[cfg(all(feature = "allocator", not(any(loom, miri))))]
pub use global_heap::GlobalHeap;
pub use heap::{BadFree, HeapAllocator, HeapFull, PageRun};
#[cfg(not(any(loom, miri)))]
pub use monitor::{Changed, Follower, Monitor, MonitorCounters, NotAvailable, NotWatchable};
pub use payload::Mapped;
pub use ring::{
    Attention, Consumer, Corrupt, FenceMode, HEAD_WORDS, HELD_MIN, Producer, PushError, Pushed, RingLayout,
};
pub use segment::{ReadOnly, Segment, SegmentError};
pub use shared::{Blocks, Outside, SharedMemory, Words};
