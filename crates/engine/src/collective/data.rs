//! Plans of what moves bytes and combines nothing.

use super::plan::{Algorithm, Memory, Plan, Span};

/// The `index`th of `parts` parts of so many bytes, of which the first ones are a byte longer where it does
/// not come out even: where it begins, and its length.
fn part(len: u64, parts: u32, index: u32) -> (u64, u64) {
    let (parts, index) = (u64::from(parts), u64::from(index));
    let (each, more) = (len / parts, len % parts);
    (index * each + index.min(more), each + u64::from(index < more))
}

impl Plan {
    pub(super) fn dissemination(&mut self) {
        let nothing = Span { memory: Memory::Out, at: 0, len: 0 };
        let mut far = 1;
        for round in 0.. {
            if far >= self.size {
                break;
            }
            self.send(self.after(self.me, far), round, nothing);
            self.receive(self.before_me(far), round, nothing);
            self.wait();
            far = far.saturating_mul(2);
        }
    }

    pub(super) fn broadcast(&mut self, root: u32, len: u64) {
        let all = Span::output(0, len);
        match self.algorithm {
            Algorithm::Binomial => self.binomial_broadcast(root, all),
            Algorithm::ScatterAllGather => self.scatter_all_gather(root, len),
            _ if self.me == root => self.others().for_each(|to| self.send(to, 0, all)),
            _ => self.receive(root, 0, all),
        }
    }

    fn binomial_broadcast(&mut self, root: u32, all: Span) {
        let place = self.before_root(root);
        // The lowest bit of its place says when a member hears; the root hears before all rounds.
        let heard = if place == 0 { self.size.next_power_of_two() } else { place & place.wrapping_neg() };
        if place != 0 {
            self.receive(self.after(root, place - heard), 0, all);
            self.wait();
        }
        let mut far = heard / 2;
        while far > 0 {
            if place + far < self.size {
                self.send(self.after(root, place + far), 0, all);
            }
            far /= 2;
        }
    }

    /// This member's place in a circle that begins at the root.
    pub(super) fn before_root(&self, root: u32) -> u32 {
        (self.me + self.size - root) % self.size
    }

    fn scatter_all_gather(&mut self, root: u32, len: u64) {
        let size = self.size;
        let of = |member: u32| {
            let (at, len) = part(len, size, member);
            Span::output(at, len)
        };
        let me = self.me;
        if me == root {
            self.others().for_each(|to| self.send(to, 0, of(to)));
        } else {
            self.receive(root, 0, of(me));
            self.wait();
        }
        for other in self.others() {
            if other != root {
                self.send(other, 1, of(me));
            }
            if me != root {
                self.receive(other, 1, of(other));
            }
        }
    }

    pub(super) fn gather(&mut self, root: u32, block: u64) {
        let mine = Span::input(0, block);
        if self.me != root {
            return self.send(root, 0, mine);
        }
        for from in self.others() {
            self.receive(from, 0, Span::output(u64::from(from) * block, block));
        }
        self.copy(mine, Span::output(u64::from(root) * block, block));
    }

    pub(super) fn scatter(&mut self, root: u32, block: u64) {
        let mine = Span::output(0, block);
        if self.me != root {
            return self.receive(root, 0, mine);
        }
        for to in self.others() {
            self.send(to, 0, Span::input(u64::from(to) * block, block));
        }
        self.copy(Span::input(u64::from(root) * block, block), mine);
    }

    pub(super) fn all_gather(&mut self, block: u64) {
        if self.algorithm == Algorithm::Bruck {
            return self.bruck_all_gather(block);
        }
        let mine = Span::input(0, block);
        for other in self.others() {
            self.send(other, 0, mine);
        }
        for far in 1..self.size {
            let from = self.before_me(far);
            self.receive(from, 0, Span::output(u64::from(from) * block, block));
        }
        self.copy(mine, Span::output(u64::from(self.me) * block, block));
    }

    fn bruck_all_gather(&mut self, block: u64) {
        let (me, size) = (u64::from(self.me), u64::from(self.size));
        let all = self.reserve(size * block);
        let blocks = |at: u64, count: u64| Span { at: all.at + at * block, len: count * block, ..all };
        self.copy(Span::input(0, block), blocks(0, 1));
        let mut far = 1;
        for round in 0.. {
            if far >= self.size {
                break;
            }
            let (have, count) = (u64::from(far), u64::from(far.min(self.size - far)));
            self.send(self.before_me(far), round, blocks(0, count));
            self.receive(self.after(self.me, far), round, blocks(have, count));
            self.wait();
            far = far.saturating_mul(2);
        }
        // The blocks begin with this member's own.
        self.copy(blocks(0, size - me), Span::output(me * block, (size - me) * block));
        self.copy(blocks(size - me, me), Span::output(0, me * block));
    }

    pub(super) fn all_to_all(&mut self, block: u64) {
        if self.algorithm == Algorithm::Bruck {
            return self.bruck_all_to_all(block);
        }
        let blocks = vec![block; self.size as usize];
        self.all_to_all_v(&blocks, &blocks);
    }

    pub(super) fn all_to_all_v(&mut self, sends: &[u64], receives: &[u64]) {
        assert!(
            sends.len() == self.size as usize && receives.len() == sends.len(),
            "a length for each member, and from each"
        );
        let starts = |lens: &[u64]| -> Vec<u64> {
            lens.iter().scan(0, |at, len| Some(std::mem::replace(at, *at + len))).collect()
        };
        let (out, into) = (starts(sends), starts(receives));
        for far in 1..self.size {
            let (to, from) = (self.after(self.me, far), self.before_me(far));
            self.send(to, 0, Span::input(out[to as usize], sends[to as usize]));
            self.receive(from, 0, Span::output(into[from as usize], receives[from as usize]));
        }
        let me = self.me as usize;
        self.copy(Span::input(out[me], sends[me]), Span::output(into[me], receives[me]));
    }

    fn bruck_all_to_all(&mut self, block: u64) {
        let (me, size) = (u64::from(self.me), u64::from(self.size));
        // The data for the member so many places on, under way.
        let all = self.reserve(size * block);
        let (out, into) = (self.reserve(size * block), self.reserve(size * block));
        let cut = |of: Span, at: u64, count: u64| Span { at: of.at + at * block, len: count * block, ..of };
        self.copy(Span::input(me * block, (size - me) * block), cut(all, 0, size - me));
        self.copy(Span::input(0, me * block), cut(all, size - me, me));
        let mut far = 1;
        for round in 0.. {
            if far >= self.size {
                break;
            }
            let going: Vec<u64> = (0..size).filter(|at| at & u64::from(far) != 0).collect();
            for (slot, at) in (0..).zip(&going) {
                self.copy(cut(all, *at, 1), cut(out, slot, 1));
            }
            let count = going.len() as u64;
            self.send(self.after(self.me, far), round, cut(out, 0, count));
            self.receive(self.before_me(far), round, cut(into, 0, count));
            self.wait();
            for (slot, at) in (0..).zip(&going) {
                self.copy(cut(into, slot, 1), cut(all, *at, 1));
            }
            far = far.saturating_mul(2);
        }
        for at in 0..size {
            let from = (me + size - at) % size;
            self.copy(cut(all, at, 1), Span::output(from * block, block));
        }
    }
}
