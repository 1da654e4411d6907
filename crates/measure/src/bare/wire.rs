//! The limit of jobs over a network: libfabric's own calls between two processes, with nothing of this
//! library between.

mod frames;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fabric::{
    Access, Completion, Desc, Endpoint, Error, Local, Options, Peer, Post, Remote, RemotePiece, Sleep, Until,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use standpipe::network::NetworkError;
use standpipe::underneath;
use vm::{Segment, SharedMemory};

pub use self::frames::{Due, Frames};

/// How long a target sleeps before it looks whether it is still wanted: so long that it takes nothing from
/// what is measured beside it.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The key that targets register their memory with, where they may choose.
const KEY: u64 = 0x51a9d;

/// The domain that registers memory.
const PAGE_BYTES: usize = 4096;

/// An endpoint of its own, and memory that the other side may reach.
pub struct Wire {
    endpoint: Endpoint,
    memory: SharedMemory,
    desc: Desc,
    /// All that the other side must know of the memory: where it lies, and its key.
    place: [u64; 2],
    there: Option<(Peer, [u64; 2])>,
    /// Buffers that wait for frames.
    waiting: usize,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("provider", self.endpoint.description()).finish_non_exhaustive()
    }
}

impl Wire {
    /// Opens an endpoint at the provider of this name, as [`Node::provider`](standpipe::Node::provider) gives
    /// it, with `len` bytes of memory.
    ///
    /// # Errors
    /// [`NetworkError`].
    ///
    /// # Panics
    /// If the system has no memory.
    pub fn open(name: &str, len: usize) -> Result<Wire, NetworkError> {
        let provider = underneath::provider(name)?;
        let failed = |source| failure(&provider.description().provider, source);
        let open = |wait| Endpoint::open(&provider, &Options { wait, ..Options::default() });
        let mut endpoint = open(true).or_else(|_| open(false)).map_err(failed)?;
        let segment = Segment::create("standpipe-bare", (len as u64).next_multiple_of(PAGE_BYTES as u64))
            .expect("memory");
        let memory = segment.memory().clone();
        let start = std::ptr::with_exposed_provenance_mut(memory.base_addr() as usize);
        // SAFETY: the mapping is kept as long as the endpoint, which is closed before it; no reference to
        // what lies in it is ever made.
        let region = unsafe { endpoint.register(start, len, Access::ALL, KEY) }.map_err(failed)?;
        let place = [region.remote_addr, region.key];
        Ok(Wire { endpoint, memory, desc: region.desc, place, there: None, waiting: 0 })
    }

    /// Whether the provider takes local ends that are not registered.
    pub fn is_locally_free(&self) -> bool {
        !self.endpoint.description().mr_mode.local
    }

    /// The time that `times` registrations of so many pages take, and their ends.
    ///
    /// # Errors
    /// [`NetworkError::Provider`] where one fails: so many pages may not be registered.
    ///
    /// # Panics
    /// For more pages than there is memory.
    pub fn register(
        &mut self,
        pages: usize,
        times: u32,
    ) -> Result<(Vec<Duration>, Vec<Duration>), NetworkError> {
        let len = pages * PAGE_BYTES;
        let there = self.memory.copy_in(0, &vec![0; len]);
        assert!(there.is_ok(), "no more than the memory");
        let start = std::ptr::with_exposed_provenance_mut(self.memory.base_addr() as usize);
        let mut took = (Vec::new(), Vec::new());
        for _ in 0..times {
            let begun = Instant::now();
            // SAFETY: the mapping is kept as long as the endpoint, and no reference to what lies in it is
            // ever made.
            let region = unsafe { self.endpoint.register(start, len, Access::ALL, KEY + 1) };
            took.0.push(begun.elapsed());
            let region = region.map_err(|error| self.failed(error))?;
            let begun = Instant::now();
            let ended = self.endpoint.deregister(region.id);
            took.1.push(begun.elapsed());
            ended.map_err(|error| self.failed(error))?;
        }
        Ok(took)
    }

    /// All that the other side must know.
    pub fn card(&self) -> Vec<u8> {
        let words = self.place.iter().flat_map(|word| word.to_ne_bytes());
        words.chain(self.endpoint.address().iter().copied()).collect()
    }

    /// Takes the other side's card.
    ///
    /// # Errors
    /// [`NetworkError::Provider`] if it is none.
    pub fn meet(&mut self, card: &[u8]) -> Result<(), NetworkError> {
        let bad = Error::BadAddress { len: card.len() };
        let Some((words, address)) = card.split_at_checked(16) else { return Err(self.failed(bad)) };
        let place = bytemuck::pod_read_unaligned(words);
        let peer = self.endpoint.add_peer(address).map_err(|error| self.failed(error))?;
        self.there = Some((peer, place));
        Ok(())
    }

    /// Lets the other side write and read until `done`, asleep while there is nothing to do.
    ///
    /// # Errors
    /// [`NetworkError::Provider`] where the endpoint fails.
    pub fn serve(&mut self, done: impl Fn() -> bool) -> Result<(), NetworkError> {
        while !done() {
            // Nothing that ends here is this side's.
            while self.endpoint.poll().map_err(|error| self.failed(error))?.is_some() {}
            let sleeps = matches!(self.endpoint.try_wait(), Ok(Sleep::Now));
            match self.endpoint.wait_fd().filter(|_| sleeps) {
                // However it ends, the next round looks.
                Some(fd) => _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&LOOK)),
                None => std::thread::yield_now(),
            }
        }
        Ok(())
    }

    /// The time that `times` writes of `len` bytes take, one after the other, each until it is in the other
    /// side's memory.
    ///
    /// # Errors
    /// [`NetworkError::Provider`] where one fails.
    ///
    /// # Panics
    /// Before [`Wire::meet`], and for more bytes than there are.
    pub fn write(&mut self, len: usize, times: u32) -> Result<Duration, NetworkError> {
        self.repeat(times, |wire| wire.post(len, true))
    }

    /// As [`Wire::write`], for reads.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn read(&mut self, len: usize, times: u32) -> Result<Duration, NetworkError> {
        self.repeat(times, |wire| wire.post(len, false))
    }

    /// The time that `turns` writes of `len` bytes take there and back, each side's the moment it sees the
    /// other's; `first` on one side. `len`, 1 or more, is rounded up to a multiple of 8, and twice that must
    /// fit the memory. `start` is the turns before. Ends early once `given_up`, which is asked once in a
    /// thousand polls: it is no part of what is measured.
    ///
    /// # Errors
    /// [`NetworkError::Provider`] where one fails.
    ///
    /// # Panics
    /// Before [`Wire::meet`], and for more bytes than there are.
    pub fn bounce(
        &mut self,
        len: usize,
        first: bool,
        start: u64,
        turns: u32,
        given_up: impl Fn() -> bool,
    ) -> Result<Duration, NetworkError> {
        let len = len.next_multiple_of(8);
        let memory = self.memory.clone();
        let [sent, landed] =
            [len, 2 * len].map(|end| memory.atomic_u64(end as u64 - 8).expect("inside, and aligned"));
        let mut polls = 0_u32;
        let mut is_given_up = || {
            polls = polls.wrapping_add(1);
            polls.is_multiple_of(1000) && given_up()
        };
        let inline = len <= self.endpoint.description().inline_bytes;
        let mut few = vec![0; if inline { len } else { 0 }];
        let mut throw = |wire: &mut Wire, turn: u64| {
            match few.last_chunk_mut() {
                Some(word) => *word = turn.to_ne_bytes(),
                None => sent.store(turn, Ordering::Relaxed),
            }
            wire.throw(len, &few)
        };
        let begun = Instant::now();
        for turn in start + 1..=start + u64::from(turns) {
            if first {
                throw(self, turn)?;
            }
            while landed.load(Ordering::Acquire) != turn {
                self.poll()?;
                if is_given_up() {
                    return Ok(begun.elapsed());
                }
            }
            if !first {
                throw(self, turn)?;
            }
        }
        let took = begun.elapsed();
        // Bytes of the last one may move only while this side polls.
        while self.endpoint.in_flight() > 0 && !is_given_up() {
            self.poll()?;
        }
        Ok(took)
    }

    /// Writes these few bytes, or the memory's first `len` where there are none, behind the other side's
    /// first `len`.
    fn throw(&mut self, len: usize, few: &[u8]) -> Result<(), NetworkError> {
        let (peer, [addr, key]) = self.there.expect("the sides have met");
        let to = Remote { peer, addr: addr + len as u64, key };
        let start = std::ptr::with_exposed_provenance_mut::<u8>(self.memory.base_addr() as usize);
        loop {
            let posted = if !few.is_empty() {
                self.endpoint.write_inline(few, to)
            } else {
                let local = Local { addr: start, len, desc: self.desc };
                // SAFETY: the local end lies inside memory that is kept longer than the endpoint and that no
                // reference points into. The last write from there has ended, as it has been answered.
                unsafe { self.endpoint.write(local, to, 0) }
            };
            match posted.map_err(|error| self.failed(error))? {
                Post::Busy => _ = self.poll()?,
                _ => return Ok(()),
            }
        }
    }

    fn repeat(
        &mut self,
        times: u32,
        post: impl Fn(&mut Wire) -> Result<Post, Error>,
    ) -> Result<Duration, NetworkError> {
        let start = Instant::now();
        for _ in 0..times {
            while post(self).map_err(|error| self.failed(error))? == Post::Busy {
                self.poll()?;
            }
            while !self.poll()? {}
        }
        Ok(start.elapsed())
    }

    /// Whether an operation has ended.
    fn poll(&mut self) -> Result<bool, NetworkError> {
        match self.endpoint.poll().map_err(|error| self.failed(error))? {
            None => Ok(false),
            Some(Completion::Done { .. }) => Ok(true),
            Some(Completion::Failed { failure, .. }) => {
                tracing::warn!(%failure, "a bare operation failed");
                Err(self.failed(Error::Stray))
            }
        }
    }

    fn post(&mut self, len: usize, writes: bool) -> Result<Post, Error> {
        assert!(len as u64 <= self.memory.len(), "no more than the memory");
        let (peer, [addr, key]) = self.there.expect("the sides have met");
        let start = std::ptr::with_exposed_provenance_mut(self.memory.base_addr() as usize);
        let local = Local { addr: start, len, desc: self.desc };
        let pieces = [RemotePiece { addr, len, key }];
        // SAFETY: the local end lies inside memory that is kept longer than the endpoint and that no
        // reference points into; what lies in either memory is nobody's to mind.
        unsafe {
            if writes {
                self.endpoint.write_pieces(&[local], peer, &pieces, Until::Delivered, 0)
            } else {
                self.endpoint.read(local, Remote { peer, addr, key }, 0)
            }
        }
    }

    fn failed(&self, source: Error) -> NetworkError {
        failure(&self.endpoint.description().provider, source)
    }
}

fn failure(provider: &str, source: Error) -> NetworkError {
    NetworkError::Provider { provider: provider.to_owned(), at: None, source }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn what_is_written_arrives_and_is_read_back() {
        let Ok(mut near) = Wire::open("tcp", 64 << 10) else { return testbed::skip("no tcp") };
        let mut far = Wire::open("tcp", 64 << 10).expect("a second endpoint");
        let (memory, card, done) = (far.memory.clone(), far.card(), AtomicBool::new(false));
        near.meet(&card).expect("a card");
        let (made, ended) = near.register(16, 3).expect("it has so many pages");
        assert_eq!((made.len(), ended.len()), (3, 3));
        near.memory.copy_in(0, &[7; 64 << 10]).expect("its size");
        std::thread::scope(|scope| {
            scope.spawn(|| far.serve(|| done.load(Ordering::Relaxed)).expect("served"));
            let outcome = near.write(64 << 10, 3).and_then(|_| near.read(64 << 10, 2));
            done.store(true, Ordering::Relaxed);
            outcome.expect("written and read");
        });
        let mut got = vec![0; 64 << 10];
        memory.copy_out(0, &mut got).expect("its size");
        assert!(got.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn writes_go_there_and_back() {
        for len in [1, 8, 20_000] {
            let Ok(mut near) = Wire::open("tcp", 64 << 10) else { return testbed::skip("no tcp") };
            let mut far = Wire::open("tcp", 64 << 10).expect("a second endpoint");
            let cards = [near.card(), far.card()];
            near.meet(&cards[1]).expect("a card");
            far.meet(&cards[0]).expect("a card");
            let begun = Instant::now();
            let late = || begun.elapsed() > Duration::from_secs(60);
            let ends = std::thread::scope(|scope| {
                let back = scope.spawn(|| far.bounce(len, false, 3, 10, late));
                let there = near.bounce(len, true, 3, 10, late);
                [there, back.join().expect("no panic")]
            });
            assert!(ends.iter().all(Result::is_ok), "{ends:?}");
            let words = [&near, &far].map(|wire| {
                let at = (2 * len.next_multiple_of(8) - 8) as u64;
                wire.memory.atomic_u64(at).expect("inside").load(Ordering::Relaxed)
            });
            assert_eq!(words, [13, 13], "{len} bytes");
        }
    }
}
