//! Failures that nobody has looked at, for the next `quiet`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::error::Error;
use crate::base::lock::lock;

/// Of each client, the first one; and a word that says whether there are any.
#[derive(Default)]
pub(crate) struct FirstFailures {
    errors: Mutex<BTreeMap<u8, Error>>,
    are_there: AtomicBool,
}

impl FirstFailures {
    /// Keeps a failure, unless the client has one.
    pub(crate) fn note(&self, client: u8, error: Error) {
        let mut errors = lock(&self.errors);
        errors.entry(client).or_insert(error);
        self.are_there.store(true, Ordering::Release);
    }

    /// Takes a client's.
    pub(crate) fn take(&self, client: u8) -> Option<Error> {
        if !self.are_there.load(Ordering::Acquire) {
            return None;
        }
        let mut errors = lock(&self.errors);
        let taken = errors.remove(&client);
        self.are_there.store(!errors.is_empty(), Ordering::Release);
        taken
    }

    /// Whether a client has one.
    pub(crate) fn has(&self, client: u8) -> bool {
        self.are_there.load(Ordering::Acquire) && lock(&self.errors).contains_key(&client)
    }
}
