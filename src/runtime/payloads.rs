//! Memory of messages' payloads, which is used again: that of those that handlers keep, and of those that are
//! written before they are sent.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::lock::lock;

/// Payloads out at a time, at most: with [`PAYLOAD_MAX`](crate::transport::shm::control::PAYLOAD_MAX) bytes
/// each, 8 MiB.
pub(crate) const PAYLOADS_MAX: usize = 1024;

/// Spare ones whose memory is kept.
const SPARE_MAX: usize = 64;

/// The payloads of a node.
#[derive(Default)]
pub(crate) struct Payloads {
    spare: Mutex<Vec<Vec<u8>>>,
    /// How many somebody has.
    out: AtomicUsize,
}

/// Memory of one payload, which goes back when this is dropped.
pub(crate) struct Kept {
    bytes: Vec<u8>,
    from: Arc<Payloads>,
}

impl Payloads {
    /// Takes the payload that lies there, and leaves other memory in its place. `None`: as many are out as
    /// may be, and it stays.
    pub(crate) fn take(self: &Arc<Self>, payload: &mut Vec<u8>) -> Option<Kept> {
        let mut kept = self.empty()?;
        std::mem::swap(&mut kept.bytes, payload);
        Some(kept)
    }

    /// Memory for a payload, without any bytes. `None`: as many are out as may be.
    pub(crate) fn empty(self: &Arc<Self>) -> Option<Kept> {
        if self.out.fetch_add(1, Ordering::Relaxed) >= PAYLOADS_MAX {
            self.out.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let bytes = lock(&self.spare).pop().unwrap_or_default();
        Some(Kept { bytes, from: Arc::clone(self) })
    }
}

impl Kept {
    /// Its bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Its bytes for good: the memory does not go back.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.from.out.fetch_sub(1, Ordering::Relaxed);
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        // Only tried for: in a child made by `fork` whoever held it is not there to let go.
        if bytes.capacity() > 0
            && let Ok(mut spare) = self.from.spare.try_lock()
            && spare.len() < SPARE_MAX
        {
            spare.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_out_than_may_be_and_memory_is_used_again() {
        let payloads = Arc::new(Payloads::default());
        let mut inbox = vec![7; 100];
        let first = payloads.take(&mut inbox).expect("none is out");
        assert_eq!((first.bytes(), &inbox[..]), (&[7; 100][..], &[][..]));
        let memory = first.bytes().as_ptr();
        drop(first);
        let again = payloads.empty().expect("none is out");
        assert_eq!((again.bytes.as_ptr(), again.bytes.len()), (memory, 0));
        let mut all: Vec<Kept> = (1..PAYLOADS_MAX).map(|_| payloads.empty().expect("not too many")).collect();
        let mut inbox = vec![8];
        assert!(payloads.take(&mut inbox).is_none() && inbox == [8]);
        assert!(all.pop().is_some_and(|kept| kept.into_bytes().is_empty()));
        assert!(payloads.take(&mut inbox).is_some());
    }
}
