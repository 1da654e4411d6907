//! Steps, and the lists of them.

use std::fmt;

use super::function::Function;

/// How a collective is done, and whose idea that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// In each round everyone tells the member twice as far away (Hensgen, Finkel and Manber, 1988).
    Dissemination,
    /// A tree in which who has heard tells one more in each round; for reductions the same upside down.
    Binomial,
    /// Everyone who needs a member's bytes takes them from there.
    Direct,
    /// The root's bytes are scattered, and the parts gathered by all (Barnett, Payne, van de Geijn and Watts,
    /// 1994).
    ScatterAllGather,
    /// Blocks go along together to members twice as far away each round (Bruck, Ho, Kipnis, Upfal and
    /// Weathersby, 1997).
    Bruck,
    /// Each pair exchanges its blocks, everyone beginning with its next neighbour.
    Pairwise,
    /// Pairs of members twice as far away each round exchange what they have combined; where there are no
    /// power of two, the first ones pair up before (Thakur, Rabenseifner and Gropp, 2005).
    RecursiveDoubling,
    /// Each member combines a part of all, and the parts are gathered (Rabenseifner, 2004), both directly.
    ReduceScatter,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Algorithm::Dissemination => "dissemination",
            Algorithm::Binomial => "binomial tree",
            Algorithm::Direct => "direct",
            Algorithm::ScatterAllGather => "scatter and all-gather",
            Algorithm::Bruck => "Bruck",
            Algorithm::Pairwise => "pairwise exchange",
            Algorithm::RecursiveDoubling => "recursive doubling",
            Algorithm::ReduceScatter => "reduce-scatter and gather",
        })
    }
}

/// The values of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    /// How many.
    pub count: u64,
    /// Bytes of each.
    pub bytes: u64,
    /// The combining function, which all members must give alike, with the size.
    pub function: Function,
    /// Whether the order of operands does not matter.
    pub commutative: bool,
}

impl Elements {
    pub(super) fn len(&self) -> u64 {
        self.count * self.bytes
    }
}

/// The memories of a collective at one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// What the member gives. It may be the same memory as [`Memory::Out`] for reductions.
    In,
    /// The memory that it gets; for a broadcast also what the root gives.
    Out,
    /// [`Plan::scratch`] bytes that only the collective uses.
    Scratch,
}

/// A part of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Which memory.
    pub memory: Memory,
    /// The first byte.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

impl Span {
    pub(super) const fn input(at: u64, len: u64) -> Span {
        Span { memory: Memory::In, at, len }
    }

    /// A part of it.
    pub const fn part(self, at: u64, len: u64) -> Span {
        Span { memory: self.memory, at: self.at + at, len }
    }

    /// Whether the two have a byte in common, were the memories what they are called.
    pub(crate) fn meets(self, other: Span) -> bool {
        self.memory == other.memory && self.at < other.at + other.len && other.at < self.at + self.len
    }

    pub(super) const fn output(at: u64, len: u64) -> Span {
        Span { memory: Memory::Out, at, len }
    }
}

/// The next step of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Begins to send to a member; the bytes stay as they are until the next [`Step::Wait`].
    Send {
        /// The member.
        to: u32,
        /// Tells messages between two members apart.
        tag: u16,
        /// The bytes.
        from: Span,
        /// They are made of what was released by this tag, and go when that is known to have lain there
        /// still.
        of: Option<u16>,
    },
    /// Begins to receive from a member; the bytes are there after the next [`Step::Wait`].
    Receive {
        /// The member.
        from: u32,
        /// As the sender names it.
        tag: u16,
        /// Where they go.
        into: Span,
    },
    /// Begins to hear from a member where its bytes lie, which are more than [`EAGER_MAX`](super::EAGER_MAX).
    Await {
        /// The member.
        from: u32,
        /// As the sender names it.
        tag: u16,
        /// How many they are.
        len: u64,
    },
    /// Begins to get some of the bytes that a member has been awaited for, once it has said where they lie.
    /// Steps that use them, and the next [`Step::Wait`], go on when they are there.
    Pull {
        /// The member.
        from: u32,
        /// As the sender names it.
        tag: u16,
        /// Where in its bytes they begin.
        at: u64,
        /// Where they go.
        into: Span,
    },
    /// Begins to tell a member that all of its bytes, which it was awaited for, were gotten. The next
    /// [`Step::Wait`] goes on when they are known to have lain there still.
    Release {
        /// The member.
        from: u32,
        /// As the sender names it.
        tag: u16,
    },
    /// Goes on when everything sent, received and pulled is over.
    Wait,
    /// Copies in the member's memory.
    Copy {
        /// From there.
        from: Span,
        /// To there.
        into: Span,
    },
    /// Combines elements: those `into` are the left operands, and the results.
    Combine {
        /// Left operands and results.
        into: Span,
        /// Right operands.
        from: Span,
    },
    /// Combines this member's elements with those that all others have been awaited for, in any order, out of
    /// where these lie. A member that cannot reach them there goes on with the next steps, which do the same
    /// and are left out otherwise.
    Fold {
        /// This member's operands.
        own: Span,
        /// Where the results go: it may be the operands' place.
        into: Span,
        /// As the others name what they give.
        tag: u16,
        /// How many of the next steps do the same.
        instead_of: u32,
    },
}

/// The steps of a member in a collective. It is over when all steps have been done, and all that was sent and
/// received in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Bytes of [`Memory::Scratch`].
    pub scratch: u64,
    pub(super) size: u32,
    pub(super) me: u32,
}

impl Plan {
    pub(super) fn new(algorithm: Algorithm, size: u32, me: u32) -> Plan {
        Plan { algorithm, steps: Vec::new(), scratch: 0, size, me }
    }

    /// The members that this one sends something to or receives something from, some of them several times.
    pub fn partners(&self) -> impl Iterator<Item = u32> {
        self.steps.iter().filter_map(|step| match step {
            Step::Send { to, .. } => Some(*to),
            Step::Receive { from, .. } | Step::Await { from, .. } => Some(*from),
            Step::Pull { .. } | Step::Release { .. } => None,
            Step::Wait | Step::Copy { .. } | Step::Combine { .. } | Step::Fold { .. } => None,
        })
    }

    pub(super) fn send(&mut self, to: u32, tag: u16, from: Span) {
        self.steps.push(Step::Send { to, tag, from, of: None });
    }

    /// Sends what a part of all members' comes to, which they gave by the tag before.
    pub(super) fn send_result(&mut self, to: u32, given: u16, from: Span) {
        self.steps.push(Step::Send { to, tag: given + 1, from, of: Some(given) });
    }

    pub(super) fn receive(&mut self, from: u32, tag: u16, into: Span) {
        self.steps.push(Step::Receive { from, tag, into });
    }

    pub(super) fn pull(&mut self, from: u32, tag: u16, at: u64, into: Span) {
        self.steps.push(Step::Pull { from, tag, at, into });
    }

    pub(super) fn wait(&mut self) {
        self.steps.push(Step::Wait);
    }

    pub(super) fn copy(&mut self, from: Span, into: Span) {
        debug_assert_eq!(from.len, into.len, "a copy changes no length");
        if from.len > 0 && from != into {
            self.steps.push(Step::Copy { from, into });
        }
    }

    pub(super) fn combine(&mut self, into: Span, from: Span) {
        debug_assert_eq!(from.len, into.len, "operands are of one length");
        if from.len > 0 {
            self.steps.push(Step::Combine { into, from });
        }
    }

    pub(super) fn reserve(&mut self, len: u64) -> Span {
        let at = self.scratch;
        self.scratch += len;
        Span { memory: Memory::Scratch, at, len }
    }

    /// The member so far after another, round the circle.
    pub(super) fn after(&self, member: u32, far: u32) -> u32 {
        ((u64::from(member) + u64::from(far)) % u64::from(self.size)) as u32
    }

    /// The member so far before this one.
    pub(super) fn before_me(&self, far: u32) -> u32 {
        self.after(self.me, self.size - far % self.size)
    }

    /// All others, the next neighbour first.
    pub(super) fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let (me, size) = (u64::from(self.me), u64::from(self.size));
        (1..size).map(move |far| ((me + far) % size) as u32)
    }
}
