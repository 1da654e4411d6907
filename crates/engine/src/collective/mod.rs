//! Collectives as lists of steps: what each member of a team sends, receives, copies and combines, and in
//! which order.
//!
//! A [`Plan`] is a pure function of the [`Collective`], the team's size and the member. The engine's node
//! carries it out over any transport (`node/teams`); which algorithm is taken is said by
//! [`Collective::algorithm`].

mod data;
mod function;
mod plan;
mod reduce;
mod staging;

use std::fmt;

use crate::Rank;
use crate::handlers::HandlerKey;
use crate::limits::EARLY_MESSAGES;
pub use function::{ElementType, Function, NumberType, Reduction};
pub use plan::{Algorithm, Elements, Memory, Plan, Span, Step};

/// Bytes up to which a step's data is taken to ride in its message, where algorithms are chosen.
pub const EAGER_MAX: u64 = 8 << 10;

/// Members up to which everyone may copy from one member at once.
const DIRECT_MAX: u32 = 8;

/// Blocks of an all-to-all that are gathered into fewer messages, in bytes at most.
const BRUCK_BLOCK_MAX: u64 = 256;

/// Segments of a reduction between two waits for all others, at most: each is a message to one that may not
/// have come to it.
const TOGETHER: usize = EARLY_MESSAGES as usize;

/// An action that the members of a team do together. All of them must name the same, with the same root and
/// sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Nobody passes before all have come.
    Barrier,
    /// The root's `len` bytes to everyone, in [`Memory::Out`].
    Broadcast {
        /// The member that has the bytes.
        root: u32,
        /// Bytes.
        len: u64,
    },
    /// A block of each member to the root, in the order of members.
    Gather {
        /// The member that gets all blocks.
        root: u32,
        /// Bytes of a block.
        block: u64,
    },
    /// A block of the root's to each member.
    Scatter {
        /// The member that has all blocks.
        root: u32,
        /// Bytes of a block.
        block: u64,
    },
    /// A block of each member to all.
    AllGather {
        /// Bytes of a block.
        block: u64,
    },
    /// A block from each member to each.
    AllToAll {
        /// Bytes of a block.
        block: u64,
    },
    /// As many bytes from each member to each as the two say, packed in the order of members.
    AllToAllV {
        /// Bytes for each member.
        sends: Vec<u64>,
        /// Bytes from each member.
        receives: Vec<u64>,
    },
    /// All members' elements, combined in the order of members, to the root.
    Reduce {
        /// The member that gets the result.
        root: u32,
        /// The values that are combined.
        elements: Elements,
    },
    /// The same to all members.
    AllReduce {
        /// The values that are combined.
        elements: Elements,
    },
    /// A split of the team: an all-gather of colors and keys.
    Split,
}

/// Rounds of a collective, in each of which every member sends one message and gets one, whose tags are the
/// rounds' numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    size: u32,
    /// How many.
    pub count: usize,
    /// Whether members exchange in pairs; otherwise each sends to one and gets from another.
    pairs: bool,
}

impl Rounds {
    /// At most so many: larger teams than of 64 do their collectives otherwise.
    pub const MAX: usize = 6;

    /// Whom a member sends to in a round, from 0, and whom it gets from.
    pub fn partners(&self, member: u32, round: usize) -> (u32, u32) {
        let far = 1u32 << round;
        match self.pairs {
            true => (member ^ far, member ^ far),
            false => ((member + far) % self.size, (member + self.size - far % self.size) % self.size),
        }
    }
}

/// Names a team: the same at all its members. Different teams of one process have different ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TeamId(pub(crate) u64);

impl TeamId {
    /// The team of the whole job.
    pub const WORLD: TeamId = TeamId(0);

    /// The bit that the names of [named](TeamId::named) teams have, and no others.
    const NAMED: u64 = 1 << 63;

    /// The team of all ranks under the name that this key is of.
    pub const fn named(key: HandlerKey) -> TeamId {
        TeamId(key.number as u64 | (key.check as u64) << 32 | TeamId::NAMED)
    }

    /// The team of those ranks that shared memory reaches, as each of them finds it. A name would have its
    /// number as rarely as 64 bits tell.
    pub const NEAR: TeamId = TeamId(TeamId::NAMED);

    /// Whether it is the team of all ranks, under some name.
    pub(crate) const fn is_named(self) -> bool {
        self.0 & TeamId::NAMED != 0
    }

    /// The team of those that give this color to that collective of a team. Nobody is asked for a number: all
    /// that it is made of is the same at its members, and other teams give other numbers, as well as 64 bits
    /// can tell.
    pub(crate) fn of_split(self, number: u64, color: u32) -> TeamId {
        let mix = |seed: u64, word: u64| {
            let mut mixed = (seed ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        };
        TeamId((mix(mix(mix(0, self.0), number), u64::from(color)) & !TeamId::NAMED).max(1))
    }
}

/// The part of a collective that all members must agree on, as it stands in each of its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Which collective: the kind's number in the low byte, the root above it, and what combines elements
    /// above that, with their size where the function is the caller's.
    pub what: u64,
    /// Bytes, as the collective counts them.
    pub bytes: u64,
}

impl Signature {
    /// Of one that has ended so long ago that nobody knows what it was.
    pub(crate) const PAST: Signature = Signature { what: 0xff, bytes: 0 };
}

/// The lowest bit of what combines elements in a signature's word.
const FUNCTION_AT: u32 = u64::BITS - Function::BITS;

/// By the number of the kind in a [`Signature`]: what a collective is called, and whether it has a root.
const KINDS: [(&str, bool); 10] = [
    ("barrier", false),
    ("broadcast", true),
    ("gather", true),
    ("scatter", true),
    ("all-gather", false),
    ("all-to-all", false),
    ("all-to-all-v", false),
    ("reduce", true),
    ("all-reduce", false),
    ("split", false),
];

/// Two members of a team that called different things at the same place in the order of its collectives.
/// Which of them is wrong nobody can know but the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The two ranks.
    pub ranks: [Rank; 2],
    /// Of each, what it called: the kind's number in the low byte, the root above it.
    pub(crate) words: [u32; 2],
    /// Of each, what combines the elements of a reduction, in [`Function::BITS`].
    pub(crate) functions: [u32; 2],
    /// Of each, the bytes: of a block where it is cut into such; of an all-to-all-v, those between the two.
    pub(crate) bytes: [u64; 2],
}

impl Difference {
    /// None: only one rank to be named.
    pub(crate) fn none(rank: Rank) -> Difference {
        Difference { ranks: [rank, 0], words: [0; 2], functions: [0; 2], bytes: [0; 2] }
    }

    pub(crate) fn of(ranks: [Rank; 2], signatures: [Signature; 2]) -> Difference {
        let [one, other] = signatures;
        let word = |of: Signature| of.what as u32;
        let function = |of: Signature| (of.what >> FUNCTION_AT) as u32;
        Difference {
            ranks,
            words: [word(one), word(other)],
            functions: [function(one), function(other)],
            bytes: [one.bytes, other.bytes],
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for at in 0..2 {
            let (rank, word, bytes) = (self.ranks[at], self.words[at], self.bytes[at]);
            let function = self.functions[at];
            let (name, rooted) =
                KINDS.get((word & 0xff) as usize).copied().unwrap_or(("unknown collective", false));
            let article = if name.starts_with(['a', 'u']) { "an" } else { "a" };
            f.write_str(if at == 0 { "" } else { ", " })?;
            if u64::from(word) == Signature::PAST.what {
                write!(f, "rank {rank} had ended another one long before")?;
                continue;
            }
            write!(f, "rank {rank} began {article} {name}")?;
            if name != "barrier" {
                write!(f, " of {bytes} bytes")?;
            }
            if rooted {
                write!(f, " with root {}", word >> 8)?;
            }
            if function != Function::NONE {
                f.write_str(" ")?;
                Function::describe(function, f)?;
            }
        }
        let alike = |both: [u32; 2]| both[0] == both[1];
        let are_alike = alike(self.words) && alike(self.functions) && self.bytes[0] == self.bytes[1];
        f.write_str(if are_alike { ", of other values" } else { "" })
    }
}

impl Collective {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        KINDS[self.kind() as usize].0
    }

    const fn kind(&self) -> u64 {
        match self {
            Collective::Barrier => 0,
            Collective::Broadcast { .. } => 1,
            Collective::Gather { .. } => 2,
            Collective::Scatter { .. } => 3,
            Collective::AllGather { .. } => 4,
            Collective::AllToAll { .. } => 5,
            Collective::AllToAllV { .. } => 6,
            Collective::Reduce { .. } => 7,
            Collective::AllReduce { .. } => 8,
            Collective::Split => 9,
        }
    }

    /// The algorithm that a team of `size` takes for it: the same at all members.
    pub fn algorithm(&self, size: u32) -> Algorithm {
        match self {
            Collective::Barrier => Algorithm::Dissemination,
            Collective::Broadcast { len, .. } if *len <= EAGER_MAX => Algorithm::Binomial,
            Collective::Broadcast { .. } if size <= DIRECT_MAX => Algorithm::Direct,
            Collective::Broadcast { .. } => Algorithm::ScatterAllGather,
            Collective::Gather { .. } | Collective::Scatter { .. } => Algorithm::Direct,
            Collective::AllGather { block } if *block * u64::from(size) <= EAGER_MAX && size > 2 => {
                Algorithm::Bruck
            }
            Collective::AllGather { .. } => Algorithm::Direct,
            Collective::AllToAll { block } if *block <= BRUCK_BLOCK_MAX && size > 4 => Algorithm::Bruck,
            Collective::AllToAll { .. } | Collective::AllToAllV { .. } => Algorithm::Pairwise,
            Collective::Reduce { elements, .. } if elements.len() <= EAGER_MAX => Algorithm::Binomial,
            Collective::AllReduce { elements } if elements.len() <= EAGER_MAX => Algorithm::RecursiveDoubling,
            Collective::Reduce { .. } | Collective::AllReduce { .. } => Algorithm::ReduceScatter,
            Collective::Split => Collective::AllGather { block: SPLIT_BYTES }.algorithm(size),
        }
    }

    /// The plan of `member` of a team of `size`.
    ///
    /// # Panics
    /// When `member`, or the root, is not below `size`, or the lists of an all-to-all-v are not of that
    /// length.
    pub fn plan(&self, size: u32, member: u32) -> Plan {
        self.plan_by(size, member, TOGETHER)
    }

    /// The same for a member whose scratch memory others reach at less cost than the memories that `hidden`
    /// names, with the same messages. Much that several members get of it, or combine, is copied to scratch
    /// memory before it is given. `None`: nothing much is given out of scratch memory.
    ///
    /// Where nothing is combined, what one member gets once stays where it is: it would be copied twice.
    ///
    /// # Panics
    /// As [`Collective::plan`]; and when `hidden` names scratch memory.
    pub fn staged_plan(&self, size: u32, member: u32, hidden: impl Fn(Memory) -> bool) -> Option<Plan> {
        let (Collective::Reduce { elements, .. } | Collective::AllReduce { elements }) = self else {
            return self.plan(size, member).staged(hidden);
        };
        // Copies of one segment at a time stay in the caches. Values whose order matters are combined
        // out of no stage.
        let copies = elements.commutative && hidden(Memory::In);
        self.plan_by(size, member, if copies { 1 } else { TOGETHER }).staged(hidden)
    }

    /// `together`: how many segments of a reduction a member gives at once.
    fn plan_by(&self, size: u32, member: u32, together: usize) -> Plan {
        assert!(member < size && self.root() < size, "a member or root is not below the team's size {size}");
        let mut plan = Plan::new(self.algorithm(size), size, member);
        match self {
            Collective::Barrier => plan.dissemination(),
            Collective::Broadcast { root, len } => plan.broadcast(*root, *len),
            Collective::Gather { root, block } => plan.gather(*root, *block),
            Collective::Scatter { root, block } => plan.scatter(*root, *block),
            Collective::AllGather { block } => plan.all_gather(*block),
            Collective::AllToAll { block } => plan.all_to_all(*block),
            Collective::AllToAllV { sends, receives } => plan.all_to_all_v(sends, receives),
            Collective::Reduce { root, elements } => plan.reduce(*root, elements, together),
            Collective::AllReduce { elements } => plan.all_reduce(elements, together),
            Collective::Split => plan.all_gather(SPLIT_BYTES),
        }
        plan
    }

    /// The rounds of one that is nothing but an exchange of up to eight bytes in each. `None`: it is not, or
    /// there are too many.
    pub fn rounds(&self, size: u32) -> Option<Rounds> {
        let pairs = match self {
            Collective::Barrier => false,
            Collective::AllReduce { elements }
                if (1..=8).contains(&elements.len()) && elements.commutative =>
            {
                true
            }
            _ => return None,
        };
        let count = size.checked_sub(1)?.checked_ilog2().map_or(0, |log| log as usize + 1);
        let fits = count <= Rounds::MAX && (!pairs || size.is_power_of_two());
        fits.then_some(Rounds { size, count, pairs })
    }

    fn root(&self) -> u32 {
        match self {
            Collective::Broadcast { root, .. }
            | Collective::Gather { root, .. }
            | Collective::Scatter { root, .. }
            | Collective::Reduce { root, .. } => *root,
            _ => 0,
        }
    }

    pub(crate) fn signature(&self) -> Signature {
        let (bytes, function) = match self {
            Collective::Barrier => (0, Function::NONE),
            Collective::Broadcast { len, .. } => (*len, Function::NONE),
            Collective::Gather { block, .. } | Collective::Scatter { block, .. } => (*block, Function::NONE),
            Collective::AllGather { block } | Collective::AllToAll { block } => (*block, Function::NONE),
            // Each pair has its own length, which is compared with each message's.
            Collective::AllToAllV { .. } => (0, Function::NONE),
            Collective::Reduce { elements, .. } | Collective::AllReduce { elements } => {
                (elements.len(), elements.function.word(elements.bytes))
            }
            Collective::Split => (SPLIT_BYTES, Function::NONE),
        };
        let what = self.kind() | u64::from(self.root()) << 8 | u64::from(function) << FUNCTION_AT;
        Signature { what, bytes }
    }
}

/// Bytes that each member gives to a split: whether it has a color, the color, and the key.
pub const SPLIT_BYTES: u64 = 24;

/// The data that a member gives to a split.
pub fn split_entry(color: Option<u32>, key: i64) -> [u8; SPLIT_BYTES as usize] {
    let words = [u64::from(color.is_some()), u64::from(color.unwrap_or(0)), key as u64];
    let mut bytes = [0; SPLIT_BYTES as usize];
    bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
    bytes
}

/// The members of the old team that gave `color`, in the order of their keys, and where those are alike in
/// the old team's order. A value of a member's that no correct one gives is no color.
pub fn split_members(entries: &[u8], color: u32) -> Vec<u32> {
    let word = |entry: &[u8], at: usize| {
        u64::from_le_bytes(entry[8 * at..8 * at + 8].try_into().expect("an entry has three words"))
    };
    let mut found: Vec<(i64, u32)> = entries
        .chunks_exact(SPLIT_BYTES as usize)
        .zip(0..)
        .filter(|(entry, _)| (word(entry, 0), word(entry, 1)) == (1, u64::from(color)))
        .map(|(entry, member)| (word(entry, 2) as i64, member))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, member)| member).collect()
}

#[cfg(test)]
mod tests;
