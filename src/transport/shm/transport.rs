//! The engine's transport over shared memory: messages in rings, copies and atomics at once.
//!
//! A ring that nobody polls is *cold*: its producer rings the doorbell after each message, and the owner
//! looks where the bell says. A ring whose sender keeps talking turns *hot* and is polled directly, so that a
//! message costs one cache line. Before a thread sleeps, all rings turn cold again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::{
    Atomic, Counters, Direction, Event, HEAD_WORDS, Header, Inbox, Lane, OpError, OpId, PathReason, Piece,
    Place, Rank, SendError, Submit,
};
use vm::{Attention, Bell, Corrupt, Words, membarrier};

use super::atomic::atomic_at;
use super::control::{Control, PAYLOAD_MAX};
use super::copiers::{COPIED_APART_MIN, Copiers};
use super::copy::CopyError;
use super::copy::{best_of, copy_pieces, reaches};
use super::held::HeldPayload;
use super::own::{BOUNCE_BYTES, OwnMemory};
use super::pair::{Found, Pair, Warmth};
use super::unheard::UnheardSenders;
use crate::transport::contract::Rest;
use crate::transport::net_wakeup::NetWakeup;
use crate::transport::peers::{Peer, Peers};

/// Rings polled directly, at most: more would make every poll slow.
const HOT_MAX: usize = 8;

/// Messages from one sender, with no sleep in between, that make its rings hot.
const HOT_AFTER: u32 = 2;

/// How long a receiver may take to be connected to, where no call of the user's did it before.
const SEND_WITHIN: Duration = Duration::from_secs(2);

/// Messages of hot senders before those that rang are looked at.
const RUN_MAX: u32 = 64;

/// Message rings, mapped heaps and cross-memory attach, as the engine's transport.
pub(crate) struct ShmTransport {
    pub(crate) peers: Arc<Peers>,
    pub(super) pairs: Vec<Option<Box<Pair>>>,
    /// Senders whose rings are polled at every call.
    hot: Vec<Rank>,
    /// Senders that rang, to be polled until their rings are empty.
    warm: VecDeque<Rank>,
    /// Senders that rang and could not be connected to yet.
    unheard: UnheardSenders,
    /// Where the next look at the hot senders begins, and how many of their messages have come in a row.
    turn: usize,
    run: u32,
    bell: Bell<Words>,
    /// How many senders may be hot: none where waits do not poll, since turning cold before each sleep would
    /// cost more than doorbells.
    hot_max: usize,
    /// Threads of this process that sleep or are about to: while there are any, no ring turns hot.
    sleepers: Arc<AtomicU32>,
    own: OwnMemory,
    /// The payload of the message that was handed on last, where its ring still has it.
    held: HeldPayload,
    /// The threads that make large copies, where that is not for the thread that starts them.
    copiers: Option<Box<Copiers>>,
    /// Whether there are copiers, or senders that could not be connected to: for polls to look at one word.
    has_rare_work: bool,
    /// The things that threads sleep on besides the bell, from when on there is a network.
    net_wakeup: Arc<OnceLock<Arc<NetWakeup>>>,
}

impl ShmTransport {
    pub(crate) fn new(
        peers: Arc<Peers>,
        sleepers: Arc<AtomicU32>,
        polls: bool,
        own: OwnMemory,
    ) -> ShmTransport {
        ShmTransport {
            pairs: (0..peers.own().places).map(|_| None).collect(),
            hot: Vec::with_capacity(HOT_MAX),
            warm: VecDeque::new(),
            unheard: UnheardSenders::default(),
            turn: 0,
            run: 0,
            bell: peers.own().control.bell(),
            own,
            held: HeldPayload::default(),
            copiers: None,
            has_rare_work: false,
            net_wakeup: Arc::default(),
            peers,
            hot_max: if polls { HOT_MAX } else { 0 },
            sleepers,
        }
    }

    /// Has large copies made by so many threads, or as many as the system lets start. Whether there are any.
    pub(crate) fn set_copiers(&mut self, count: usize) -> bool {
        let (bell, net_wakeup) = (self.peers.own().control.bell(), Arc::clone(&self.net_wakeup));
        let wake = move || {
            bell.poke();
            if let Some(net_wakeup) = net_wakeup.get() {
                net_wakeup.ring_all();
            }
        };
        self.copiers = if count == 0 { None } else { Copiers::start(count, Box::new(wake)).map(Box::new) };
        self.has_rare_work = self.copiers.is_some();
        self.has_rare_work
    }

    /// Whether copies are under way.
    pub(crate) fn is_copying(&self) -> bool {
        self.copiers.as_ref().is_some_and(|copiers| copiers.is_copying())
    }

    /// Adds what copiers have copied.
    pub(super) fn add_copied_to(&self, counters: &mut Counters) {
        if let Some(copiers) = &self.copiers {
            counters.merge(copiers.counters());
        }
    }

    /// This wakes threads that sleep on the network, too.
    pub(crate) fn set_net_wakeup(&self, net_wakeup: &Arc<NetWakeup>) {
        let _ = self.net_wakeup.set(Arc::clone(net_wakeup));
    }

    /// Ends the threads that copy; what they were at does not go on.
    pub(crate) fn end_copiers(&mut self) {
        if let Some(copiers) = &mut self.copiers {
            copiers.end();
        }
    }

    /// Turns every hot ring cold, so that whatever comes from now on rings the bell, and says what is there
    /// already.
    pub(crate) fn arm_doorbell(&mut self) -> Rest {
        if self.copiers.as_ref().is_some_and(|copiers| copiers.has_ended()) {
            return Rest::Poll;
        }
        self.take_rung();
        self.retry_unheard();
        if !self.hot.is_empty() {
            for rank in &self.hot {
                if let Some(pair) = &mut self.pairs[*rank as usize] {
                    pair.set_attention(Attention::Doorbell);
                    pair.state = Warmth::Warm;
                }
            }
            membarrier::heavy_fence();
            self.warm.extend(self.hot.drain(..));
            self.turn = 0;
        }
        // Nothing rings when the time comes of one that could not be connected to: no sleep is long.
        let mut found = if self.due_unheard().is_none() { Rest::Sleep } else { Rest::Nap };
        for rank in &self.warm {
            let Some(pair) = &mut self.pairs[*rank as usize] else { continue };
            pair.streak = 0;
            if pair.asking.ready() || (pair.answering.ready() && pair.has_room_for_reply()) {
                return Rest::Poll;
            }
            if pair.answering.ready() {
                // Requests wait until their sender has consumed replies; nothing will ring when it has.
                found = Rest::Nap;
            }
        }
        found
    }

    /// The engine has lost a peer, or given it up: nothing is done directly in its memory any more either.
    pub(crate) fn leave_alone(&self, peer: Rank) {
        if let Some(known) = self.peers.known(peer) {
            known.lose();
        }
    }

    /// Puts everyone who rang on the list of senders to poll.
    fn take_rung(&mut self) {
        if !self.bell.has_pending() {
            return;
        }
        let (pairs, warm, unheard, peers) = (&mut self.pairs, &mut self.warm, &mut self.unheard, &self.peers);
        self.bell.take_pending(|sender| match &mut pairs[sender] {
            Some(pair) => pair.warm_up(sender as Rank, warm),
            // Nobody has that place: whoever gets it rings once more.
            None if sender as Rank >= peers.own().size && peers.known(sender as Rank).is_none() => {}
            None => unheard.rang(sender as Rank),
        });
        self.retry_unheard();
        self.has_rare_work = !self.unheard.is_empty() || self.copiers.is_some();
    }

    /// Work that few nodes ever have to do: connects to a sender that could not be connected to before, and
    /// tells of a copy that has ended.
    #[cold]
    fn do_rare_work(&mut self) -> Option<Event> {
        self.retry_unheard();
        self.has_rare_work = !self.unheard.is_empty() || self.copiers.is_some();
        self.copiers.as_mut().and_then(|copiers| copiers.take_ended())
    }

    /// Connects to one sender that rang and has not been talked to yet, if its time has come.
    #[cold]
    fn retry_unheard(&mut self) {
        let Some(at) = self.due_unheard() else { return };
        let Some(waiting) = self.unheard.take(at) else { return };
        // Since it rang we may have sent it something, and then there is a pair that has begun to count.
        if let Some(pair) = &mut self.pairs[waiting.rank as usize] {
            return pair.warm_up(waiting.rank, &mut self.warm);
        }
        match Pair::new(&self.peers, waiting.rank, waiting.timeout) {
            Ok(mut pair) => {
                pair.warm_up(waiting.rank, &mut self.warm);
                self.pairs[waiting.rank as usize] = Some(pair);
            }
            Err(_) => self.unheard.put_off(waiting),
        }
    }

    /// Where among those the first is whose time has come.
    fn due_unheard(&self) -> Option<usize> {
        self.unheard.due(|rank| self.peers.known(rank).is_some())
    }

    /// Whether any sender's ring is polled.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        !self.hot.is_empty()
    }

    /// Waits a moment for a message, `looks` short looks at most.
    #[inline(always)]
    pub(crate) fn spin(&mut self, looks: u32) {
        for _ in 0..looks {
            // Once between looks: without it they take the line away from whoever is writing it.
            std::hint::spin_loop();
            for (index, rank) in self.hot.iter().enumerate() {
                if self.pairs[*rank as usize].as_ref().is_some_and(|pair| pair.is_ready()) {
                    // So that the next poll looks there first.
                    self.turn = index;
                    return;
                }
            }
            if self.bell.has_pending() {
                return;
            }
        }
    }

    /// A short message in a baton of the hot sender whose turn it is: what answers and their questions are
    /// where two talk. Everything else is for [`ShmTransport::poll_all`].
    #[inline(always)]
    fn poll_first(&mut self, inbox: &mut Inbox) -> Option<(Rank, Lane)> {
        if self.run >= RUN_MAX {
            return None;
        }
        let rank = *self.hot.get(self.turn)?;
        let lane = self.pairs[rank as usize].as_mut()?.take_short(inbox)?;
        self.run += 1;
        if self.hot.len() > 1 {
            self.pass_turn(self.turn);
        }
        Some((rank, lane))
    }

    /// The next look at the hot senders begins after this one.
    fn pass_turn(&mut self, index: usize) {
        self.turn = if index + 1 < self.hot.len() { index + 1 } else { 0 };
    }

    /// Any message of any sender.
    #[inline(never)]
    fn poll_all(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let found = if self.run < RUN_MAX { self.poll_hot(inbox) } else { None };
        if found.is_some() {
            self.run += 1;
            return found;
        }
        self.poll_others(inbox)
    }

    /// Looks at those that rang, after the hot ones had nothing or had their turns; then, after those turns,
    /// at the hot ones again.
    fn poll_others(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let hot_again = std::mem::replace(&mut self.run, 0) >= RUN_MAX;
        if self.has_rare_work
            && let Some(ended) = self.do_rare_work()
        {
            return Some(ended);
        }
        self.take_rung();
        let found = if self.warm.is_empty() { None } else { self.poll_warm(inbox) };
        match found {
            None if hot_again => self.poll_hot(inbox),
            found => found,
        }
    }

    /// The first hot sender with a message, and its lane.
    fn poll_hot(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let count = self.hot.len();
        for step in 0..count {
            // Round robin, so that one that never stops does not keep the others from being heard.
            let index = if self.turn + step < count { self.turn + step } else { self.turn + step - count };
            let rank = self.hot[index];
            let event = self.poll_sender(rank, inbox).event(rank);
            if event.is_some() {
                // A sender of garbage is not among them any more.
                self.pass_turn(index);
                return event;
            }
        }
        None
    }

    fn poll_warm(&mut self, inbox: &mut Inbox) -> Option<Event> {
        for _ in 0..self.warm.len() {
            let rank = self.warm.pop_front()?;
            match self.poll_sender(rank, inbox) {
                Found::Message(lane) => {
                    if !self.heat(rank) {
                        self.warm.push_back(rank);
                    }
                    return Found::Message(lane).event(rank);
                }
                Found::Blocked => self.warm.push_back(rank),
                Found::Nothing => {
                    if let Some(pair) = self.pairs[rank as usize].as_mut() {
                        pair.cool();
                    }
                }
                Found::Garbage => return Found::Garbage.event(rank),
            }
        }
        None
    }

    /// Makes a sender's rings hot if that pays. Returns whether they are.
    fn heat(&mut self, rank: Rank) -> bool {
        let Some(pair) = &mut self.pairs[rank as usize] else { return false };
        let pays = pair.streak >= HOT_AFTER && self.sleepers.load(Ordering::SeqCst) == 0;
        if !pays || self.hot.len() >= self.hot_max || pair.state != Warmth::Warm {
            return false;
        }
        pair.state = Warmth::Hot;
        pair.set_attention(Attention::Polled);
        self.hot.push(rank);
        true
    }

    fn poll_sender(&mut self, rank: Rank, inbox: &mut Inbox) -> Found {
        let Some(pair) = &mut self.pairs[rank as usize] else { return Found::Nothing };
        match pair.poll(inbox) {
            Ok(Found::Message(lane)) => {
                self.held.note(rank, lane, inbox);
                Found::Message(lane)
            }
            Ok(found) => found,
            Err(corrupt) => self.shun(rank, corrupt),
        }
    }

    #[cold]
    fn shun(&mut self, peer: Rank, corrupt: Corrupt) -> Found {
        tracing::warn!(peer, %corrupt, "the peer's ring is garbled; it is cut off");
        if let Some(pair) = &mut self.pairs[peer as usize] {
            pair.state = Warmth::Shunned;
        }
        self.hot.retain(|rank| *rank != peer);
        self.turn = 0;
        self.peers.lose(peer);
        Found::Garbage
    }

    /// Copies pieces, or has a copier do so where they are many and it may be `apart`.
    fn copy_by(
        &mut self,
        op: OpId,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        apart: bool,
    ) -> Submit {
        // It was connected to, or tried in vain, when this was asked whether it reaches the pieces.
        let known = match self.peers.known(peer) {
            Some(Peer::Near(known)) if !known.is_lost() => known,
            _ => return Submit::Failed(OpError::PeerLost { peer }),
        };
        if let Err(why) = reaches(known, pieces) {
            return Submit::Unreachable(why);
        }
        let reached = best_of(known, pieces);
        if let Some(copiers) = &mut self.copiers
            && apart
            && reached.iter().map(|piece| piece.len).fold(0, u64::saturating_add) >= COPIED_APART_MIN
            && let Some(near) = self.peers.near().get_shared(peer)
        {
            // SAFETY: as below. The copiers call it until the operation has ended: `poll` tells the engine of
            // that, or the engine tells by `abandon`.
            let now = move |step: &[Piece]| unsafe { copy_pieces(&near, direction, step) };
            copiers.copy(op, direction, &reached, Box::new(now));
            return Submit::Pending;
        }
        // SAFETY: the local ends are addresses. The engine hands on the pieces that it was given; this
        // library gives it only pieces of a `PieceList`, or of buffers that it keeps until the operation has
        // ended.
        match unsafe { copy_pieces(known, direction, &reached) } {
            Ok(()) => Submit::Done(0),
            Err(CopyError::Unreachable(why)) => Submit::Unreachable(why),
            Err(CopyError::Failed(error)) => Submit::Failed(error),
        }
    }

    /// Sends the first message to a peer.
    #[cold]
    #[inline(never)]
    fn send_first(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: [u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        let Some(slot) = self.pairs.get_mut(peer as usize) else {
            return Err(SendError::Failed(OpError::Protocol { peer, what: "no such rank" }));
        };
        let pair = Pair::new(&self.peers, peer, SEND_WITHIN).map_err(SendError::Failed)?;
        slot.insert(pair).send(lane, &header, payload)
    }
}

impl engine::Transport for ShmTransport {
    fn disconnect(&mut self, peer: Rank) {
        // The end of its connection tells a peer from outside that it was given up.
        if peer >= self.peers.own().size {
            // The engine knows, and is held: nobody is to be told here.
            self.peers.lose(peer);
            self.peers.forget(peer);
        }
    }

    #[inline(always)]
    fn suspect(&mut self, peer: Rank) {
        if let Some(near) = self.peers.near().get(peer) {
            near.look_after();
        }
    }

    fn send(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        match self.pairs.get_mut(peer as usize) {
            Some(Some(pair)) => pair.send(lane, header, payload),
            _ => self.send_first(peer, lane, *header, payload),
        }
    }

    fn give_up_offers(&mut self) {
        self.peers.own().control.given_up().fetch_add(1, Ordering::SeqCst);
        // Nothing that is changed after it is seen before.
        fence(Ordering::SeqCst);
    }

    fn offers_given_up(&self, peer: Rank) -> Option<u32> {
        let of = |control: &Control| {
            // Copied bytes were read before.
            fence(Ordering::SeqCst);
            control.given_up().load(Ordering::SeqCst) as u32
        };
        if peer == self.peers.own().rank {
            return Some(of(&self.peers.own().control));
        }
        self.peers.near().get(peer).map(|near| of(&near.control))
    }

    #[inline(always)]
    fn take_like(
        &mut self,
        peer: Rank,
        head: &[u64; HEAD_WORDS],
    ) -> Option<[u64; Header::WORDS - HEAD_WORDS]> {
        self.pairs.get_mut(peer as usize)?.as_mut()?.take_like(head)
    }

    #[inline(always)]
    fn poll(&mut self, inbox: &mut Inbox) -> Option<Event> {
        if self.held.is_there() {
            self.held.release(&mut self.pairs);
        }
        match self.poll_first(inbox) {
            Some((peer, lane)) => Some(Event::Message { peer, lane }),
            None => self.poll_all(inbox),
        }
    }

    fn read_held(&mut self, at: usize, into: &mut [u8]) {
        self.held.read(&self.pairs, at, into);
    }

    fn copy_held(&mut self, at: usize, len: usize, to: Place) -> Result<(), OpError> {
        match self.own.copy_mapped(self.held.mapped(&self.pairs, at, len), to) {
            Err(CopyError::Failed(error)) => Err(error),
            Err(CopyError::Unreachable(_)) => {
                let mut bytes = vec![0; len];
                self.read_held(at, &mut bytes);
                self.own.write(to, &bytes)
            }
            Ok(()) => Ok(()),
        }
    }

    fn payload_max(&self) -> usize {
        PAYLOAD_MAX
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        self.own.read(from, into)
    }

    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError> {
        self.own.write(to, from)
    }

    fn bounce_bytes(&self) -> u64 {
        BOUNCE_BYTES
    }

    fn make_bounce_buffer(&mut self) -> Option<u64> {
        self.own.make_bounce_buffer()
    }

    fn reaches_bounce_buffers(&mut self, peer: Rank) -> bool {
        self.peers.near().get(peer).is_some_and(|near| near.reach.attach().is_err())
    }

    fn copy_own(&mut self, from: Place, to: Place, len: u64) -> Result<(), OpError> {
        self.own.copy(from, to, len)
    }

    fn reaches(&mut self, peer: Rank, pieces: &[Piece]) -> Result<(), PathReason> {
        match self.peers.get(peer, Some(SEND_WITHIN)) {
            Ok(Peer::Near(known)) => reaches(known, pieces),
            Ok(Peer::Far(_)) => Err(PathReason::Network),
            // The copy says that it is lost.
            Err(_) => Ok(()),
        }
    }

    fn copy(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[Piece]) -> Submit {
        self.copy_by(op, peer, direction, pieces, true)
    }

    fn take_unreached(&mut self, op: OpId) -> Option<(Direction, Vec<Piece>)> {
        self.copiers.as_mut()?.take_unreached(op)
    }

    fn abandon(&mut self, op: OpId) -> bool {
        if let Some(copiers) = &mut self.copiers {
            copiers.abandon(op);
        }
        // No step goes on after that.
        false
    }

    fn copy_bounced(&mut self, op: OpId, peer: Rank, direction: Direction, piece: Piece) -> Submit {
        // Other than cross-memory attach, a copy by this process's own hands would end it where nothing is.
        if !self.own.is_there(piece.local, piece.len, direction) {
            let Piece { local, len, .. } = piece;
            return Submit::Failed(OpError::LocalFault { mem: local.mem, addr: local.offset, len });
        }
        self.copy_by(op, peer, direction, &[piece], false)
    }

    fn change_own(&mut self, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        self.own.change(word, atomic)
    }

    fn atomic(&mut self, _op: OpId, peer: Rank, word: Place, atomic: Atomic) -> Submit {
        // The barrier's counter stays readable when its keeper is gone: it is mapped.
        let known = match self.peers.known(peer) {
            Some(known) => known,
            None => match self.peers.get(peer, Some(SEND_WITHIN)) {
                Ok(known) => known,
                Err(_) => return Submit::Failed(OpError::PeerLost { peer }),
            },
        };
        let Peer::Near(known) = known else { return Submit::Unreachable(PathReason::Network) };
        let done = atomic_at(known, word, atomic);
        if atomic.signals && done.is_ok() {
            known.bell.poke();
        }
        done.map_or_else(Submit::Failed, Submit::Done)
    }
}
