//! The engine's node: the state of every operation that one process has under way, and its answers to its
//! peers.
//!
//! Calls come in, [`Transport`] verbs go out. The caller drives: after starting operations it calls
//! [`Node::poll`] until that returns [`Polled::Idle`], runs the handlers that [`Polled::Deliver`] names, and
//! asks [`Node::outcome`] what became of its operations. Calling again pays after a message arrived (the
//! transport knows when) and, while operations with deadlines are under way, after [`Node::expire`]; that is
//! called when the earliest deadline passes, and when [`Node::wants_time`] says so. A peer that was lost may
//! be replaced by another process of its rank: [`Node::take_replaced`] tells of that.
//!
//! [`Node`] stands here, an operation in `op`, the table of them in `op_table`; `poll`, `deadlines` and
//! `peer_loss` say what happens to them, and `settling` what those that were given up may still write. The
//! rest is by what it does: `transfer` moves bytes, `registration` asks peers for keys and gives them,
//! `collective` runs plans, `barrier` is the job's, and `messages` holds Active Messages and what waits to be
//! sent. In each folder `state` is what the node keeps, and decides nothing.
//!
//! [`Transport`]: crate::Transport

mod barrier;
mod collective;
mod core;
mod deadlines;
mod messages;
mod op;
mod op_table;
mod peer_loss;
mod poll;
mod registration;
mod settling;
mod transfer;

pub use crate::collective::TeamId;
pub use crate::registration::{PinId, Pinning};
pub use barrier::state::KEEPER as BARRIER_KEEPER;
pub use collective::buffers::{Kept, Memories};
pub use collective::runner::Start;
pub use collective::small::state::SmallPolled;
pub use collective::teams::NAMED_TEAMS_MAX;
pub use messages::active_message::{AmBody, AmSend, Delivery, Polled, Refused};
pub use op::{NO_PEER, Outcome, PEERS_WITH_FAILURES_MAX};
pub use registration::pins::PinError;
pub use registration::state::RegistrationCounters;
pub use settling::Started;
pub use transfer::bounce::STAGED_CHUNKS_MIN;

use std::collections::VecDeque;

use hashbrown::HashSet;
use slotmap::SlotMap;

use self::barrier::state::{Barrier, UnsentNotices};
use self::collective::small::state::SmallCollective;
use self::collective::state::Teams;
use self::core::Core;
use self::messages::wait_queues::WaitQueues;
use self::op::{Ended, Op};
use self::registration::state::Registration;
use self::settling::Clients;
use self::transfer::bounce_pool::BouncePool;
use self::transfer::fast_table::FastTable;
use self::transfer::state::{HeldStart, KeyedTransfer, MessageTransfer, Part};
use crate::exposure::Ranges;
use crate::handlers::{HandlerKey, HandlerTable};
use crate::op_id::OpKey;
use crate::wire::Message;
use crate::{Counters, Lane, Nanos, Rank, Transport};

/// One process's operations over one transport. Not for sharing: one thread at a time.
pub struct Node<T> {
    core: Core<T>,
    handlers: HandlerTable,
    /// Operations under way, but for fast transfers.
    ops: SlotMap<OpKey, Op>,
    /// None of them has a deadline before this: so that whoever goes to sleep need not look at all.
    none_due_before: Nanos,
    fast: FastTable,
    clients: Clients,
    /// By peer: transfers that found the lane full and go on at a later poll, in turn.
    stalled: WaitQueues<Rank, OpKey>,
    /// Messages without payload that found the lane full.
    outbox: VecDeque<(Rank, Lane, Message)>,
    unsent_notices: UnsentNotices,
    barrier: Barrier,
    teams: Teams,
    /// A collective by rounds, for whoever polls for it just now.
    small: SmallCollective,
    bounce_pool: BouncePool,
    ended: Ended,
    /// What is registered, where the transport needs that.
    registration: Option<Box<Registration>>,
    /// What of its private memory peers may reach by messages and keys; `None`: everything.
    exposed: Option<Box<Ranges>>,
    /// Transfers that can go on.
    ready: VecDeque<OpKey>,
    /// Puts that wait until nothing is held back any more.
    held: Vec<OpKey>,
    /// Puts and atomics without a key likewise, and this rank's arrival at the barrier.
    held_starts: Vec<(OpKey, HeldStart)>,
    held_arrival: bool,
    /// The registration table may want something done.
    actions_due: bool,
    /// Somebody is at it.
    acting: bool,
    /// Transfers by keys and parts of them that are over, for those to come: as many as were ever under way
    /// at once, but those with long lists.
    #[expect(clippy::vec_box, reason = "the boxes themselves are used again")]
    spare_keyed: Vec<Box<KeyedTransfer>>,
    #[expect(clippy::vec_box, reason = "the boxes themselves are used again")]
    spare_parts: Vec<Box<Part>>,
    #[expect(clippy::vec_box, reason = "the boxes themselves are used again")]
    spare_transfers: Vec<Box<MessageTransfer>>,
    /// For lanes that are found full while others are tried.
    full: HashSet<(Rank, Lane)>,
    /// Polls in turn that brought news.
    busy_polls: u32,
}

impl<T: Transport> Node<T> {
    /// A node of rank `rank` in a job of `size`, with `handlers` Active-Message handlers, whose numbers begin
    /// with 0: for those who know no names. Others are [added](Node::add_handler). Peers may have
    /// numbers from `size` on: they are no part of the job, and neither meet at its barrier nor break it.
    ///
    /// # Panics
    /// When `rank` is not below `size`.
    pub fn new(rank: Rank, size: u32, handlers: u32, transport: T) -> Node<T> {
        let mut table = HandlerTable::default();
        for number in 0..handlers {
            let added = table.add(HandlerKey { number, check: 0 }, u64::from(number));
            added.expect("numbers that are all different");
        }
        Node {
            core: Core::new(rank, size, transport),
            handlers: table,
            ops: SlotMap::with_key(),
            fast: FastTable::default(),
            none_due_before: Nanos::MAX,
            clients: Clients::default(),
            stalled: WaitQueues::default(),
            outbox: VecDeque::new(),
            unsent_notices: UnsentNotices::default(),
            barrier: Barrier::default(),
            teams: Teams::new(size),
            small: SmallCollective::default(),
            bounce_pool: BouncePool::default(),
            ended: Ended::default(),
            registration: None,
            exposed: None,
            ready: VecDeque::new(),
            held: Vec::new(),
            held_starts: Vec::new(),
            held_arrival: false,
            actions_due: false,
            acting: false,
            spare_keyed: Vec::new(),
            spare_parts: Vec::new(),
            spare_transfers: Vec::new(),
            full: HashSet::new(),
            busy_polls: 0,
        }
    }

    /// As it is, for a process that has the rank of one that was lost: there is no barrier for it.
    #[must_use]
    pub fn as_replacement(mut self) -> Node<T> {
        self.barrier.lost.insert(self.core.rank);
        self.break_teams_of(self.core.rank);
        self
    }

    /// The transport, for what only its owner knows how to ask of it.
    #[inline]
    pub fn transport(&mut self) -> &mut T {
        &mut self.core.transport
    }

    /// What this node has done so far, except for operations that never entered it.
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }
}
