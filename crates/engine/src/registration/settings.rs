//! How much may be pinned, and what is kept: the papers' registration strategies are settings of one engine.

use crate::Nanos;
use crate::span::BucketSize;

/// A node's settings of registration. The same at every rank of a job, or peers ask for what is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The unit of accounting.
    pub bucket: BucketSize,
    /// Buckets, at most, that one registration covers.
    pub run_max: u32,
    /// M: bytes that peers may hold, all together.
    pub peers_bytes: u64,
    /// MAXVICTIM: bytes of registrations that nobody refers to, or only this process itself.
    pub victims_bytes: u64,
    /// Whether what peers do not use of M may hold victims.
    pub victims_borrow: bool,
    /// How M is shared out among peers.
    pub quota: Quota,
    /// Which victim goes first.
    pub order: Order,
    /// The rights and registrations that outlive an operation.
    pub keep: Keep,
    /// Bytes of a put's data that go inside the message that asks for registration, at most.
    pub put_in_move_max: u32,
    /// How long a holder may take to answer what is recalled: that its memory has changed, or that others
    /// want room. One that takes longer is lost. Where nobody looks for answers for longer than an eighth of
    /// this, or 100 µs if that is more, no more has passed.
    pub recall_within: Nanos,
}

/// How the memory that peers may hold is shared out among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// The same for each other rank of the job, talked to or not (the paper's).
    Even,
    /// So many bytes guaranteed to each peer that is active, the rest for whoever asks; what idles is
    /// recalled.
    Leases {
        /// Bytes that no other peer's demand takes away.
        guaranteed: u64,
    },
}

/// In which order registrations that nobody refers to are given up. The default is what `standpipe-study
/// policies` shows to register least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The one that was registered longest ago, used since or not.
    Fifo,
    /// The one that has been idle longest (PM's). The Firehose paper's queue of victims is called first in,
    /// first out, and comes to this, as a victim that is wanted again leaves it and comes back at its end.
    Lru,
    /// SIEVE (Zhang et al., NSDI '24): a hand moves from the oldest on, and spares once what was used again
    /// since it entered or the hand passed. An entry in use when it comes by is the newest when it is idle
    /// again.
    #[default]
    Sieve,
}

/// The rights and registrations that outlive an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The right to use the peer's registration (Firehose).
    Firehoses,
    /// Nothing here; the peer is told with the next message that asks for registration (rendezvous that
    /// unpins late or never, as the peer's budget has it).
    Registrations,
    /// Nothing of the peer's: it is told at once, and unpins, whatever room it has for victims. This
    /// process's own memory stays registered, as in the Firehose paper's rendezvous with unpinning.
    Nothing,
}

impl Settings {
    /// The most bytes that may be registered at a time: M + MAXVICTIM.
    pub(crate) const fn budget(&self) -> u64 {
        self.peers_bytes.saturating_add(self.victims_bytes)
    }
}

/// The registration strategies of the Firehose paper, and PM's, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// The network reaches everything: no keys (Quadrics; shared memory).
    Hardware,
    /// Everything is registered before it is used, and never given up.
    PinEverything,
    /// Nothing is ever registered: all goes by message.
    Bounce,
    /// Each operation asks for registration of the peer's memory, and gives it up when it ends.
    RendezvousUnpin,
    /// Each operation asks; nothing is ever given up.
    RendezvousKeep,
    /// Each operation asks; the owner keeps as much as its budget allows (PM's pin-down cache).
    PinDown,
    /// Peers hold and cache each other's registrations.
    Firehose,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 7] = [
        Strategy::Hardware,
        Strategy::PinEverything,
        Strategy::Bounce,
        Strategy::RendezvousUnpin,
        Strategy::RendezvousKeep,
        Strategy::PinDown,
        Strategy::Firehose,
    ];

    /// Its name in tables and options.
    pub const fn name(self) -> &'static str {
        match self {
            Strategy::Hardware => "hardware",
            Strategy::PinEverything => "pin-everything",
            Strategy::Bounce => "bounce",
            Strategy::RendezvousUnpin => "rendezvous-unpin",
            Strategy::RendezvousKeep => "rendezvous-no-unpin",
            Strategy::PinDown => "pin-down",
            Strategy::Firehose => "firehose",
        }
    }

    /// The settings that make `firehose`'s budget into this strategy; `None` where no keys are needed.
    pub const fn settings(self, firehose: Settings) -> Option<Settings> {
        const UNLIMITED: u64 = u64::MAX / 4;
        let unlimited = Settings {
            peers_bytes: UNLIMITED,
            victims_bytes: UNLIMITED,
            quota: Quota::Leases { guaranteed: 0 },
            ..firehose
        };
        match self {
            Strategy::Hardware => None,
            Strategy::PinEverything => Some(Settings { keep: Keep::Firehoses, ..unlimited }),
            Strategy::Bounce => {
                Some(Settings { peers_bytes: 0, victims_bytes: 0, victims_borrow: false, ..firehose })
            }
            Strategy::RendezvousUnpin => {
                Some(Settings { keep: Keep::Nothing, put_in_move_max: 0, ..firehose })
            }
            Strategy::RendezvousKeep => {
                Some(Settings { keep: Keep::Registrations, put_in_move_max: 0, ..unlimited })
            }
            Strategy::PinDown => Some(Settings { keep: Keep::Registrations, put_in_move_max: 0, ..firehose }),
            Strategy::Firehose => Some(firehose),
        }
    }
}
