//! Bytes in words that another process may write at any time: in and out by the copy that mapped memory has.

use std::marker::PhantomData;

use crate::sync::AtomicU64;

/// Words in two runs: what follows the first goes on in the second.
pub(crate) type Runs<'a> = [&'a [AtomicU64]; 2];

/// Writes `bytes` into the words. The bytes behind them, up to a whole word, may be anything.
///
/// # Panics
/// If the words are fewer than the bytes need.
#[inline]
pub(crate) fn store(runs: Runs<'_>, bytes: &[u8]) {
    let (straight, wrapped) = bytes.split_at(bytes.len().min(runs[0].len() * 8));
    store_run(runs[0], straight);
    if !wrapped.is_empty() {
        store_run(runs[1], wrapped);
    }
}

/// Makes `bytes` the first `len` bytes that the words hold.
///
/// # Panics
/// If the words hold fewer.
#[inline]
pub(crate) fn load(runs: Runs<'_>, len: usize, bytes: &mut Vec<u8>) {
    bytes.clear();
    let straight = len.min(runs[0].len() * 8);
    append_run(runs[0], straight, bytes);
    if straight < len {
        append_run(runs[1], len - straight, bytes);
    }
}

/// Makes `into` what the words hold from byte `at` on.
///
/// # Panics
/// If the words hold fewer bytes.
pub(crate) fn read(runs: Runs<'_>, at: usize, into: &mut [u8]) {
    let straight = runs[0].len() * 8;
    let (first, rest) = into.split_at_mut(into.len().min(straight.saturating_sub(at)));
    read_run(runs[0], at, first);
    read_run(runs[1], at.saturating_sub(straight), rest);
}

/// Bytes in words that are mapped while this is there: for the kernel, and other copies by address.
#[derive(Clone, Copy, Debug)]
pub struct Mapped<'a> {
    runs: [(usize, usize); 2],
    words: PhantomData<&'a [AtomicU64]>,
}

impl<'a> Mapped<'a> {
    /// The `len` bytes from byte `at` on.
    ///
    /// # Panics
    /// If the words hold fewer bytes.
    pub(crate) fn new(runs: Runs<'a>, at: usize, len: usize) -> Mapped<'a> {
        let [straight, wrapped] = runs.map(|run| run.len() * 8);
        let first = len.min(straight.saturating_sub(at));
        let (start, rest) = (at.saturating_sub(straight), len - first);
        assert!(start <= wrapped && rest <= wrapped - start, "the words hold as many bytes");
        let addr = |run: &[AtomicU64], at: usize| run.as_ptr().expose_provenance() + at;
        let runs = [(addr(runs[0], at.min(straight)), first), (addr(runs[1], start), rest)];
        Mapped { runs, words: PhantomData }
    }

    /// Address and length of each run of them, in their order: one or two, none where there are no bytes. A
    /// peer may write there meanwhile.
    pub fn runs(self) -> impl Iterator<Item = (usize, usize)> {
        self.runs.into_iter().filter(|(_, len)| *len > 0)
    }
}

#[cfg(not(loom))]
#[inline]
fn read_run(words: &[AtomicU64], at: usize, into: &mut [u8]) {
    if into.is_empty() {
        return;
    }
    assert!(at <= words.len() * 8 && into.len() <= words.len() * 8 - at, "the words hold as many bytes");
    // SAFETY: the words have these bytes, as was just asserted, and live as long as this borrow. `into` is
    // this process's alone, and any bytes are valid there, whatever a peer writes meanwhile.
    unsafe {
        let from = words.as_ptr().cast::<u8>().add(at);
        crate::shared::copy(from, into.as_mut_ptr(), into.len(), usize::MAX);
    }
}

#[cfg(not(loom))]
#[inline]
fn store_run(words: &[AtomicU64], bytes: &[u8]) {
    assert!(bytes.len() <= words.len() * 8, "the words are as many as the bytes need");
    // SAFETY: the words have as many bytes, as was just asserted, and live as long as this borrow. They are
    // atomics, so that they may be written through a shared reference. `bytes` are of this process, whose
    // memory they share with no words. A peer may write the same words meanwhile: then they hold bytes of
    // both, and whoever reads them believes none of it.
    unsafe {
        crate::shared::copy(bytes.as_ptr(), words.as_ptr().cast_mut().cast(), bytes.len(), usize::MAX);
    }
}

#[cfg(not(loom))]
#[inline]
fn append_run(words: &[AtomicU64], len: usize, bytes: &mut Vec<u8>) {
    assert!(len <= words.len() * 8, "the words hold as many bytes");
    bytes.reserve(len);
    // SAFETY: the words have as many bytes, as was just asserted, and live as long as this borrow. Behind
    // the vector's bytes there is room for as many, as was just reserved, and the copy writes all that the
    // new length adds. Any bytes are valid ones, whatever a peer writes meanwhile.
    unsafe {
        let end = bytes.as_mut_ptr().add(bytes.len());
        crate::shared::copy(words.as_ptr().cast(), end, len, usize::MAX);
        bytes.set_len(bytes.len() + len);
    }
}

/// loom's atomics are no plain words.
#[cfg(loom)]
fn store_run(words: &[AtomicU64], bytes: &[u8]) {
    use crate::sync::Ordering;
    for (word, bytes) in words.iter().zip(bytes.chunks(8)) {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
    }
}

#[cfg(loom)]
fn append_run(words: &[AtomicU64], len: usize, bytes: &mut Vec<u8>) {
    use crate::sync::Ordering;
    let end = bytes.len() + len;
    for word in &words[..len.div_ceil(8)] {
        bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    bytes.truncate(end);
}

#[cfg(loom)]
fn read_run(words: &[AtomicU64], at: usize, into: &mut [u8]) {
    let mut bytes = Vec::new();
    append_run(words, words.len() * 8, &mut bytes);
    into.copy_from_slice(&bytes[at..at + into.len()]);
}
