//! A run's fingerprint: two runs with the same one have done the same things at the same times.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

/// Everything noted so far, and its order, as one number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trace(u64);

impl Trace {
    pub(crate) fn note(&mut self, what: &impl Hash) {
        let mut hasher = FxHasher::default();
        self.0.hash(&mut hasher);
        what.hash(&mut hasher);
        self.0 = hasher.finish();
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}
