//! Collectives that nobody need wait for: whoever makes progress does their steps in own memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use engine::OpId;

use crate::base::lock::lock;

/// A collective's memory, and how it is combined.
pub(crate) trait LocalSteps: Send + Sync {
    /// Does the steps in own memory that the collective has come to, unless somebody is at it. Returns
    /// whether it goes on after that.
    fn run(&self, op: OpId) -> bool;
}

/// By operation.
#[derive(Default)]
pub(crate) struct BackgroundSteps(Mutex<HashMap<OpId, Arc<dyn LocalSteps>>>);

impl BackgroundSteps {
    pub(crate) fn insert(&self, op: OpId, work: Arc<dyn LocalSteps>) {
        lock(&self.0).insert(op, work);
    }

    /// Forgets one that is over. The caller's function goes with it, and whatever that holds: no lock may be
    /// held.
    pub(crate) fn remove(&self, op: OpId) {
        let work = lock(&self.0).remove(&op);
        drop(work);
    }

    /// Does what a collective is to do in own memory, and forgets it if it is over.
    pub(crate) fn run(&self, op: OpId) {
        let work = lock(&self.0).get(&op).cloned();
        if work.is_some_and(|work| !work.run(op)) {
            self.remove(op);
        }
    }
}
