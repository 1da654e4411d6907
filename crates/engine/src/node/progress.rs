//! Progress: what a poll, a deadline or a loss does to the operations under way.

use super::am::Polled;
use super::registration::state::Registrar;
use super::table::{Lost, Node, OpKind};
use crate::op_id::{OpId, OpKey};
use crate::wire::{Am, AmForm, AmHead, Message};
use crate::{Copied, Event, Inbox, Lane, Nanos, OpError, Rank, Transport};

/// Polls, at most, that may bring news in turn before what could not be sent is tried again: otherwise that is when
/// nothing has come.
const BUSY_POLLS_MAX: u32 = 64;

impl<T: Transport> Node<T> {
    /// Makes progress; see [`Polled`]. `inbox` is overwritten by what arrives.
    #[inline(always)]
    pub fn poll(&mut self, inbox: &mut Inbox) -> Polled {
        let retried = self.busy_polls >= BUSY_POLLS_MAX && self.go_on();
        self.busy_polls += 1;
        let event = match self.transport.poll_copied() {
            Copied::Done(op) => {
                self.on_copied(op);
                return Polled::Progressed;
            }
            Copied::Nothing => None,
            Copied::Unknown => self.transport.poll(inbox),
        };
        match event {
            Some(Event::Message { peer, lane }) => self.on_message(peer, lane, inbox),
            Some(Event::Completed { op, result }) => {
                self.on_completed(op, result);
                Polled::Progressed
            }
            Some(event) => self.on_rare(event),
            None if self.go_on() | retried => Polled::Progressed,
            None => self.next_local().map_or(Polled::Idle, Polled::Local),
        }
    }

    /// Takes an event that is neither a message nor the end of an operation: apart, so that these are found by a comparison.
    #[cold]
    fn on_rare(&mut self, event: Event) -> Polled {
        match event {
            Event::Message { .. } | Event::Completed { .. } => {}
            Event::Garbled { peer } => self.on_garbled(peer),
            Event::Returned { peer, incarnation } => self.on_returned(peer, incarnation),
            Event::Registered { reg, result } => self.on_registered(reg, result),
            Event::Deregistered { reg } => self.on_deregistered(reg),
        }
        Polled::Progressed
    }

    /// Goes on with what could not be done before. Returns whether anything moved.
    #[inline(always)]
    fn go_on(&mut self) -> bool {
        self.busy_polls = 0;
        let tends = self.registrar.as_ref().is_some_and(|registrar| self.has_chores(registrar));
        (self.waits() && self.retry()) | (tends && self.tend())
    }

    /// Whether something could not be sent.
    #[inline(always)]
    fn waits(&self) -> bool {
        !(self.stalled.is_empty()
            && self.outbox.is_empty()
            && self.unsent.news.is_empty()
            && self.teams.unsent.is_empty())
    }

    /// Whether peers are waited for since some time that nobody has said: those that hold what this process wants back.
    /// Ask after each poll, and after [`Node::invalidate`]; then call [`Node::expire`].
    pub fn wants_time(&self) -> bool {
        self.registrar.as_ref().is_some_and(|registrar| registrar.wants_time)
    }

    /// Whether a poll may do something though the transport has no news: something could not be sent yet, or is to be
    /// gone on with.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.waits()
            || !self.teams.local.is_empty()
            || self.registrar.as_ref().is_some_and(|registrar| self.has_chores(registrar))
    }

    /// Fails every operation whose deadline is not after `now` with [`OpError::Timeout`]; its buffers are touched no
    /// more. Loses every peer that was told to give something back, and has not answered within [`Settings::recall_within`], which counts from
    /// the next call on. Asks the members that a collective has waited for in vain what they called.
    /// Returns the earliest deadline that is left, or when to ask or look next; or earlier, where what was due then has ended since.
    ///
    /// To be called when polling finds nothing, as answers may lie there until then; and now and then where it always finds something.
    ///
    /// [`Settings::recall_within`]: crate::registration::Settings::recall_within
    pub fn expire(&mut self, now: Nanos) -> Option<Nanos> {
        self.expire_where(now, true)
    }

    /// The same for who does not poll, as somebody else is at it, and may be long: no peer's time to answer passes.
    pub fn expire_unpolled(&mut self, now: Nanos) -> Option<Nanos> {
        self.expire_where(now, false)
    }

    fn expire_where(&mut self, now: Nanos, polled: bool) -> Option<Nanos> {
        let hits = self.expire_hits(now);
        let ops = self.expire_ops(now);
        let holders = self.expire_holders(now, polled);
        [hits, ops, holders].into_iter().flatten().min()
    }

    /// Looks at all operations only where one may be late, or a collective may have to ask.
    fn expire_ops(&mut self, now: Nanos) -> Option<Nanos> {
        if self.ops.is_empty() {
            self.none_due_before = Nanos::MAX;
        }
        if now < self.none_due_before && self.collectives_in_flight() == 0 {
            return Some(self.none_due_before).filter(|at| *at != Nanos::MAX);
        }
        let (mut late, mut in_vain) = (Vec::new(), Vec::new());
        let (mut due, mut ask) = (Nanos::MAX, Nanos::MAX);
        for (key, op) in &mut self.ops {
            if op.outcome.is_some() {
                continue;
            }
            if let OpKind::Collective(Some(run)) = &mut op.kind {
                let (asks_now, at) = run.asks(now);
                if asks_now {
                    in_vain.push(key);
                }
                ask = ask.min(at);
            }
            let Some(deadline) = op.deadline else { continue };
            if deadline <= now {
                late.push((key, op.kind.peer()));
            } else {
                due = due.min(deadline);
            }
        }
        self.none_due_before = due;
        for (key, peer) in late {
            self.give_up(key, OpError::Timeout { peer });
        }
        for key in in_vain {
            self.ask_the_awaited(key);
        }
        Some(due.min(ask)).filter(|at| *at != Nanos::MAX)
    }

    /// Takes note that a peer is gone: everything under way with it ends with [`OpError::PeerLost`], and so does
    /// whatever is started with it later.
    #[cold]
    pub fn lose(&mut self, peer: Rank) {
        if self.lost.insert(peer, Lost::Gone) != Some(Lost::Gone) {
            // Before what it holds is others', and while it is still kept from being anything else.
            self.transport.disconnect(peer);
            self.forget(peer);
        }
    }

    /// Loses a peer, and tells all others: for who judges so by itself, or knows that nobody else tells them. They may still
    /// hear from it, and must not wait for ever at a barrier that it, or this node, comes to no more.
    #[cold]
    pub fn give_up_peer(&mut self, peer: Rank) {
        let news = self.is_of_job(peer) && !self.barrier.lost.contains(&peer);
        self.lose(peer);
        if news {
            self.tell_broken(peer, false);
        }
    }

    /// Loses a peer whose process has ended or left, and tells all others, who may never have talked to it.
    #[cold]
    pub fn tell_gone(&mut self, peer: Rank) {
        let news = self.is_of_job(peer) && !self.barrier.lost.contains(&peer);
        self.lose(peer);
        if news {
            self.tell_broken(peer, true);
        }
    }

    /// Another process has the peer's rank: the one that it was is lost, and of this one nothing is known.
    #[cold]
    fn on_returned(&mut self, peer: Rank, incarnation: u32) {
        if incarnation > self.incarnation_of(peer) {
            self.lost.insert(peer, Lost::Gone);
            // Answers to what it had asked before it was given up may have come together since.
            self.forget(peer);
            self.incarnations.insert(peer, incarnation);
            self.lost.insert(peer, Lost::Replaced);
        }
    }

    /// Ends what is under way with a peer that is gone, and keeps nothing of it.
    fn forget(&mut self, peer: Rank) {
        if self.is_of_job(peer) {
            self.barrier.lost.insert(peer);
        }
        self.outbox.retain(|(to, ..)| *to != peer);
        self.unsent.news.remove(&peer);
        let ended: Vec<OpKey> = self
            .ops
            .iter()
            .filter(|(_, op)| op.outcome.is_none() && op.kind.needs(peer))
            .map(|(key, _)| key)
            .collect();
        for key in ended {
            self.give_up(key, OpError::PeerLost { peer });
        }
        self.give_up_hits(|of, _| (of == peer).then_some(OpError::PeerLost { peer }));
        self.drop_registrations(peer);
        self.take_stages_back(peer);
        self.break_teams_of(peer);
        if self.is_of_job(peer) {
            self.recount();
        }
    }

    /// Whether the peer is one of those that meet at the barrier. Others are numbered from the job's size on.
    fn is_of_job(&self, peer: Rank) -> bool {
        peer < self.size
    }

    #[inline(always)]
    fn on_message(&mut self, peer: Rank, lane: Lane, inbox: &Inbox) -> Polled {
        let head = AmHead::of(&inbox.header);
        if head.is_short() && inbox.payload.is_empty() {
            return self.deliver(peer, lane, head, 0);
        }
        self.on_long_message(peer, lane, inbox)
    }

    /// Takes any message but a short Active Message.
    #[inline(never)]
    fn on_long_message(&mut self, peer: Rank, lane: Lane, inbox: &Inbox) -> Polled {
        match Message::decode(&inbox.header, inbox.payload.len()) {
            Ok(Message::Am(Am { form, .. })) => {
                let len = match form {
                    AmForm::Short => 0,
                    AmForm::Medium => inbox.payload.len() as u64,
                    AmForm::Long(_, len) => u64::from(len),
                };
                self.deliver(peer, lane, AmHead::of(&inbox.header), len)
            }
            Ok(Message::AmDone { stamp: stamp @ 1.. }) if lane == Lane::Reply => Polled::Acknowledged(stamp),
            Ok(message) => self.on_service(peer, lane, &message, &inbox.payload),
            Err(_) => {
                self.counters.malformed += 1;
                Polled::Progressed
            }
        }
    }

    /// Whether registration has anything to see to.
    #[inline]
    fn has_chores(&self, registrar: &Registrar) -> bool {
        !(registrar.later.is_empty() && self.ready.is_empty()) || self.actions_due || self.has_held()
    }

    #[inline]
    fn has_held(&self) -> bool {
        self.held_arrival || !(self.held.is_empty() && self.held_starts.is_empty())
    }

    /// Sees to registration. Returns whether anything moved.
    #[inline(never)]
    fn tend(&mut self) -> bool {
        self.relieve();
        let mut moved = self.send_later();
        if self.has_held() && !self.holds_back() {
            moved = true;
            self.ready.extend(std::mem::take(&mut self.held));
            self.submit_held();
            if self.held_arrival {
                self.arrive();
            }
        }
        if self.actions_due || !self.ready.is_empty() {
            moved = true;
            self.run_actions();
        }
        moved
    }

    /// A peer has broken the rules: it is given up.
    #[cold]
    pub(super) fn on_garbled(&mut self, peer: Rank) {
        self.counters.malformed += 1;
        self.give_up_peer(peer);
    }

    /// Takes a message that is for the engine itself, if it is one.
    fn on_service(&mut self, peer: Rank, lane: Lane, message: &Message, payload: &[u8]) -> Polled {
        match (message, lane) {
            (Message::Put(chunk), Lane::Request) => self.serve_put(peer, chunk, payload),
            (Message::PutSignal(chunk, signal), Lane::Request) => {
                self.serve_put_signal(peer, chunk, signal, payload);
            }
            (Message::Get(chunk, len), Lane::Request) => self.serve_get(peer, chunk, *len),
            (Message::PutDone { done, old }, Lane::Reply) => self.on_put_done(peer, done, *old),
            (Message::GetData(done), Lane::Reply) => self.on_get_data(peer, done, payload),
            (Message::Stage(ask), Lane::Request) => self.serve_stage(peer, ask),
            (Message::StageGive { stage }, Lane::Request) => self.on_stage_give(peer, *stage),
            (Message::Staged(staged), Lane::Reply) => self.on_staged(peer, staged),
            (Message::BarrierOpen { epoch }, Lane::Request) if self.is_of_job(peer) => {
                self.on_barrier_open(*epoch);
            }
            (Message::BarrierBroken { peer: given_up, gone }, Lane::Request) if self.is_of_job(peer) => {
                self.on_barrier_broken(*given_up, *gone);
            }
            (Message::Team(team, said), Lane::Request) if self.is_of_job(peer) => {
                self.on_team_message(peer, *team, said, payload);
                return self.next_local().map_or(Polled::Progressed, Polled::Local);
            }
            (Message::Move(ask), Lane::Request) if self.registrar.is_none() && !self.is_gone(peer) => {
                self.refuse_move(peer, ask, payload);
            }
            _ if self.registrar.is_none() => self.counters.malformed += 1,
            // What it sent before it was lost must not be given anything any more: it would never come back.
            _ if self.is_gone(peer) => {}
            (Message::Move(ask), Lane::Request) => self.serve_move(peer, ask, payload),
            (Message::Moved(moved), Lane::Reply) => self.on_moved(peer, moved, payload),
            (Message::Revoke { holder }, Lane::Request) => self.on_revoke(peer, *holder),
            (Message::Recall { bytes }, Lane::Request) => self.on_recall(peer, *bytes),
            (Message::Release(release), Lane::Request) => self.on_release(peer, release),
            _ => self.counters.malformed += 1,
        }
        Polled::Progressed
    }

    #[inline(never)]
    pub(super) fn on_completed(&mut self, id: OpId, result: Result<u64, OpError>) {
        if let Some(hit) = id.hit() {
            // Also one that was given up: it uses what it does until now.
            return self.on_hit(hit, result);
        }
        let key = id.key();
        let Some(op) = self.ops.get_mut(key) else { return };
        if op.outcome.is_some() {
            return;
        }
        match &mut op.kind {
            OpKind::BarrierArrival { epoch } => {
                let epoch = *epoch;
                self.on_arrival(key, epoch, result);
            }
            OpKind::BarrierCount => self.on_count(key, result),
            OpKind::OneSided { peer, after } => match (after.take(), result) {
                (Some(after), Ok(_)) => {
                    let peer = *peer;
                    self.conclude(key, peer, Some(*after));
                }
                (_, result) => self.finish(key, result),
            },
            OpKind::Part(_) => self.on_part(key, result),
            OpKind::Relay(_) => self.on_staged_copy(key, result),
            OpKind::Transfer(_) | OpKind::Keyed(_) | OpKind::BarrierWait | OpKind::Collective(_) => {}
        }
    }

    /// Tries again what found no room. Returns whether anything moved.
    #[inline(never)]
    fn retry(&mut self) -> bool {
        let mut moved = !self.outbox.is_empty() && self.drain_outbox();
        moved |= !self.unsent.news.is_empty() && self.retry_news();
        moved |= !self.teams.unsent.is_empty() && self.retry_collectives();
        let mut at = 0;
        while let Some((peer, _)) = self.stalled.nth(at) {
            moved |= self.retry_stalled(peer, at);
            at += 1;
        }
        self.stalled.tidy();
        moved
    }

    /// Goes on with the transfers to `peer` until its lane is full again. Returns whether anything moved.
    fn retry_stalled(&mut self, peer: Rank, at: usize) -> bool {
        let mut moved = false;
        while !self.must_wait(peer, Lane::Request) && self.transport.has_room(peer, Lane::Request) {
            let Some(key) = self.stalled.nth(at).and_then(|(_, list)| list.pop_front()) else { break };
            let Some(OpKind::Transfer(transfer)) = self.ops.get_mut(key).map(|op| &mut op.kind) else {
                continue;
            };
            transfer.stalled = false;
            moved |= self.pump(key);
            // It is back: a message of its size found no room.
            if self.stalled.nth(at).is_some_and(|(_, list)| list.back() == Some(&key)) {
                break;
            }
        }
        moved
    }
}
