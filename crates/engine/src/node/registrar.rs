//! What a node keeps about registration, and the transport's part in it.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;
use slab::Slab;

use super::table::Node;
use crate::op_id::OpKey;
use crate::registration::firehose::Firehoses;
use crate::registration::table::{Action, HolderId, Table};
use crate::registration::{Key, RegId, RegisterError, Run, Settings, TableCounters};
use crate::wire::Kind;
use crate::{Deregistering, Header, Lane, Nanos, Rank, Registering, SendError, Transport};

/// What happened at the initiator's end, and what the table counts at the owner's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistrationCounters {
    /// Pieces of transfers whose peer's memory was held.
    pub hits: u64,
    /// Pieces that had to be asked for.
    pub misses: u64,
    /// Messages that asked.
    pub moves: u64,
    /// Puts whose data went with the asking.
    pub puts_in_moves: u64,
    /// Pieces that went by message because there was no room for their registration.
    pub bounced: u64,
    /// Rights given back because their owner wanted them.
    pub given_back: u64,
    /// What the table of this process's own memory counts.
    pub table: TableCounters,
}

/// Registration's part of a node.
pub(super) struct Registrar {
    pub(super) settings: Settings,
    pub(super) table: Table,
    pub(super) hoses: Firehoses,
    /// Asked of peers, and not answered.
    pub(super) moves: Slab<Asked>,
    /// Asked by peers, and waiting for registrations.
    pub(super) serves: Slab<Serve>,
    /// Who waits for a registration of this process.
    pub(super) waiting: HashMap<RegId, Vec<Waiter>>,
    /// Messages with payload that found the lane full, or are held back.
    pub(super) later: VecDeque<Later>,
    /// Moves asked for, in all: their tokens tell them apart.
    pub(super) serial: u32,
    /// Rights that are to be given back with the next message that asks the peer for others.
    pub(super) owed: BTreeMap<Rank, Vec<HolderId>>,
    /// Rights that were revoked and have not been given back, and since when.
    pub(super) revoked: Vec<(Rank, HolderId, Option<Nanos>)>,
    pub(super) counters: RegistrationCounters,
    /// For encoding.
    pub(super) payload: Vec<u8>,
}

/// A message that waits.
pub(super) struct Later {
    pub(super) peer: Rank,
    pub(super) lane: Lane,
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    /// It waits until no revoked right is out any more.
    pub(super) held: bool,
}

/// A move that this process has asked for.
pub(super) struct Asked {
    pub(super) serial: u32,
    pub(super) peer: Rank,
    pub(super) runs: Vec<Run>,
    pub(super) waiters: Vec<OpKey>,
    /// The operation whose data went with it.
    pub(super) rider: Option<OpKey>,
}

/// A move that a peer has asked for.
pub(super) struct Serve {
    pub(super) peer: Rank,
    pub(super) token: u64,
    pub(super) holders: Vec<HolderId>,
    /// Registrations that it waits for.
    pub(super) pending: usize,
    /// How its data fared.
    pub(super) status: u64,
}

/// Who waits for a registration.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    Op(OpKey),
    Serve(usize),
}

impl Registrar {
    pub(super) fn new(settings: Settings, ranks: u32) -> Registrar {
        let share = match settings.quota {
            crate::registration::Quota::Even => {
                settings.peers_bytes / u64::from(ranks.saturating_sub(1).max(1))
            }
            crate::registration::Quota::Leases { .. } => settings.peers_bytes,
        };
        Registrar {
            table: Table::new(settings, ranks),
            hoses: Firehoses::new(settings.order, settings.bucket.bytes(), share),
            settings,
            moves: Slab::new(),
            serves: Slab::new(),
            serial: 0,
            waiting: HashMap::new(),
            later: VecDeque::new(),
            owed: BTreeMap::new(),
            revoked: Vec::new(),
            counters: RegistrationCounters::default(),
            payload: Vec::new(),
        }
    }

    /// The buckets that hold `len` bytes from `offset` on.
    pub(super) fn buckets(&self, offset: u64, len: u64) -> Run {
        let (first, last) =
            (self.settings.bucket.index(offset), self.settings.bucket.index(offset + len.max(1) - 1));
        Run { first, count: u32::try_from(last - first + 1).unwrap_or(u32::MAX) }
    }
}

impl<T: Transport> Node<T> {
    /// A node that reaches its peers' private memory by registering it, as `settings` say. Otherwise as [`Node::new`].
    pub fn with_registration(
        rank: Rank,
        size: u32,
        handlers: u16,
        transport: T,
        settings: Settings,
    ) -> Node<T> {
        let mut node = Node::new(rank, size, handlers, transport);
        node.registrar = Some(Box::new(Registrar::new(settings, size)));
        node
    }

    /// What happened about registration; all zero where there is none.
    pub fn registration_counters(&self) -> RegistrationCounters {
        self.registrar.as_ref().map_or_else(RegistrationCounters::default, |registrar| RegistrationCounters {
            table: registrar.table.counters(),
            ..registrar.counters
        })
    }

    /// Takes note that `len` bytes of this process's space from `offset` on are not the memory that they were: freed,
    /// or mapped anew. No transfer that starts from now on, here or at any peer that hears of the new memory from here,
    /// uses a registration from before: until all peers that hold one have given it back, nothing is sent.
    pub fn invalidate(&mut self, offset: u64, len: u64) {
        let Some(registrar) = &mut self.registrar else { return };
        let changed = registrar.buckets(offset, len);
        registrar.table.invalidate(changed);
        self.run_actions();
    }

    /// Looks at all that is kept about registration anew.
    ///
    /// # Errors
    /// What does not add up.
    pub fn audit(&self) -> Result<(), String> {
        let Some(registrar) = &self.registrar else { return Ok(()) };
        registrar.table.audit()?;
        registrar.hoses.audit()
    }

    /// Whether messages are held back: some peer may still use what is no longer this process's memory.
    pub(super) fn holds_back(&self) -> bool {
        self.registrar.as_ref().is_some_and(|registrar| !registrar.revoked.is_empty())
    }

    /// Does what the registration table wants done, and goes on with the transfers that waited for it, until neither
    /// leaves anything to the other. Called from within, it leaves that to the call under way.
    pub(super) fn run_actions(&mut self) {
        self.actions_due = true;
        if std::mem::replace(&mut self.acting, true) {
            return;
        }
        while std::mem::take(&mut self.actions_due) {
            while let Some(action) =
                self.registrar.as_mut().and_then(|registrar| registrar.table.next_action())
            {
                self.act(action);
            }
            while let Some(key) = self.ready.pop_front() {
                self.advance(key);
            }
        }
        self.acting = false;
    }

    fn act(&mut self, action: Action) {
        let Some(registrar) = &mut self.registrar else { return };
        match action {
            Action::Register(reg, run) => {
                let shift = registrar.settings.bucket.bytes().trailing_zeros();
                match self.transport.register(reg, run.first << shift, u64::from(run.count) << shift) {
                    Registering::Done(key) => registrar.table.registered(reg, Ok(key)),
                    Registering::Failed(error) => registrar.table.registered(reg, Err(error)),
                    Registering::Pending => {}
                }
            }
            Action::Deregister(reg) => {
                if self.transport.deregister(reg) == Deregistering::Done {
                    registrar.table.deregistered(reg);
                }
            }
            Action::Settled(reg) => self.on_settled(reg),
            Action::Revoke(peer, holder) => {
                registrar.revoked.push((peer, holder, None));
                let args = [u64::from(holder.0), 0, 0, 0];
                self.post(peer, Lane::Request, Header { args, ..Header::new(Kind::Revoke) }, &[]);
            }
            Action::Recall(peer, bytes) => {
                let args = [bytes, 0, 0, 0];
                self.post(peer, Lane::Request, Header { args, ..Header::new(Kind::Recall) }, &[]);
            }
        }
    }

    pub(super) fn on_registered(&mut self, reg: RegId, result: Result<Key, RegisterError>) {
        let Some(registrar) = &mut self.registrar else { return };
        registrar.table.registered(reg, result);
        self.run_actions();
    }

    pub(super) fn on_deregistered(&mut self, reg: RegId) {
        let Some(registrar) = &mut self.registrar else { return };
        registrar.table.deregistered(reg);
        self.run_actions();
    }

    /// A registration is ready, or has failed: whoever waits for it goes on.
    fn on_settled(&mut self, reg: RegId) {
        let Some(registrar) = &mut self.registrar else { return };
        for waiter in registrar.waiting.remove(&reg).unwrap_or_default() {
            match waiter {
                Waiter::Op(key) => self.ready.push_back(key),
                Waiter::Serve(serve) => self.on_served(serve),
            }
        }
    }

    /// Sends a message of registration's own now, or as soon as the lane has room; after those that wait already.
    pub(super) fn post(&mut self, peer: Rank, lane: Lane, header: Header, payload: &[u8]) {
        let Some(registrar) = &mut self.registrar else { return };
        if self.lost.contains(&peer) {
            return;
        }
        let waits = registrar.later.iter().any(|later| (later.peer, later.lane) == (peer, lane));
        let sent = if waits || !self.outbox.is_empty() {
            Err(SendError::Busy)
        } else {
            self.transport.send(peer, lane, &header.encode(), payload)
        };
        if sent == Err(SendError::Busy) {
            registrar.later.push_back(Later { peer, lane, header, payload: payload.to_vec(), held: false });
        }
    }

    /// Keeps a message until nothing is held back any more.
    pub(super) fn hold(&mut self, peer: Rank, lane: Lane, header: Header, payload: &[u8]) {
        let Some(registrar) = &mut self.registrar else { return };
        registrar.later.push_back(Later { peer, lane, header, payload: payload.to_vec(), held: true });
    }

    /// Sends what waits and may go. Returns whether anything moved.
    pub(super) fn send_later(&mut self) -> bool {
        let holds = self.holds_back();
        let Some(registrar) = &mut self.registrar else { return false };
        let before = registrar.later.len();
        let (transport, lost) = (&mut self.transport, &self.lost);
        let mut full = Vec::new();
        registrar.later.retain(|later| {
            let lane = (later.peer, later.lane);
            if lost.contains(&later.peer) {
                return false;
            }
            if (later.held && holds) || full.contains(&lane) {
                return true;
            }
            let busy = transport.send(later.peer, later.lane, &later.header.encode(), &later.payload)
                == Err(SendError::Busy);
            if busy {
                full.push(lane);
            }
            busy
        });
        registrar.later.len() < before
    }
}
