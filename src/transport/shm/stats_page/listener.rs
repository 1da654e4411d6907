//! Where a process that nobody launched says how to look at it: the name of its listener, and a secret that
//! opens it to those who look and to nobody else.
//!
//! A process that can read it may look: this user's processes, which the kernel lets open the descriptor, and
//! peers, which have mapped the segment.

use std::os::fd::OwnedFd;

use rustix::fs::{SealFlags, fcntl_get_seals};

use super::read_words;
use crate::transport::shm::control::{ALLOCATED_AT, Control, LISTENER_AT};

/// Bytes of the listener's name and the secret.
pub(crate) const LISTENER_BYTES: usize = 48;
const WORDS: usize = LISTENER_BYTES / 8;
const _: () = assert!(
    LISTENER_AT + LISTENER_BYTES as u64 <= ALLOCATED_AT,
    "the listener's words lie below what follows"
);

impl Control {
    /// Says how to look at this process.
    pub(crate) fn publish_listener(&self, peer_listener: &[u8; LISTENER_BYTES]) {
        for (at, word) in (LISTENER_AT..).step_by(8).zip(peer_listener.chunks_exact(8)) {
            let word = u64::from_ne_bytes(word.try_into().expect("eight bytes each"));
            self.word(at).store(word, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// How to look at the process behind a control segment. `None` where it says nothing, or the descriptor is of
/// something else.
pub(crate) fn read_listener(page: &OwnedFd) -> Option<[u8; LISTENER_BYTES]> {
    // Nothing but memory: reading a file of another kind may take any time.
    if !fcntl_get_seals(page).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return None;
    }
    let words: [u64; WORDS] = read_words(page, LISTENER_AT).ok()?;
    let mut peer_listener = [0; LISTENER_BYTES];
    for (bytes, word) in peer_listener.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    (words != [0; WORDS]).then_some(peer_listener)
}
