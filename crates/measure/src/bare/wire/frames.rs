//! Many operations at a time by bare libfabric: frames that flood a peer, and writes and reads of its memory.

use std::time::{Duration, Instant};

use fabric::{Completion, Error, Local, Op, Post};
use standpipe::network::NetworkError;

use super::Wire;

/// Buffers that wait for frames.
const WAITING: usize = 64;

/// Operations under way, at most.
const UNDER_WAY: u32 = 64;

/// When a side sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// As fast as it can.
    AtOnce,
    /// After it has received all that it receives.
    AfterAll,
    /// One for each that it has received.
    OneForOne,
}

/// One side of an exchange of frames.
#[derive(Clone, Copy, Debug)]
pub struct Frames {
    /// Bytes of a frame.
    pub bytes: usize,
    /// Frames that this side sends.
    pub out: u32,
    /// Frames that it receives.
    pub incoming: u32,
    /// When it sends.
    pub due: Due,
}

impl Frames {
    /// Bytes of memory that frames of so many bytes take.
    pub const fn memory(bytes: usize) -> usize {
        bytes.saturating_mul(WAITING + 1)
    }

    /// The number that may have been sent once so many have come.
    const fn may_send(&self, got: u32) -> u32 {
        match self.due {
            Due::AtOnce => self.out,
            Due::AfterAll if got < self.incoming => 0,
            Due::AfterAll => self.out,
            Due::OneForOne => got,
        }
    }
}

impl Wire {
    /// The time until this side has sent and received all of its frames. The wire has at least
    /// [`Frames::memory`] bytes. Ends early once `given_up`, which is asked now and then.
    ///
    /// # Errors
    /// [`NetworkError::Provider`] where one fails.
    ///
    /// # Panics
    /// Before [`Wire::meet`].
    pub fn exchange(
        &mut self,
        frames: Frames,
        given_up: impl Fn() -> bool,
    ) -> Result<Duration, NetworkError> {
        assert!(Frames::memory(frames.bytes) as u64 <= self.memory.len(), "the wire has memory for them");
        let mut free: Vec<usize> = (self.waiting..WAITING).collect();
        let (mut sent, mut ended, mut got, mut polls) = (0, 0, 0, 0_u32);
        let begun = Instant::now();
        while ended < frames.out || got < frames.incoming {
            while let Some(buffer) = free.pop() {
                if !self.await_frame(buffer, frames.bytes)? {
                    free.push(buffer);
                    break;
                }
            }
            let may_send = frames.may_send(got).min(ended + UNDER_WAY);
            while sent < may_send && self.send_frame(frames.bytes)? {
                sent += 1;
            }
            match self.endpoint.poll().map_err(|error| self.failed(error))? {
                Some(Completion::Done { op: Op::Send, .. }) => ended += 1,
                Some(Completion::Done { op: Op::Receive, token, .. }) => {
                    self.waiting -= 1;
                    got += 1;
                    free.push(token as usize);
                }
                Some(Completion::Done { .. }) => {}
                Some(Completion::Failed { failure, .. }) => {
                    tracing::warn!(%failure, "a bare frame failed");
                    return Err(self.failed(Error::Stray));
                }
                None => {
                    polls = polls.wrapping_add(1);
                    if polls.is_multiple_of(1000) && given_up() {
                        break;
                    }
                }
            }
        }
        let took = begun.elapsed();
        // The next exchange finds all buffers waiting.
        for buffer in free {
            self.await_frame(buffer, frames.bytes)?;
        }
        Ok(took)
    }

    /// The time that `times` writes or reads of `len` bytes take, many at a time, each until it is over.
    ///
    /// # Errors
    /// [`NetworkError::Provider`] where one fails.
    ///
    /// # Panics
    /// Before [`Wire::meet`], and for more bytes than there are.
    pub fn stream(&mut self, len: usize, times: u32, writes: bool) -> Result<Duration, NetworkError> {
        let (mut posted, mut ended) = (0, 0);
        let begun = Instant::now();
        while ended < times {
            while posted < times.min(ended + UNDER_WAY) {
                match self.post(len, writes).map_err(|error| self.failed(error))? {
                    Post::Busy => break,
                    _ => posted += 1,
                }
            }
            ended += u32::from(self.poll()?);
        }
        Ok(begun.elapsed())
    }

    /// Sends a frame; `false` while the provider takes none.
    fn send_frame(&mut self, bytes: usize) -> Result<bool, NetworkError> {
        let (peer, _) = self.there.expect("the sides have met");
        let from = self.part(0, bytes);
        // SAFETY: the buffer lies inside memory that is kept longer than the endpoint and that no reference
        // points into; its bytes are nobody's to mind.
        let posted = unsafe { self.endpoint.send(from, peer, 0) };
        Ok(posted.map_err(|error| self.failed(error))? != Post::Busy)
    }

    /// Gives a buffer for a frame; `false` while the provider takes none.
    fn await_frame(&mut self, buffer: usize, bytes: usize) -> Result<bool, NetworkError> {
        let into = self.part((buffer + 1) * bytes, bytes);
        // SAFETY: the buffer lies inside memory that is kept longer than the endpoint and that no reference
        // points into; the frames' bytes are nobody's to mind.
        let posted = unsafe { self.endpoint.receive(into, buffer as u64) };
        let taken = posted.map_err(|error| self.failed(error))? != Post::Busy;
        self.waiting += usize::from(taken);
        Ok(taken)
    }

    fn part(&self, at: usize, len: usize) -> Local {
        let start = self.memory.base_addr() as usize + at;
        Local { addr: std::ptr::with_exposed_provenance_mut(start), len, desc: self.desc }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(len: usize) -> Option<[Wire; 2]> {
        let mut near = Wire::open("tcp", len).ok()?;
        let mut far = Wire::open("tcp", len).expect("a second endpoint");
        near.meet(&far.card()).expect("a card");
        far.meet(&near.card()).expect("a card");
        Some([near, far])
    }

    #[test]
    fn frames_flood_and_are_answered() {
        const FRAMES: u32 = 300;
        for (due, back) in [(Due::AfterAll, 1), (Due::OneForOne, FRAMES), (Due::AtOnce, FRAMES)] {
            let Some([mut near, mut far]) = pair(Frames::memory(4096)) else {
                return testbed::skip("no tcp");
            };
            let begun = Instant::now();
            let late = || begun.elapsed() > Duration::from_secs(60);
            let there = Frames { bytes: 4096, out: FRAMES, incoming: back, due: Due::AtOnce };
            let here = Frames { bytes: 4096, out: back, incoming: FRAMES, due };
            // Twice: buffers of the first exchange serve the second.
            for _ in 0..2 {
                std::thread::scope(|scope| {
                    let other = scope.spawn(|| far.exchange(here, late));
                    near.exchange(there, late).expect("sent");
                    other.join().expect("no panic").expect("received");
                });
            }
            assert!(!late(), "{due:?}");
        }
    }

    #[test]
    fn writes_and_reads_stream() {
        let Some([mut near, mut far]) = pair(64 << 10) else { return testbed::skip("no tcp") };
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| far.serve(|| done.load(std::sync::atomic::Ordering::Relaxed)).expect("served"));
            let outcome = near.stream(8, 500, true).and_then(|_| near.stream(64 << 10, 70, false));
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            outcome.expect("written and read");
        });
    }
}
