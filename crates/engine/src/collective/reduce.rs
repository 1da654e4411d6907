//! Plans of reductions. Operands are combined in the order of members, unless that does not matter.

use super::plan::{Algorithm, Elements, Plan, Span};

/// Tags of the messages before and after the rounds of recursive doubling, and to a root.
const FOLD: u16 = 64;
const UNFOLD: u16 = 65;
const RESULT: u16 = 66;

/// The `index`th of `parts` parts of all elements, in bytes.
fn part(elements: &Elements, parts: u32, index: u32) -> (u64, u64) {
    let (parts, index) = (u64::from(parts), u64::from(index));
    let (each, more) = (elements.count / parts, elements.count % parts);
    let (at, count) = (index * each + index.min(more), each + u64::from(index < more));
    (at * elements.bytes, count * elements.bytes)
}

impl Plan {
    pub(super) fn reduce(&mut self, root: u32, elements: &Elements) {
        if self.algorithm == Algorithm::Binomial {
            return self.binomial_reduce(root, elements);
        }
        let mine = self.combine_part(elements);
        if self.me != root {
            return self.send(root, RESULT, mine);
        }
        for from in self.others() {
            let (at, len) = part(elements, self.size, from);
            self.receive(from, RESULT, Span::output(at, len));
        }
        self.copy(mine, Span::output(part(elements, self.size, root).0, mine.len));
    }

    fn binomial_reduce(&mut self, root: u32, elements: &Elements) {
        let len = elements.len();
        // The tree's top combines from the left: where the order matters it is the first member.
        let top = if elements.commutative { root } else { 0 };
        let place = self.before_root(top);
        let mut have = Span::input(0, len);
        let mut other = None;
        let mut far = 1;
        while far < self.size && place & far == 0 {
            if place + far < self.size {
                if other.is_none() {
                    let own = if self.me == root { Span::output(0, len) } else { self.reserve(len) };
                    self.copy(have, own);
                    have = own;
                }
                let into = *other.get_or_insert_with(|| self.reserve(len));
                self.receive(self.after(top, place + far), 0, into);
                self.wait();
                self.combine(have, into);
            }
            far *= 2;
        }
        if place != 0 {
            self.send(self.after(top, place - far), 0, have);
        }
        let result = Span::output(0, len);
        match (self.me == top, self.me == root) {
            (true, true) => self.copy(have, result),
            (true, false) => self.send(root, RESULT, have),
            (false, true) => {
                // What it has combined so far may lie there.
                self.wait();
                self.receive(top, RESULT, result);
            }
            (false, false) => {}
        }
    }

    pub(super) fn all_reduce(&mut self, elements: &Elements) {
        if self.algorithm == Algorithm::RecursiveDoubling {
            return self.recursive_doubling(elements.len());
        }
        let mine = self.combine_part(elements);
        for to in self.others() {
            self.send(to, RESULT, mine);
        }
        for far in 1..self.size {
            let from = self.before_me(far);
            let (at, len) = part(elements, self.size, from);
            self.receive(from, RESULT, Span::output(at, len));
        }
        self.copy(mine, Span::output(part(elements, self.size, self.me).0, mine.len));
    }

    /// Combines this member's part of what all give, which the others have read then. Returns where it lies.
    fn combine_part(&mut self, elements: &Elements) -> Span {
        let (me, size) = (self.me, self.size);
        for to in self.others() {
            let (at, len) = part(elements, size, to);
            self.send(to, 0, Span::input(at, len));
        }
        let (at, len) = part(elements, size, me);
        let own = Span::input(at, len);
        let operands: Vec<Span> =
            (0..size).map(|from| if from == me { own } else { self.reserve(len) }).collect();
        for far in 1..size {
            let from = self.before_me(far);
            self.receive(from, 0, operands[from as usize]);
        }
        self.wait();
        // What this member gave stays as it is: it is the caller's.
        let mut result = operands[0];
        if me == 0 {
            result = self.reserve(len);
            self.copy(own, result);
        }
        for operand in &operands[1..] {
            self.combine(result, *operand);
        }
        result
    }

    fn recursive_doubling(&mut self, len: u64) {
        let all = Span::output(0, len);
        let (mut have, mut other) = (all, self.reserve(len));
        let rounds = self.size.ilog2();
        let paired = self.size - (1 << rounds);
        if self.me < 2 * paired && self.me.is_multiple_of(2) {
            self.send(self.me + 1, FOLD, Span::input(0, len));
            // It may be where the result goes.
            self.wait();
            return self.receive(self.me + 1, UNFOLD, all);
        }
        self.copy(Span::input(0, len), have);
        let mut place = self.me.wrapping_sub(paired);
        if self.me < 2 * paired {
            self.receive(self.me - 1, FOLD, other);
            self.wait();
            self.combine(other, have);
            (have, other) = (other, have);
            place = self.me / 2;
        }
        for round in 0..rounds {
            let with = place ^ 1 << round;
            let member = if with < paired { 2 * with + 1 } else { with + paired };
            self.send(member, round as u16, have);
            self.receive(member, round as u16, other);
            self.wait();
            if with < place {
                self.combine(other, have);
                (have, other) = (other, have);
            } else {
                self.combine(have, other);
            }
        }
        if self.me < 2 * paired {
            self.send(self.me - 1, UNFOLD, have);
        }
        self.copy(have, all);
    }
}
