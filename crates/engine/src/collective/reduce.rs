//! Plans of reductions. Operands are combined in the order of members, unless that does not matter.

use super::EAGER_MAX;
use super::plan::{Algorithm, Elements, Plan, Span, Step};

/// Tags of the messages before and after the rounds of recursive doubling, and to a root.
const FOLD: u16 = 64;
const UNFOLD: u16 = 65;
const RESULT: u16 = 66;

/// Bytes that each member combines of a segment where there is much, about.
const PART_MAX: u64 = 512 << 10;

/// Bytes that a member combines at a time, about: what all members give for them is still in the processor's
/// caches then.
const STRIP: u64 = 128 << 10;

/// Bytes of one strip, but for the last.
fn strip_bytes(elements: &Elements) -> u64 {
    (STRIP / elements.bytes).max(1) * elements.bytes
}

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
    fn all(elements: &Elements, size: u32) -> Vec<Segment> {
        let Elements { count, bytes, .. } = *elements;
        let fits = (PART_MAX / bytes).max(1) * u64::from(size);
        let each = fits.max(count.div_ceil(u64::from(u16::MAX / 2)));
        let segment = |at: u64| {
            let first = at * each;
            Segment { first, count: each.min(count - first), bytes, tag: 2 * at as u16 }
        };
        (0..count.div_ceil(each)).map(segment).collect()
    }

    /// The part of a member, in bytes.
    fn part(&self, size: u32, member: u32) -> (u64, u64) {
        let (size, member) = (u64::from(size), u64::from(member));
        let (each, more) = (self.count / size, self.count % size);
        let (at, count) = (self.first + member * each + member.min(more), each + u64::from(member < more));
        (at * self.bytes, count * self.bytes)
    }
}

/// Where strips go that are gotten of other members, one after the other.
#[derive(Clone, Copy)]
struct Strips {
    buffers: [Span; 2],
    /// Where results are made that may not overwrite what this member gives; not there where nothing must be
    /// kept in order.
    apart: Option<Span>,
}

impl Plan {
    pub(super) fn reduce(&mut self, root: u32, elements: &Elements, together: usize) {
        if self.algorithm == Algorithm::Binomial {
            return self.binomial_reduce(root, elements);
        }
        self.in_segments(elements, together, |plan, segment, strips| {
            let mine = plan.combine_part(elements, segment, strips, plan.me == root);
            if plan.me != root {
                return plan.send_result(root, segment.tag, mine);
            }
            for from in plan.others() {
                let (at, len) = segment.part(plan.size, from);
                plan.receive(from, segment.tag + 1, Span::output(at, len));
            }
        });
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
                // The values that it has combined so far may lie there.
                self.wait();
                self.receive(top, RESULT, result);
            }
            (false, false) => {}
        }
    }

    pub(super) fn all_reduce(&mut self, elements: &Elements, together: usize) {
        if self.algorithm == Algorithm::RecursiveDoubling {
            return self.recursive_doubling(elements.len());
        }
        self.in_segments(elements, together, |plan, segment, strips| {
            let mine = plan.combine_part(elements, segment, strips, true);
            for to in plan.others() {
                plan.send_result(to, segment.tag, mine);
            }
            for far in 1..plan.size {
                let from = plan.before_me(far);
                let (at, len) = segment.part(plan.size, from);
                plan.receive(from, segment.tag + 1, Span::output(at, len));
            }
        });
    }

    /// Gives all others their parts of so many segments at a time, once they have what was sent of those
    /// before, and does then for each segment what `one` says. The more there are, the less often members
    /// wait for each other; as some take fewer at a time, nothing of one segment may wait for the next.
    fn in_segments(
        &mut self,
        elements: &Elements,
        together: usize,
        one: impl Fn(&mut Plan, Segment, Strips),
    ) {
        let mut scratch = 0;
        for segments in Segment::all(elements, self.size).chunks(together) {
            // Values that were sent before may lie there.
            self.wait();
            scratch = scratch.max(std::mem::take(&mut self.scratch));
            for segment in segments {
                for to in self.others() {
                    let (at, len) = segment.part(self.size, to);
                    self.send(to, segment.tag, Span::input(at, len));
                }
            }
            let strips = self.reserve_strips(elements, segments);
            segments.iter().for_each(|segment| one(self, *segment, strips));
        }
        self.scratch = self.scratch.max(scratch);
    }

    /// The scratch that the segments need, one after the other, where this member's parts are long enough for
    /// strips.
    fn reserve_strips(&mut self, elements: &Elements, segments: &[Segment]) -> Strips {
        let parts = segments.iter().map(|segment| segment.part(self.size, self.me).1);
        let longest = parts.filter(|len| *len > EAGER_MAX).max().unwrap_or(0);
        let len = longest.min(strip_bytes(elements));
        let apart = (!elements.commutative).then(|| self.reserve(len));
        Strips { buffers: [self.reserve(len), self.reserve(len)], apart }
    }

    /// Combines this member's part of what all give for it, which it has read then. Returns where it lies:
    /// where the result goes, if there is such a place at this member.
    fn combine_part(
        &mut self,
        elements: &Elements,
        segment: Segment,
        strips: Strips,
        has_output: bool,
    ) -> Span {
        let (at, len) = segment.part(self.size, self.me);
        let own = Span::input(at, len);
        if len > EAGER_MAX {
            let result = if has_output { Span::output(at, len) } else { self.reserve(len) };
            self.combine_much(elements, segment.tag, strips, (own, result));
            return result;
        }
        let operands: Vec<Span> =
            (0..self.size).map(|from| if from == self.me { own } else { self.reserve(len) }).collect();
        for far in 1..self.size {
            let from = self.before_me(far);
            self.receive(from, segment.tag, operands[from as usize]);
        }
        self.wait();
        // This member's own values stay as they are: they are the caller's.
        let result = self.reserve(len);
        self.copy(operands[0], result);
        for operand in &operands[1..] {
            self.combine(result, *operand);
        }
        if !has_output {
            return result;
        }
        self.copy(result, Span::output(at, len));
        Span::output(at, len)
    }

    /// The same of much: in one go out of the other members' memory, if it can be reached and the order does
    /// not matter. Others may still combine this member's values then: each of them says what it has come to
    /// only after that.
    fn combine_much(&mut self, elements: &Elements, tag: u16, strips: Strips, (own, result): (Span, Span)) {
        for from in self.others() {
            self.steps.push(Step::Await { from, tag, len: own.len });
        }
        let fold = self.steps.len();
        if elements.commutative {
            self.steps.push(Step::Fold { own, into: result, tag, instead_of: 0 });
        }
        self.combine_by_strips(elements, tag, strips, (own, result));
        let steps = self.steps.len() - fold;
        if let Some(Step::Fold { instead_of, .. }) = self.steps.get_mut(fold) {
            *instead_of = steps as u32 - 1;
        }
        for from in self.others() {
            self.steps.push(Step::Release { from, tag });
        }
    }

    /// Strip by strip, each gotten of the other members just before it is combined.
    fn combine_by_strips(&mut self, elements: &Elements, tag: u16, to: Strips, (own, result): (Span, Span)) {
        let Strips { buffers, apart } = to;
        let (len, each) = (own.len, strip_bytes(elements));
        // In the order of members, if that matters: what is combined may not overwrite what this one gives
        // then.
        let order: Vec<u32> = match elements.commutative {
            true => std::iter::once(self.me).chain(self.others()).collect(),
            false => (0..self.size).collect(),
        };
        let pulls: Vec<(u32, u64)> = (0..len)
            .step_by(each as usize)
            .flat_map(|strip| order.iter().map(move |from| (*from, strip)))
            .filter(|(from, _)| *from != self.me)
            .collect();
        let buffer = |pull: usize, strip: u64| buffers[pull % 2].part(0, each.min(len - strip));
        let begin = |plan: &mut Plan, pull: usize| {
            if let Some((from, strip)) = pulls.get(pull) {
                plan.pull(*from, tag, *strip, buffer(pull, *strip));
            }
        };
        begin(self, 0);
        let mut pulled = 0;
        for strip in (0..len).step_by(each as usize) {
            let bytes = each.min(len - strip);
            let into = apart.map_or(result.part(strip, bytes), |apart| apart.part(0, bytes));
            for (turn, from) in order.iter().enumerate() {
                let operand = if *from == self.me {
                    own.part(strip, bytes)
                } else {
                    // One is on its way while the one before is combined.
                    begin(self, pulled + 1);
                    pulled += 1;
                    buffer(pulled - 1, strip)
                };
                if turn == 0 { self.copy(operand, into) } else { self.combine(into, operand) }
            }
            self.copy(into, result.part(strip, bytes));
        }
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
