//! Collectives that nobody need wait for: whoever makes progress does their steps in own memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use engine::OpId;

use crate::sync::lock;

/// A collective's memory, and how it is combined.
pub(crate) trait Work: Send + Sync {
    /// Does the steps in own memory that the collective has come to. Returns whether it goes on after that.
    fn run(&self, op: OpId) -> bool;
}

/// By operation.
#[derive(Default)]
pub(crate) struct Works(Mutex<HashMap<OpId, Arc<dyn Work>>>);

impl Works {
    pub(crate) fn insert(&self, op: OpId, work: Arc<dyn Work>) {
        lock(&self.0).insert(op, work);
    }

    pub(crate) fn remove(&self, op: OpId) {
        lock(&self.0).remove(&op);
    }

    /// Forgets those that are over.
    pub(crate) fn retain(&self, mut goes_on: impl FnMut(OpId) -> bool) {
        lock(&self.0).retain(|op, _| goes_on(*op));
    }

    /// Does what a collective is to do in own memory.
    pub(crate) fn run(&self, op: OpId) {
        let work = lock(&self.0).get(&op).cloned();
        if work.is_some_and(|work| !work.run(op)) {
            self.remove(op);
        }
    }
}
