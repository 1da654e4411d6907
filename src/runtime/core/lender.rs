//! The engine, and memory of this process's that is lent to it: its network may be writing there, by itself.

use std::sync::Mutex;

use engine::OpId;
use vm::BiasedLock;

use super::detached_buffers::DetachedBuffers;
use crate::runtime::background_steps::BackgroundSteps;

/// The borrower of memory.
pub(super) trait Borrows {
    /// Touches no lent memory any more, once this has returned.
    fn give_back(&mut self);
}

/// Both in one: however its fields stand, the memory is freed after the engine has given it back.
pub(super) struct Lender<E: Borrows> {
    /// Collectives that nobody waits for do their steps in own memory here.
    pub(super) background_steps: BackgroundSteps,
    /// Buffers of operations whose events were dropped, kept until the operations end.
    pub(super) detached_buffers: Mutex<DetachedBuffers<OpId>>,
    /// Held for nanoseconds, and taken for every message, nearly always by the same thread.
    pub(super) engine: BiasedLock<E>,
}

impl<E: Borrows> Lender<E> {
    pub(super) fn new(engine: E) -> Lender<E> {
        Lender {
            background_steps: BackgroundSteps::default(),
            detached_buffers: Mutex::new(DetachedBuffers::new()),
            engine: BiasedLock::new(engine),
        }
    }
}

impl<E: Borrows> Drop for Lender<E> {
    fn drop(&mut self) {
        self.engine.get_mut().give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    type Log = Arc<Mutex<Vec<&'static str>>>;

    struct Card(Log);

    impl Borrows for Card {
        fn give_back(&mut self) {
            self.0.lock().expect("nobody panics with it").push("given back");
        }
    }

    struct Memory(Log);

    impl Drop for Memory {
        fn drop(&mut self) {
            self.0.lock().expect("nobody panics with it").push("freed");
        }
    }

    impl crate::runtime::background_steps::LocalSteps for Memory {
        fn run(&self, _: OpId) -> bool {
            true
        }
    }

    #[test]
    fn memory_is_freed_after_the_network_has_given_it_back() {
        let log = Log::default();
        let lender = Lender::new(Card(Arc::clone(&log)));
        let op = OpId::NONE;
        lender.background_steps.insert(op, Arc::new(Memory(Arc::clone(&log))));
        let buffers = lender.detached_buffers.lock();
        buffers.expect("nobody panics with it").add(op, Box::new(Memory(Arc::clone(&log))));
        drop(lender);
        assert_eq!(*log.lock().expect("nobody panics with it"), ["given back", "freed", "freed"]);
    }
}
