//! The path of an operation: KVIA's idea, that each takes the way that suits it.
//!
//! [`choose`] decides, and nothing else does. It is a pure function of plain [`Facts`], so that it can be
//! tested over all of its inputs, and printed. Two bypasses skip the question, as they know the answer: a put
//! or get in a mapped heap, and a *hit* by the firehose that was used last. Both assert, where assertions are
//! on, that this is the answer.

use crate::Direction;
pub use crate::MemId;

/// How the bytes of a transfer travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mechanism {
    /// A load or store on the peer's memory, mapped here: no system call.
    Mapped,
    /// Cross-memory attach: one system call for a whole list, one copy.
    Cma,
    /// Chunks inside messages; the peer's progress copies them.
    Message,
    /// One-sided, by the key of memory that its owner has registered.
    Registered,
}

impl Mechanism {
    /// Every mechanism, in the order of [`Mechanism::index`].
    pub const ALL: [Mechanism; 4] =
        [Mechanism::Mapped, Mechanism::Cma, Mechanism::Message, Mechanism::Registered];

    /// Its name in tables and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Mapped => "mapped",
            Mechanism::Cma => "cma",
            Mechanism::Message => "message",
            Mechanism::Registered => "registered",
        }
    }

    /// Its place in [`Mechanism::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Why an operation took the path that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathReason {
    /// The memory lies in a heap that is mapped here.
    HeapMapped,
    /// The memory is private to the peer, and the kernel lets us reach it.
    PrivateReachable,
    /// The kernel forbids cross-memory attach to this peer (ptrace rights, Yama, user ids).
    PtraceDenied,
    /// A seccomp filter or an old kernel refuses the cross-memory system calls here.
    CallForbidden,
    /// The peer's process number means another process here (pid namespaces).
    PidMismatch,
    /// The configuration asks for messages.
    Configured,
    /// The transport has no one-sided access at all.
    NotOffered,
    /// The memory cannot be registered: there is no room in a budget, or the system refuses.
    NoRoom,
    /// The peer has granted the memory, and looks at each access itself.
    Granted,
    /// The peer is reached over a network, and the memory is none that is registered there; or so little of
    /// its heap is moved that a message is sooner there.
    Network,
}

impl PathReason {
    /// Every reason, in the order of [`PathReason::index`].
    pub const ALL: [PathReason; 10] = [
        PathReason::HeapMapped,
        PathReason::PrivateReachable,
        PathReason::PtraceDenied,
        PathReason::CallForbidden,
        PathReason::PidMismatch,
        PathReason::Configured,
        PathReason::NotOffered,
        PathReason::NoRoom,
        PathReason::Granted,
        PathReason::Network,
    ];

    /// Its name in tables and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            PathReason::HeapMapped => "heap-mapped",
            PathReason::PrivateReachable => "private-reachable",
            PathReason::PtraceDenied => "ptrace-denied",
            PathReason::CallForbidden => "call-forbidden",
            PathReason::PidMismatch => "pid-mismatch",
            PathReason::Configured => "configured",
            PathReason::NotOffered => "not-offered",
            PathReason::NoRoom => "no-room",
            PathReason::Granted => "granted",
            PathReason::Network => "network",
        }
    }

    /// Its place in [`PathReason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl std::fmt::Display for PathReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The way that a transfer's bytes take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Path {
    /// Loads and stores on memory that is mapped here.
    Mapped,
    /// One system call, by which the kernel copies.
    Attached,
    /// The transport copies one-sided, by what it knows of the peer: the key of its whole heap, say.
    Direct,
    /// One-sided, by keys that this process holds: a *hit*.
    Registered,
    /// The owner is asked for keys first: a *miss*. The bytes may ride in the question.
    Asked {
        /// Whether they do.
        rides: bool,
    },
    /// Another operation has asked for the same keys: this one waits for the answer.
    Awaited,
    /// The bytes and their signal are one message.
    Signalled,
    /// By messages, through a bounce buffer in the owner's heap, to which copies are one-sided.
    Staged,
    /// In chunks inside messages.
    Chunks,
}

impl Path {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Path::Mapped => "mapped",
            Path::Attached => "attached",
            Path::Direct => "direct",
            Path::Registered => "registered",
            Path::Asked { rides: false } => "asked",
            Path::Asked { rides: true } => "asked, riding",
            Path::Awaited => "awaited",
            Path::Signalled => "signalled",
            Path::Staged => "staged",
            Path::Chunks => "chunks",
        }
    }

    /// As what its bytes count.
    pub const fn mechanism(self) -> Mechanism {
        match self {
            Path::Mapped => Mechanism::Mapped,
            Path::Attached => Mechanism::Cma,
            Path::Direct | Path::Registered | Path::Asked { rides: false } | Path::Awaited => {
                Mechanism::Registered
            }
            Path::Asked { rides: true } | Path::Signalled | Path::Staged | Path::Chunks => Mechanism::Message,
        }
    }
}

/// The task of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wanted {
    /// To put bytes.
    Put,
    /// To put bytes, and then to change a word of the peer's heap.
    PutSignal {
        /// One message takes all of it to this peer, and that is better than two ways there and back.
        one_message: bool,
    },
    /// To get bytes.
    Get,
}

impl From<Direction> for Wanted {
    #[inline(always)]
    fn from(direction: Direction) -> Wanted {
        match direction {
            Direction::Put => Wanted::Put,
            Direction::Get => Wanted::Get,
        }
    }
}

/// How the peer's memory is reached one-sided, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// The peer is near, and the memory is mapped here.
    Mapped,
    /// The peer is near, and the memory is its own: whether the kernel lets us attach it, and why not.
    Attach(Result<(), PathReason>),
    /// The transport reaches it by itself.
    Direct,
    /// The peer is far, and its memory is reached by keys of registered parts.
    Keys(Keys),
    /// It is not, for this reason.
    No(PathReason),
}

impl Access {
    /// Of memory of a near peer, which can be attached or not where it is private or granted.
    #[inline(always)]
    pub const fn near(memory: MemId, attach: Result<(), PathReason>) -> Access {
        match memory {
            MemId::Heap | MemId::Control => Access::Mapped,
            MemId::Space | MemId::Grant(_) => Access::Attach(attach),
        }
    }
}

/// The keys that a transfer's next piece needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Keys {
    /// They are held; or nobody has looked, and each piece is looked at when its turn comes.
    Held,
    /// They have been asked for, and the answer has not come.
    Pending,
    /// There is no room for them, in the owner's budget or in ours.
    Refused,
    /// They are not held.
    Absent {
        /// Whether it pays to ask for them where so little is to be moved: see `registration::miss_policy`.
        pays: bool,
    },
}

/// The facts that decide the path of a transfer, or of the next piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The task.
    pub wanted: Wanted,
    /// Bytes to be moved.
    pub bytes: u64,
    /// They are one piece, and all of the transfer.
    pub alone: bool,
    /// The peer's memory.
    pub memory: MemId,
    /// How it is reached.
    pub access: Access,
    /// From which sizes on something pays.
    pub limits: Limits,
}

/// Sizes at which one path becomes cheaper than another, and what there is besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Bytes, at most, that had better go by message than be waited for, where their keys are not held.
    pub small: u64,
    /// Bytes of one piece from which it pays that the transport reaches a heap by itself. Where the peer's
    /// processor copies in any case, it answers a message sooner.
    pub direct_min: u64,
    /// Bytes of private memory from which bounce buffers pay.
    pub staged_min: u64,
    /// Whether the peer's bounce buffers can be reached one-sided.
    pub stages: bool,
}

/// A path, and why. There is no reason to give for a path that the peer's keys allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// The path.
    pub path: Path,
    /// Why it is not, or need not be, a better one.
    pub why: Option<PathReason>,
}

impl Choice {
    const fn new(path: Path, why: PathReason) -> Choice {
        Choice { path, why: Some(why) }
    }

    const fn by_keys(path: Path) -> Choice {
        Choice { path, why: None }
    }
}

/// The path of a transfer, or of the next piece of one.
#[inline(always)]
pub const fn choose(facts: &Facts) -> Choice {
    let Facts { wanted, bytes, alone, memory, access, limits } = *facts;
    let is_small = bytes <= limits.small;
    let why = match access {
        Access::Mapped => return Choice::new(Path::Mapped, PathReason::HeapMapped),
        Access::Attach(Ok(())) => return Choice::new(Path::Attached, PathReason::PrivateReachable),
        _ if matches!(wanted, Wanted::PutSignal { one_message: true }) => {
            return Choice::new(Path::Signalled, PathReason::Network);
        }
        Access::Direct if alone && bytes < limits.direct_min => PathReason::Network,
        Access::Direct => return Choice::by_keys(Path::Direct),
        Access::Keys(Keys::Held) => return Choice::by_keys(Path::Registered),
        Access::Keys(Keys::Pending) => return Choice::by_keys(Path::Awaited),
        Access::Keys(Keys::Absent { pays }) if pays || !is_small => {
            let rides = is_small && alone && !matches!(wanted, Wanted::Get);
            return Choice::by_keys(Path::Asked { rides });
        }
        Access::Keys(Keys::Absent { .. } | Keys::Refused) => PathReason::NoRoom,
        Access::Attach(Err(why)) | Access::No(why) => why,
    };
    Choice::new(by_message(memory, bytes, limits), why)
}

/// The path by messages.
#[inline]
pub const fn by_message(memory: MemId, bytes: u64, limits: Limits) -> Path {
    match memory {
        MemId::Space | MemId::Grant(_) if limits.stages && bytes >= limits.staged_min => Path::Staged,
        _ => Path::Chunks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { small: 4_000, direct_min: 9, staged_min: 64_000, stages: true };

    fn all_facts() -> Vec<Facts> {
        let wanted = [false, true].map(|one_message| Wanted::PutSignal { one_message });
        let wanted = [Wanted::Put, Wanted::Get].into_iter().chain(wanted);
        let keys = [false, true].map(|pays| Keys::Absent { pays });
        let keys = [Keys::Held, Keys::Pending, Keys::Refused].into_iter().chain(keys);
        let errors = PathReason::ALL.into_iter();
        let mut accesses = vec![Access::Mapped, Access::Attach(Ok(())), Access::Direct];
        accesses.extend(errors.clone().map(|why| Access::Attach(Err(why))));
        accesses.extend(errors.map(Access::No));
        accesses.extend(keys.map(Access::Keys));
        let limits = [false, true].map(|stages| Limits { stages, ..LIMITS });
        let mut all = Vec::new();
        for wanted in wanted {
            for bytes in [0, 1, 8, 9, 3_999, 4_000, 4_001, 63_999, 64_000, 64_001, u64::MAX] {
                for alone in [false, true] {
                    for memory in [MemId::Heap, MemId::Space] {
                        for access in &accesses {
                            for limits in limits {
                                let access = *access;
                                all.push(Facts { wanted, bytes, alone, memory, access, limits });
                            }
                        }
                    }
                }
            }
        }
        all
    }

    /// What a line says of, when it applies, and the path then.
    type Line = (&'static str, fn(&Facts) -> bool, Path);

    /// The rules again, as a table that is read from the top: the first line that applies says the path. Each
    /// line must be needed.
    const TABLE: [Line; 13] = [
        ("a mapped heap", |f| f.access == Access::Mapped, Path::Mapped),
        ("what can be attached", |f| f.access == Access::Attach(Ok(())), Path::Attached),
        ("short, with its signal", |f| f.wanted == Wanted::PutSignal { one_message: true }, Path::Signalled),
        (
            "too little for the transport",
            |f| f.access == Access::Direct && f.alone && f.bytes < f.limits.direct_min,
            Path::Chunks,
        ),
        ("what the transport reaches", |f| f.access == Access::Direct, Path::Direct),
        ("held keys", |f| f.access == Access::Keys(Keys::Held), Path::Registered),
        ("keys that are asked for", |f| f.access == Access::Keys(Keys::Pending), Path::Awaited),
        (
            "a long piece, no keys",
            |f| matches!(f.access, Access::Keys(Keys::Absent { .. })) && f.bytes > f.limits.small,
            Path::Asked { rides: false },
        ),
        (
            "a short get or one of several, worth asking for",
            |f| {
                f.access == Access::Keys(Keys::Absent { pays: true }) && (f.wanted == Wanted::Get || !f.alone)
            },
            Path::Asked { rides: false },
        ),
        (
            "a short put, worth asking for",
            |f| f.access == Access::Keys(Keys::Absent { pays: true }),
            Path::Asked { rides: true },
        ),
        ("by message, to a heap", |f| f.memory == MemId::Heap, Path::Chunks),
        ("by message, long", |f| f.bytes >= f.limits.staged_min && f.limits.stages, Path::Staged),
        ("by message", |_| true, Path::Chunks),
    ];

    #[test]
    fn the_path_is_what_the_table_says_for_all_facts() {
        let mut used = [0; TABLE.len()];
        for facts in all_facts() {
            let line = TABLE.iter().position(|(_, applies, _)| applies(&facts)).expect("the last applies");
            used[line] += 1;
            assert_eq!(choose(&facts).path, TABLE[line].2, "{}: {facts:?}", TABLE[line].0);
        }
        assert!(used.iter().all(|count| *count > 0), "each line is needed: {used:?}");
    }

    #[test]
    fn what_goes_by_message_says_why() {
        for facts in all_facts() {
            let Choice { path, why } = choose(&facts);
            match path {
                Path::Mapped => assert_eq!(why, Some(PathReason::HeapMapped)),
                Path::Attached => assert_eq!(why, Some(PathReason::PrivateReachable)),
                Path::Signalled => assert_eq!(why, Some(PathReason::Network)),
                Path::Staged | Path::Chunks => match facts.access {
                    Access::Attach(Err(given)) | Access::No(given) => assert_eq!(why, Some(given)),
                    Access::Direct => assert_eq!(why, Some(PathReason::Network)),
                    _ => assert_eq!(why, Some(PathReason::NoRoom)),
                },
                Path::Direct | Path::Registered | Path::Asked { .. } | Path::Awaited => assert_eq!(why, None),
            }
        }
    }

    #[test]
    fn indices_are_places_in_the_lists() {
        assert!(Mechanism::ALL.iter().enumerate().all(|(i, m)| m.index() == i));
        assert!(PathReason::ALL.iter().enumerate().all(|(i, w)| w.index() == i));
    }
}
