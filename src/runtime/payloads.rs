//! Memory of messages' payloads, which is used again: that of those that handlers keep, and of those that are
//! written before they are sent.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::lock::lock;
use crate::transport::shm::control::PAYLOAD_MAX;

/// Places of payloads that are out at a time: 8 MiB of payload. Each has one place for each
/// [`PLACE_BYTES`], or part of these.
pub(crate) const PAYLOADS_MAX: usize = 1024;

/// Bytes of payload in a place.
const PLACE_BYTES: usize = PAYLOAD_MAX;

/// Spare ones whose memory is kept.
const SPARE_MAX: usize = 64;

/// The payloads of a node.
#[derive(Default)]
pub(crate) struct Payloads {
    spare: Mutex<Vec<Vec<u8>>>,
    /// Places of those that somebody has.
    out: AtomicUsize,
}

/// Memory of one payload, which goes back when this is dropped.
pub(crate) struct Kept {
    bytes: Vec<u8>,
    places: usize,
    from: Arc<Payloads>,
}

impl Payloads {
    /// Takes the payload that lies there, and leaves other memory in its place. `None`: as many are out as
    /// may be, and it stays.
    pub(crate) fn take(self: &Arc<Self>, payload: &mut Vec<u8>) -> Option<Kept> {
        let mut kept = self.empty(payload.len())?;
        if fits(payload.capacity(), kept.places) {
            std::mem::swap(&mut kept.bytes, payload);
        } else {
            kept.bytes.extend_from_slice(payload);
            payload.clear();
        }
        Some(kept)
    }

    /// Memory for a payload of so many bytes, all 0. `None`: as many are out as may be.
    pub(crate) fn zeroed(self: &Arc<Self>, bytes: usize) -> Option<Kept> {
        let mut kept = self.empty(bytes)?;
        kept.bytes.resize(bytes, 0);
        Some(kept)
    }

    /// Memory for a payload of so many bytes, without any of them. `None`: as many are out as may be.
    fn empty(self: &Arc<Self>, bytes: usize) -> Option<Kept> {
        let places = bytes.div_ceil(PLACE_BYTES).max(1);
        if self.out.fetch_add(places, Ordering::Relaxed) + places > PAYLOADS_MAX {
            self.out.fetch_sub(places, Ordering::Relaxed);
            return None;
        }
        let spare = if places == 1 { lock(&self.spare).pop() } else { None };
        Some(Kept { bytes: spare.unwrap_or_default(), places, from: Arc::clone(self) })
    }
}

/// Whether memory of so many bytes is not much more than what such a payload takes: vectors grow by doubling.
fn fits(capacity: usize, places: usize) -> bool {
    capacity <= 2 * places * PLACE_BYTES
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
        self.from.out.fetch_sub(self.places, Ordering::Relaxed);
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        // Only tried for: in a child made by `fork` whoever held it is not there to let go.
        if bytes.capacity() > 0
            && fits(bytes.capacity(), 1)
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
        let again = payloads.empty(100).expect("none is out");
        assert_eq!((again.bytes.as_ptr(), again.bytes.len()), (memory, 0));
        let mut all: Vec<Kept> =
            (1..PAYLOADS_MAX).map(|_| payloads.empty(1).expect("not too many")).collect();
        let mut inbox = vec![8];
        assert!(payloads.take(&mut inbox).is_none() && inbox == [8]);
        assert!(all.pop().is_some_and(|kept| kept.into_bytes().is_empty()));
        assert!(payloads.take(&mut inbox).is_some());
    }

    #[test]
    fn a_long_payload_takes_several_places_and_its_memory_is_not_kept() {
        let payloads = Arc::new(Payloads::default());
        let mut all: Vec<Kept> = (0..PAYLOADS_MAX / 8 - 1)
            .map(|_| payloads.zeroed(8 * PLACE_BYTES).expect("not too many"))
            .collect();
        let last = payloads.zeroed(7 * PLACE_BYTES + 1).expect("eight places are left");
        assert!(payloads.zeroed(1).is_none());
        drop(last);
        assert!(payloads.zeroed(8 * PLACE_BYTES + 1).is_none());
        all.clear();
        assert!(lock(&payloads.spare).is_empty());
        // Long memory of a short payload stays where it is.
        let mut inbox = Vec::with_capacity(8 * PLACE_BYTES);
        inbox.push(7);
        let kept = payloads.take(&mut inbox).expect("none is out");
        assert!(kept.bytes() == [7] && kept.bytes.capacity() < 100);
        assert!(inbox.is_empty() && inbox.capacity() >= 8 * PLACE_BYTES);
    }
}
