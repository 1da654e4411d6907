//! Buffers of operations that nobody asks about any more, kept until the operations have ended.

use std::any::Any;
use std::collections::VecDeque;

/// Operations that may end before older ones, and are looked at each time.
const LOOKS: usize = 8;

/// Some buffer, whose drop may run a program's code.
pub(super) type Buffer = Box<dyn Any + Send>;

/// Most operations end in their order. So the oldest is looked at, and after it the next for as long as they
/// have ended. Of all others a few are looked at in turn, as one may wait long for its peer: more for as long
/// as some of them have ended. So thousands cost a look no more than ten do.
pub(super) struct DetachedBuffers<K> {
    all: VecDeque<(K, Buffer)>,
    turn: usize,
}

impl<K: Copy> DetachedBuffers<K> {
    pub(super) const fn new() -> DetachedBuffers<K> {
        DetachedBuffers { all: VecDeque::new(), turn: 0 }
    }

    pub(super) fn add(&mut self, op: K, buffer: Buffer) {
        self.all.push_back((op, buffer));
    }

    /// Takes out those whose operations have ended, for the caller to drop while it holds no lock: if all
    /// have ended, all of them.
    pub(super) fn take_ended(&mut self, mut has_ended: impl FnMut(K) -> bool) -> Vec<Buffer> {
        let mut ended = Vec::new();
        while self.all.front().is_some_and(|(op, _)| has_ended(*op)) {
            ended.extend(self.all.pop_front().map(|(_, buffer)| buffer));
        }
        let mut looks = LOOKS;
        while looks > 0 && !self.all.is_empty() {
            self.turn = (self.turn + 1) % self.all.len();
            // Where some have ended, more may have.
            looks = if has_ended(self.all[self.turn].0) {
                ended.extend(self.all.swap_remove_back(self.turn).map(|(_, buffer)| buffer));
                LOOKS
            } else {
                looks - 1
            };
        }
        ended
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn kept(count: u64) -> DetachedBuffers<u64> {
        let mut detached_buffers = DetachedBuffers::new();
        (0..count).for_each(|op| detached_buffers.add(op, Box::new(op)));
        detached_buffers
    }

    #[test]
    fn whatever_has_ended_goes_and_nothing_else() {
        let mut detached_buffers = kept(100);
        let ended = detached_buffers.take_ended(|op| op < 40);
        assert_eq!((ended.len(), detached_buffers.all.len()), (40, 60));
        let ended = |op| op % 2 == 1 && op != 41;
        let others: usize = (0..60).map(|_| detached_buffers.take_ended(ended).len()).sum();
        assert_eq!(others, 29, "each comes to its turn");
        assert!(detached_buffers.all.iter().all(|(op, _)| op % 2 == 0 || *op == 41));
        assert_eq!(detached_buffers.take_ended(|_| true).len(), 31);
        assert!(detached_buffers.is_empty());
    }

    #[test]
    fn thousands_cost_a_look_no_more_than_ten_do() {
        let mut detached_buffers = kept(10_000);
        let looks = Cell::new(0);
        for _ in 0..1000 {
            detached_buffers.take_ended(|_| {
                looks.set(looks.get() + 1);
                false
            });
        }
        assert_eq!(looks.get(), 1000 * (1 + LOOKS));
    }
}
