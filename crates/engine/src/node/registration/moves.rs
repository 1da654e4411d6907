//! Asking peers for registration, and answering those who ask: one *move* names what to give up and what to
//! attach, and is always answered.

use super::state::{PendingMove, ServedMove, Waiter};
use super::trace_spans::MoveSpan;
use crate::exposure::Ranges;
use crate::node::Node;
use crate::node::transfer::access::allow_key;
use crate::op_id::OpKey;
use crate::registration::firehose::{HoseId, Released};
use crate::registration::message::{self, Given};
use crate::registration::table::HolderId;
use crate::registration::{Keep, Run, end_of};
use crate::wire::{
    Because, GivenKey, KeyAsk, KeyIs, Message, Move, MoveId, Moved, RELEASE_MAX, Release, Status,
};
use crate::{Direction, GrantId, Lane, MemId, Nanos, Piece, Place, Rank, Transport};

/// Firehoses, at most, that one move gives up.
const DETACH_MAX: usize = 64;

/// Buckets, at most, of a move whose time says what a small piece waits for: as many as it may lie in.
const FEW_BUCKETS: u32 = 2;

impl<T: Transport> Node<T> {
    /// Asks `peer` for what is not held of `wanted`. The operation goes on when that is answered; `rider` is
    /// the put whose data goes with it.
    pub(in crate::node) fn ask(&mut self, peer: Rank, wanted: Run, op: OpKey, rider: Option<Piece>) {
        let mut data: &[u8] = &[];
        if let Some(piece) = rider {
            let into = &mut self.core.scratch[..piece.len as usize];
            if let Err(error) = self.core.transport.read(piece.local, into) {
                if let Some(keyed) = self.keyed(op) {
                    keyed.riding = None;
                }
                self.on_child(op, Err(error));
                return;
            }
            data = into;
        }
        // A quarter of a message for what is given up; half for what is asked for, and no more than its
        // answer can name.
        let room = self.core.transport.payload_max();
        let runs_max = (room / 2 / message::ATTACH_BYTES).min(room / message::GIVEN_BYTES).max(1);
        let detach_max = DETACH_MAX.min(room / 4 / message::DETACH_BYTES);
        let Some(registration) = &mut self.registration else { return };
        registration.serial = registration.serial.wrapping_add(1);
        let serial = registration.serial;
        let spare = registration.spare_moves.pop().unwrap_or_default();
        let key = registration.moves.insert(PendingMove { serial, peer, ..spare });
        let asked = &mut registration.moves[key];
        let runs = &mut asked.runs;
        registration.hoses.ask(peer, wanted, key as u32, runs);
        if runs.len() > runs_max {
            registration.hoses.answered(peer, &runs[runs_max..], key as u32);
            runs.truncate(runs_max);
        }
        registration.early_revocations.asked(peer, runs);
        registration.give_up_for(peer, detach_max);
        let (asked, detach) = (&mut registration.moves[key], &registration.detach);
        let runs = &asked.runs;
        let few = runs.iter().map(|run| run.count).sum::<u32>() <= FEW_BUCKETS;
        asked.since = self.core.transport.now().filter(|_| few && !detach.is_empty());
        asked.span = Some(MoveSpan::begin(peer, runs, detach.len(), rider.is_some()));
        registration.counters.moves += 1;
        registration.hoses.count_move(peer);
        let mut payload = std::mem::take(&mut registration.payload);
        message::put_move(runs, detach, data, &mut payload);
        let message = Message::Move(Move {
            id: MoveId { at: key as u32, serial },
            attach: runs.len() as u64,
            detach: detach.len() as u64,
            rider: rider.map(|piece| piece.remote.offset),
        });
        match rider {
            Some(_) => {
                asked.rider = Some(op);
                registration.counters.puts_in_moves += 1;
            }
            None => asked.waiters.push(op),
        }
        self.mail.post(&mut self.core, peer, Lane::Request, message, &payload);
        if let Some(registration) = &mut self.registration {
            registration.payload = payload;
        }
    }

    /// Asks `peer` for the key of a grant. The operation goes on when that is answered.
    pub(in crate::node) fn ask_for_key(&mut self, peer: Rank, grant: GrantId, op: OpKey) {
        let detach_max = (self.core.transport.payload_max() / message::DETACH_BYTES).min(DETACH_MAX);
        let Some(registration) = &mut self.registration else { return };
        registration.serial = registration.serial.wrapping_add(1);
        let serial = registration.serial;
        let spare = registration.spare_moves.pop().unwrap_or_default();
        let key = registration.moves.insert(PendingMove { serial, peer, grant: Some(grant), ..spare });
        registration.hoses.ask_granted(peer, grant, key as u32);
        registration.early_revocations.asked_for_key(peer);
        registration.give_up_for(peer, detach_max);
        let detach = registration.detach.len();
        registration.moves[key].waiters.push(op);
        registration.moves[key].span = Some(MoveSpan::begin(peer, &[], detach, false));
        registration.counters.moves += 1;
        registration.hoses.count_move(peer);
        let mut payload = std::mem::take(&mut registration.payload);
        message::put_detached(&registration.detach, &mut payload);
        let id = MoveId { at: key as u32, serial };
        let ask = KeyAsk { id, grant: Some(grant), detach: detach as u64 };
        self.mail.post(&mut self.core, peer, Lane::Request, Message::KeyAsk(ask), &payload);
        if let Some(registration) = &mut self.registration {
            registration.payload = payload;
        }
    }

    /// Lets an operation wait for a move that is under way.
    pub(in crate::node) fn await_move(&mut self, by: u32, op: OpKey) {
        let Some(registration) = &mut self.registration else { return };
        match registration.moves.get_mut(by as usize) {
            Some(asked) => asked.waiters.push(op),
            None => self.ready.push_back(op),
        }
    }

    /// Does what a put that comes with a move asks for, if there is one: its status.
    fn ride(transport: &mut T, exposed: Option<&Ranges>, rider: Option<u64>, data: &[u8]) -> Status {
        let Some(offset) = rider else { return Status::Ok };
        if exposed.is_some_and(|all| !all.allow(Direction::Put, offset, data.len() as u64)) {
            return Status::NotExposed;
        }
        Status::of(&transport.write(Place::new(MemId::Space, offset), data))
    }

    /// Gives nothing to a peer that asks, as this process registers nothing: it goes by message then.
    #[cold]
    pub(in crate::node) fn refuse_move(&mut self, peer: Rank, ask: &Move, payload: &[u8]) {
        let parts = message::take_move(payload, ask.attach, ask.detach);
        let Some(parts) = parts else {
            self.core.counters.malformed += 1;
            return;
        };
        let status =
            Self::ride(&mut self.core.transport, self.shown.exposed.as_deref(), ask.rider, parts.data);
        let answer = Moved { id: ask.id, limit: 0, status: Some(status) };
        self.mail.answer(&mut self.core, peer, Message::Moved(answer), 0);
    }

    /// Serves a peer that asks.
    pub(in crate::node) fn serve_move(&mut self, peer: Rank, ask: &Move, payload: &[u8]) {
        let parts = message::take_move(payload, ask.attach, ask.detach);
        let registration = self.registration.as_ref();
        let may_ask = |run: Run| registration.is_some_and(|registration| registration.may_ask(run));
        let parts = parts.filter(|parts| parts.attach().all(may_ask));
        let (Some(parts), Some(registration)) = (parts, &mut self.registration) else {
            self.core.counters.malformed += 1;
            let refusal = Moved { id: ask.id, limit: 0, status: Some(Status::Fault) };
            self.mail.post(&mut self.core, peer, Lane::Reply, Message::Moved(refusal), &[]);
            return;
        };
        registration.counters.served += 1;
        registration.table.count_served(peer);
        for holder in parts.detach() {
            self.core.counters.malformed += u64::from(!registration.give_up(peer, holder));
        }
        self.mail.hold_back(registration.revocations.are_out());
        let mut holders = registration.spare_holders.pop().unwrap_or_default();
        let (exposed, bucket) = (self.shown.exposed.as_deref(), registration.settings.bucket);
        for run in parts.attach().filter(|run| allow_key(exposed, bucket, *run)) {
            // Without room the peer is told so, by what its answer lacks.
            let _ = registration.table.attach(peer, run, &mut holders);
        }
        let status = Self::ride(&mut self.core.transport, exposed, ask.rider, parts.data);
        self.serve(ServedMove { peer, id: ask.id, holders, pending: 0, status, grant: None });
    }

    /// Answers a peer that asks once all is registered that it is given.
    pub(super) fn serve(&mut self, mut asked: ServedMove) {
        let Some(registration) = &mut self.registration else { return };
        let serve = registration.serves.vacant_entry();
        let (key, mut pending) = (serve.key(), 0);
        for holder in &asked.holders {
            let (reg, _) = registration.table.held(*holder);
            if registration.table.is_pending(reg) {
                registration.waiting.entry(reg).or_default().push(Waiter::Serve(key));
                pending += 1;
            }
        }
        asked.pending = pending.max(1);
        serve.insert(asked);
        if pending == 0 {
            self.on_served(key);
        }
        self.run_actions();
    }

    /// One registration less that a peer's move waits for: after the last it is answered.
    pub(in crate::node) fn on_served(&mut self, key: usize) {
        let Some(registration) = &mut self.registration else { return };
        let Some(serve) = registration.serves.get_mut(key) else { return };
        assert!(serve.pending > 0, "a move is answered after its last registration");
        serve.pending -= 1;
        if serve.pending > 0 {
            return;
        }
        let ServedMove { peer, id, mut holders, status, grant, .. } = registration.serves.remove(key);
        if let Some(len) = grant {
            return self.answer_key_ask(peer, id, holders, len);
        }
        let mut payload = std::mem::take(&mut registration.payload);
        payload.clear();
        for holder in holders.drain(..) {
            // It may have said that it gives it up before it was told of it.
            let Some((reg, run)) = registration.table.held_by(peer, holder) else { continue };
            let fits = payload.len() + message::GIVEN_BYTES <= self.core.transport.payload_max();
            // The registration may be more than was asked for, and less may be exposed by now.
            let may = fits && allow_key(self.shown.exposed.as_deref(), registration.settings.bucket, run);
            match registration.table.key(reg).filter(|_| may) {
                Some(key) => message::put_given(&Given { run, key, holder }, &mut payload),
                None => _ = registration.give_up(peer, holder),
            }
        }
        self.mail.hold_back(registration.revocations.are_out());
        registration.spare_holders.push(holders);
        let moved = Moved { id, limit: registration.table.limit(peer), status: Some(status) };
        self.mail.post(&mut self.core, peer, Lane::Reply, Message::Moved(moved), &payload);
        if let Some(registration) = &mut self.registration {
            registration.payload = payload;
        }
    }

    /// Tells a peer the key that it is given, or that there is none.
    fn answer_key_ask(&mut self, peer: Rank, id: MoveId, mut holders: Vec<HolderId>, len: u64) {
        let Some(registration) = &mut self.registration else { return };
        let mut given = None;
        for holder in holders.drain(..) {
            // It may have said that it gives it up before it was told of it.
            let Some((reg, _)) = registration.table.held_by(peer, holder) else { continue };
            let start = registration.table.extent_of(reg).map(|extent| extent.start);
            match start.zip(registration.table.key(reg)) {
                Some((start, key)) => given = Some(GivenKey { holder, key, start }),
                None => _ = registration.give_up(peer, holder),
            }
        }
        self.mail.hold_back(registration.revocations.are_out());
        registration.spare_holders.push(holders);
        let answer = KeyIs { id, limit: registration.table.limit(peer), len, given };
        self.mail.post(&mut self.core, peer, Lane::Reply, Message::KeyIs(answer), &[]);
    }

    /// Takes a peer's answer.
    pub(in crate::node) fn on_moved(&mut self, peer: Rank, answer: &Moved, payload: &[u8]) {
        let MoveId { at, serial } = answer.id;
        let key = at as usize;
        let Some(registration) = &mut self.registration else { return };
        let given = message::take_given(payload);
        let is_it = |asked: &PendingMove| (asked.peer, asked.serial, asked.grant) == (peer, serial, None);
        let known = registration.moves.get(key).is_some_and(is_it);
        let (true, Some(given)) = (known, given) else {
            self.core.counters.malformed += 1;
            return;
        };
        let asked = registration.moves.remove(key);
        registration.hoses.answered(peer, &asked.runs, at);
        registration.hoses.set_limit(peer, answer.limit);
        let (mut refused, mut moved) = (Vec::new(), 0);
        let mut may_come: u64 = asked.runs.iter().map(|run| u64::from(run.count)).sum();
        for Given { run, key, holder } in given {
            // No owner registers more as one, gives two rights one name, or gives what was not asked for.
            let is_asked =
                asked.runs.iter().any(|asked| run.first < end_of(*asked) && asked.first < end_of(run));
            let is_known = registration.hoses.has(peer, holder);
            if run.count > registration.settings.run_max.max(1) || is_known || !is_asked || may_come == 0 {
                self.core.counters.malformed += 1;
                continue;
            }
            may_come -= 1;
            moved += u64::from(run.count);
            if registration.early_revocations.take(peer, holder) {
                refused.push(holder);
            } else {
                registration.hoses.add(peer, run, key, holder);
            }
        }
        self.end_move(peer, asked, refused, moved, answer.status);
    }

    /// A move is answered, and what it gave is taken but for what is `refused`: whoever waits goes on.
    pub(super) fn end_move(
        &mut self,
        peer: Rank,
        mut asked: PendingMove,
        mut refused: Vec<HolderId>,
        moved: u64,
        status: Option<Status>,
    ) {
        let Some(registration) = &mut self.registration else { return };
        refused.extend(registration.never_coming(peer));
        refused.chunks(RELEASE_MAX).for_each(|some| self.give_back(peer, some, Because::Revoked));
        asked.waiters.drain(..).for_each(|op| self.ready.push_back(op));
        if let (Some(since), Some(now), 1..) = (asked.since.take(), self.core.transport.now(), moved)
            && let Some(registration) = &mut self.registration
        {
            registration.hoses.miss_policy(peer).on_move(now.saturating_sub(since));
        }
        if let Some(span) = asked.span.take() {
            span.answered(&asked.runs, moved);
        }
        let rider = asked.rider.take();
        asked.runs.clear();
        asked.grant = None;
        if let Some(registration) = &mut self.registration {
            registration.spare_moves.push(asked);
        }
        if let Some(op) = rider {
            self.on_ridden(op, peer, status);
        }
        self.run_actions();
    }

    /// Takes back a right that its owner wants.
    pub(in crate::node) fn on_revoke(&mut self, peer: Rank, holder: Option<HolderId>) {
        let (Some(registration), Some(holder)) = (&mut self.registration, holder) else {
            self.core.counters.malformed += 1;
            return;
        };
        if !registration.early_revocations.revoked(peer) {
            return self.core.on_garbled(peer);
        }
        // Told now, it is not to be told once more.
        if let Some(owed) = registration.owed.get_mut(&peer) {
            owed.retain(|owed| *owed != holder);
        }
        if !registration.hoses.has(peer, holder) && registration.asks(peer) {
            // The notice may have overtaken the right itself, which must not be used when it comes.
            registration.early_revocations.keep(peer, holder, registration.serial);
        } else if registration.hoses.revoke(peer, holder) {
            self.give_back(peer, &[holder], Because::Revoked);
        }
    }

    /// Gives back so many bytes that are not in use.
    pub(in crate::node) fn on_recall(&mut self, peer: Rank, bytes: u64) {
        let Some(registration) = &mut self.registration else { return };
        let mut holders = registration.owed.remove(&peer).unwrap_or_default();
        registration.hoses.shed(peer, bytes, &mut holders);
        for some in holders.chunks(RELEASE_MAX) {
            self.give_back(peer, some, Because::Recalled);
        }
        if holders.is_empty() && !self.will_answer_recall(peer) {
            // Memory in use now may be asked for again.
            self.give_back(peer, &[], Because::Recalled);
        }
    }

    /// Whether an answer to a recall waits for room already: another would say no more.
    fn will_answer_recall(&self, peer: Rank) -> bool {
        let is_answer = |message: &Message| matches!(message, Message::Release(release) if release.because == Because::Recalled);
        self.mail.deferred(peer, Lane::Request).any(is_answer)
    }

    /// Tells an owner what is not used here any more: no more than one message holds.
    fn give_back(&mut self, peer: Rank, holders: &[HolderId], because: Because) {
        if let Some(registration) = &mut self.registration {
            registration.counters.given_back += holders.len() as u64;
        }
        self.mail.post(
            &mut self.core,
            peer,
            Lane::Request,
            Message::Release(Release::new(because, holders)),
            &[],
        );
    }

    /// Takes rights back that a peer gives up.
    pub(in crate::node) fn on_release(&mut self, peer: Rank, release: &Release) {
        let Some(registration) = &mut self.registration else { return };
        for &holder in release.holders() {
            let known = if release.because == Because::Revoked {
                registration.answered(peer, holder)
            } else {
                registration.give_up(peer, holder)
            };
            self.core.counters.malformed += u64::from(!known);
        }
        if release.because == Because::Recalled {
            registration.recall_answered(peer);
        }
        self.note_revocations();
        self.run_actions();
    }

    /// Ends one use of a firehose, and gives it up where nothing is kept.
    #[inline]
    pub(in crate::node) fn release_hose(&mut self, hose: HoseId) {
        let Some(registration) = &mut self.registration else { return };
        let released = registration.hoses.release(hose);
        if released != Released::Kept || registration.settings.keep != Keep::Firehoses {
            self.after_release(hose, released);
        }
    }

    #[inline(never)]
    pub(in crate::node) fn after_release(&mut self, hose: HoseId, released: Released) {
        let Some(registration) = &mut self.registration else { return };
        let keep = registration.settings.keep;
        match released {
            Released::Wanted(peer, holder) => return self.give_back(peer, &[holder], Because::Revoked),
            Released::Kept => {}
            Released::Gone => return,
        }
        let Some((peer, holder)) = registration.hoses.give_up(hose) else { return };
        match keep {
            Keep::Registrations => registration.owed.entry(peer).or_default().push(holder),
            Keep::Firehoses | Keep::Nothing => self.give_back(peer, &[holder], Because::Unneeded),
        }
    }

    /// Ends the patience with holders that do not answer. Returns when the next one's ends.
    pub(in crate::node) fn expire_holders(&mut self, now: Nanos, looked: bool) -> Option<Nanos> {
        let (late, next) = self.registration.as_mut()?.late(now, looked);
        late.into_iter().for_each(|peer| self.core.lose_soon(peer));
        next
    }

    /// Ends the patience with holders that do not answer, where too much waits for them. Returns whether it
    /// does.
    pub(in crate::node) fn give_up_slow_holders(&mut self) -> bool {
        let Some(registration) = self.registration.as_ref().filter(|_| self.mail.holds_too_much()) else {
            return false;
        };
        let owing = registration.owing();
        for peer in &owing {
            tracing::warn!(peer, "too many answers wait for a right that the peer does not give back");
            self.core.lose_soon(*peer);
        }
        !owing.is_empty()
    }

    /// Forgets what a peer that is gone held, was asked and asked for.
    pub(in crate::node) fn drop_registrations(&mut self, peer: Rank) {
        let Some(registration) = &mut self.registration else { return };
        registration.hoses.drop_peer(peer);
        let serves = &mut registration.serves;
        serves.retain(|_, serve| serve.peer != peer);
        for waiters in registration.waiting.values_mut() {
            // The next move takes a free place, and must not be answered for registrations that it does not
            // wait for.
            waiters.retain(|waiter| !matches!(waiter, Waiter::Serve(key) if !serves.contains(*key)));
        }
        registration.drop_holder(peer);
        self.mail.hold_back(registration.revocations.are_out());
        registration.owed.remove(&peer);
        registration.early_revocations.forget(peer);
        let gone: Vec<usize> =
            registration.moves.iter().filter(|(_, asked)| asked.peer == peer).map(|(key, _)| key).collect();
        for key in gone {
            let asked = registration.moves.remove(key);
            if let Some(grant) = asked.grant {
                registration.hoses.answered_granted(peer, grant, key as u32);
            }
            self.ready.extend(asked.waiters);
            if let Some(span) = asked.span {
                span.lost();
            }
        }
        self.run_actions();
    }
}
