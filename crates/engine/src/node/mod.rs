//! The engine's node: the state of every operation that one process has under way, and its answers to its
//! peers.
//!
//! Calls come in, [`Transport`] verbs go out. The caller drives: after starting operations it calls
//! [`Node::poll`] until that returns [`Polled::Idle`], runs the handlers that [`Polled::Deliver`] names, and
//! asks [`Node::outcome`] what became of its operations. Calling again pays after a message arrived (the
//! transport knows when). While operations with deadlines are under way it also pays after [`Node::expire`].
//! Call that when the earliest deadline passes, and when [`Node::wants_time`] says so. A peer that was lost
//! may be replaced by another process of its rank: [`Node::take_replaced`] tells of that.
//!
//! [`Node`] stands here, what callers ask of it in `calls`. It has these parts: operations under way
//! (`operations`), messages and those that wait to be sent (`mail`), the job's `barrier`, and collectives
//! (`teams`). `transfer` moves bytes, and `registration` asks peers for keys and gives them. No part holds
//! another: each call of one is lent what is in `core`, the mail and the operations. `poll`, `deadlines` and
//! `peer_loss` bring what happens to the parts, and `work` hands on what follows.
//!
//! [`Transport`]: crate::Transport

mod barrier;
mod calls;
mod core;
mod deadlines;
#[cfg(test)]
mod lanes;
mod lent;
mod mail;
mod operations;
mod peer_loss;
mod poll;
mod registration;
mod teams;
mod transfer;
mod work;

pub use crate::collective::TeamId;
pub use crate::registration::{PinId, Pinning};
pub use calls::pins::PinError;
pub use mail::active_message::{AmBody, AmSend, Delivery, Polled, Refused};
pub use operations::op::{KEEPER as BARRIER_KEEPER, NO_PEER, Outcome, PEERS_WITH_FAILURES_MAX};
pub use operations::settling::Started;
pub use registration::state::RegistrationCounters;
pub use teams::buffers::{Kept, Memories};
pub use teams::calls::Start;
pub use teams::roster::NAMED_TEAMS_MAX;
pub use teams::small::state::SmallPolled;
pub use transfer::bounce::STAGED_CHUNKS_MIN;

use std::collections::VecDeque;

use self::barrier::Barrier;
use self::core::Core;
use self::lent::Lent;
use self::mail::Mail;
use self::operations::Operations;
use self::registration::state::Registration;
use self::teams::state::Teams;
use self::transfer::bounce_pool::BouncePool;
use self::transfer::fast_table::FastTable;
use self::transfer::state::{KeyedTransfer, MessageTransfer, Part};
use crate::exposure::Ranges;
use crate::grant_counters::GrantTallies;
use crate::grants::Grants;
use crate::op_id::OpKey;
use crate::{Counters, Rank, Transport};

/// One process's operations over one transport. Not for sharing: one thread at a time.
///
/// | calls | what they do |
/// |---|---|
/// | [`transfer`](Node::transfer), [`atomic`](Node::atomic), [`barrier`](Node::barrier), [`collective`](Node::collective) and others with a deadline | start an operation, and return its name |
/// | [`send_am`](Node::send_am) | sends at once, or is busy |
/// | [`poll`](Node::poll) | makes progress, one event at a call; after [`Polled::Deliver`] the handler runs before the next |
/// | [`outcome`](Node::outcome), [`detach`](Node::detach), [`watch`](Node::watch), [`cancel`](Node::cancel) | end with an operation, each by its name |
/// | [`expire`](Node::expire) | brings the time: when polls find nothing, at the time that the last call returned, and when [`wants_time`](Node::wants_time) says so |
/// | [`lose`](Node::lose), [`tell_gone`](Node::tell_gone) | bring the loss of a peer, which the transport's owner has seen |
/// | [`invalidate`](Node::invalidate), [`expose`](Node::expose), [`withdraw`](Node::withdraw) | bring what became of this process's memory |
/// | [`grant`](Node::grant), [`repoint`](Node::repoint), [`revoke`](Node::revoke) | let peers reach memory by name |
///
/// Between any two of them nothing is left to be done but what waits for the transport, a peer or time.
pub struct Node<T> {
    core: Core<T>,
    mail: Mail,
    /// Operations under way, but for fast transfers.
    ops: Operations,
    fast: FastTable,
    barrier: Barrier,
    teams: Teams,
    bounce_pool: BouncePool,
    /// The registered memory, where the transport needs that.
    registration: Option<Box<Registration>>,
    shown: Shown,
    /// Transfers that can go on.
    ready: VecDeque<OpKey>,
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
    /// Polls in turn that brought news.
    busy_polls: u32,
}

/// The private memory that peers may reach.
#[derive(Default)]
struct Shown {
    /// By its addresses, by messages and keys; `None`: all of it.
    exposed: Option<Box<Ranges>>,
    /// By name.
    grants: Grants,
    /// Peers that were refused, or waited for.
    tallies: GrantTallies,
}

impl<T: Transport> Node<T> {
    /// A node of rank `rank` in a job of `size`, with `handlers` Active-Message handlers, whose numbers begin
    /// with 0: for those who know no names. Others are [added](Node::add_handler). Peers may have
    /// numbers from `size` on: they are no part of the job, and neither meet at its barrier nor break it.
    ///
    /// # Panics
    /// When `rank` is not below `size`.
    pub fn new(rank: Rank, size: u32, handlers: u32, transport: T) -> Node<T> {
        Node {
            core: Core::new(rank, size, transport),
            mail: Mail::new(handlers),
            ops: Operations::default(),
            fast: FastTable::default(),
            barrier: Barrier::default(),
            teams: Teams::new(size),
            bounce_pool: BouncePool::default(),
            registration: None,
            shown: Shown::default(),
            ready: VecDeque::new(),
            actions_due: false,
            acting: false,
            spare_keyed: Vec::new(),
            spare_parts: Vec::new(),
            spare_transfers: Vec::new(),
            busy_polls: 0,
        }
    }

    /// The barrier, and what a call of it is lent.
    #[inline(always)]
    fn barrier_lent(&mut self) -> (&mut Barrier, Lent<'_, T>) {
        (&mut self.barrier, Lent { core: &mut self.core, mail: &mut self.mail, ops: &mut self.ops })
    }

    /// The teams, and what a call of them is lent.
    #[inline(always)]
    fn teams_lent(&mut self) -> (&mut Teams, &Barrier, Lent<'_, T>) {
        let lent = Lent { core: &mut self.core, mail: &mut self.mail, ops: &mut self.ops };
        (&mut self.teams, &self.barrier, lent)
    }

    /// The transport, for what only its owner knows how to ask of it.
    #[inline]
    pub fn transport(&mut self) -> &mut T {
        &mut self.core.transport
    }

    /// Counts of this node so far, except for operations that never entered it.
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }
}
