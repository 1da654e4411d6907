//! Plans of reductions. Operands are combined in the order of members, unless that does not matter.

use super::plan::{Algorithm, Elements, Plan, Span};

/// Tags of the messages before and after the rounds of recursive doubling, and to a root.
const FOLD: u16 = 64;
const UNFOLD: u16 = 65;
const RESULT: u16 = 66;

/// Bytes that each member combines at a time where there is much, about: what all members give for them is still in the
/// processor's caches when it is combined.
const PART_MAX: u64 = 256 << 10;

/// Elements in a row, whose parts the members combine.
#[derive(Clone, Copy)]
struct Segment {
    first: u64,
    count: u64,
    bytes: u64,
    /// The tag of what members give; the next one is the results'.
    tag: u16,
}

impl Segment {
    /// As many as all members can combine at a time, from first to last. There are few enough for their tags.
    fn all(elements: &Elements, size: u32) -> impl Iterator<Item = Segment> + use<> {
        let Elements { count, bytes, .. } = *elements;
        let fits = (PART_MAX / bytes).max(1) * u64::from(size);
        let each = fits.max(count.div_ceil(u64::from(u16::MAX / 2)));
        (0..count.div_ceil(each)).map(move |at| {
            let first = at * each;
            Segment { first, count: each.min(count - first), bytes, tag: 2 * at as u16 }
        })
    }

    /// The part of a member, in bytes.
    fn part(&self, size: u32, member: u32) -> (u64, u64) {
        let (size, member) = (u64::from(size), u64::from(member));
        let (each, more) = (self.count / size, self.count % size);
        let (at, count) = (self.first + member * each + member.min(more), each + u64::from(member < more));
        (at * self.bytes, count * self.bytes)
    }
}

impl Plan {
    pub(super) fn reduce(&mut self, root: u32, elements: &Elements) {
        if self.algorithm == Algorithm::Binomial {
            return self.binomial_reduce(root, elements);
        }
        let mut scratch = 0;
        for segment in Segment::all(elements, self.size) {
            scratch = scratch.max(std::mem::take(&mut self.scratch));
            // What was sent of the segment before may lie there.
            self.wait();
            let mine = self.combine_part(elements, segment, self.me == root);
            if self.me != root {
                self.send(root, segment.tag + 1, mine);
                continue;
            }
            for from in self.others() {
                let (at, len) = segment.part(self.size, from);
                self.receive(from, segment.tag + 1, Span::output(at, len));
            }
            self.copy(mine, Span::output(segment.part(self.size, root).0, mine.len));
        }
        self.scratch = self.scratch.max(scratch);
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
        let mut scratch = 0;
        for segment in Segment::all(elements, self.size) {
            scratch = scratch.max(std::mem::take(&mut self.scratch));
            if !elements.commutative {
                // What was sent of the segment before lies there.
                self.wait();
            }
            let mine = self.combine_part(elements, segment, true);
            for to in self.others() {
                self.send(to, segment.tag + 1, mine);
            }
            for far in 1..self.size {
                let from = self.before_me(far);
                let (at, len) = segment.part(self.size, from);
                self.receive(from, segment.tag + 1, Span::output(at, len));
            }
            self.copy(mine, Span::output(segment.part(self.size, self.me).0, mine.len));
        }
        self.scratch = self.scratch.max(scratch);
    }

    /// Combines this member's part of what all give, which the others have read then. Returns where it lies: where the
    /// result goes, if there is such a place at this member, and the order does not matter.
    fn combine_part(&mut self, elements: &Elements, segment: Segment, has_output: bool) -> Span {
        let (me, size) = (self.me, self.size);
        for to in self.others() {
            let (at, len) = segment.part(size, to);
            self.send(to, segment.tag, Span::input(at, len));
        }
        let (at, len) = segment.part(size, me);
        let own = Span::input(at, len);
        let operands: Vec<Span> =
            (0..size).map(|from| if from == me { own } else { self.reserve(len) }).collect();
        for far in 1..size {
            let from = self.before_me(far);
            self.receive(from, segment.tag, operands[from as usize]);
        }
        self.wait();
        if elements.commutative && has_output {
            let result = Span::output(at, len);
            self.copy(own, result);
            for from in self.others() {
                self.combine(result, operands[from as usize]);
            }
            return result;
        }
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
