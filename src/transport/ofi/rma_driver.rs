//! Copies by key: starting them, going on with them, ending them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use engine::{Direction, Event, KeyedPiece, OpError, OpId, Rank, Submit};
use fabric::{Desc, Until};

use super::buffers::{Buffer, Purpose, Size};
use super::endpoint::{Kept, NotStarted};
use super::link::{DIRECT, Link, PARTS};
use super::rma_state::{Part, RmaOp, RmaOps};
use super::transport::OfiTransport;

/// How long reads may take to end where the endpoint that they were started from could not be closed before.
const READS_END: Duration = Duration::from_millis(20);

/// How long an auxiliary endpoint may have no room, and nothing to carry, before copies go through buffers.
const AUX_ENDPOINT_WITHIN: Duration = Duration::from_secs(2);

/// After an auxiliary endpoint did not reach a peer the next is tried so much later; twice that after each
/// more, but no later than this.
const AUX_ENDPOINT_PAUSE: Duration = Duration::from_secs(10);
const AUX_ENDPOINT_PAUSE_MAX: Duration = Duration::from_secs(600);

/// How far a copy has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advanced {
    /// All of it that can be is under way, or it is over.
    On,
    /// It waits behind others.
    Behind,
    /// There is no room for its next part now.
    Refused,
}

/// Why a part is not started.
enum Refused {
    /// There is no room for it now.
    Now,
    /// This process has no memory where it begins or ends.
    Absent,
    /// Nothing more is to be started of its copy as it was.
    Lost,
}

impl OfiTransport {
    #[inline(always)]
    pub(super) fn start_copy(
        &mut self,
        op: OpId,
        rank: Rank,
        direction: Direction,
        pieces: &[KeyedPiece],
    ) -> Submit {
        match pieces {
            [keyed] => self.start_one(op, rank, direction, keyed),
            _ => self.start_longer(op, rank, direction, pieces),
        }
    }

    /// Starts a copy of which something has to be kept.
    #[inline(never)]
    pub(super) fn start_longer(
        &mut self,
        op: OpId,
        rank: Rank,
        direction: Direction,
        pieces: &[KeyedPiece],
    ) -> Submit {
        let peer = match self.link(rank) {
            Ok(link) => link.peer,
            Err(error) => return Submit::Failed(error),
        };
        let Some(peer) = peer else {
            return Submit::Failed(OpError::Protocol { peer: rank, what: "a copy by key to oneself" });
        };
        let copy = self.copies.insert(op, rank, peer, direction, pieces);
        let bytes = self.copies.all[copy].bytes();
        let is_long = bytes > Size::Small.bytes() as u64;
        if is_long && self.may_be_direct(rank, direction, bytes) {
            self.carry(copy, rank);
        }
        self.advance(copy, false);
        Submit::Pending
    }

    /// Gives a copy to an auxiliary endpoint, if one can be had. Copies that the network does not seem to
    /// carry go in small parts: over a slow one, these end.
    fn carry(&mut self, copy: usize, rank: Rank) {
        let known = &mut self.copies.all[copy];
        known.pooled = self.endpoint_pool.enter(rank, &mut self.endpoint);
        if self.links.get(rank).is_some_and(|link| link.copying.doubts_aux_endpoints) {
            known.direct_max = Size::Large.bytes();
        }
    }

    /// Whether the caller's memory may be lent for a copy, as there is a way to have it back. A put needs
    /// an endpoint at the peer, too, that the peer can close: if there is none, it is asked for.
    fn may_be_direct(&mut self, rank: Rank, direction: Direction, bytes: u64) -> bool {
        let is_reached = |link: &Link| !link.copying.suspect && link.copying.aux_endpoint_pause.is_over();
        let reached = self.links.get(rank).is_some_and(is_reached);
        reached && (direction == Direction::Get || self.copies.delivers && self.has_landing(rank, bytes))
    }

    /// Starts as many parts of a copy as there is room for, and ends it when nothing is left of it. Behind
    /// others that wait for the same kind of place it waits, too, unless it is its `turn`.
    fn advance(&mut self, copy: usize, mut turn: bool) -> Advanced {
        loop {
            let Some(known) = self.copies.all.get_mut(copy) else { return Advanced::On };
            if known.is_started() && known.under_way > 0 {
                return Advanced::On;
            }
            // Written bytes are still to be found there.
            if known.is_started() && (known.confirmed || known.error.is_some() || known.pieces.is_empty()) {
                // A copy that was broken off may still arrive, until the peer says that it cannot.
                if !known.doubtful || known.error.is_some() {
                    self.end_copy(copy);
                }
                return Advanced::On;
            }
            let part = self.copies.next_part(copy);
            if !turn && self.has_others(copy, part.kind()) {
                self.wait(copy, part.kind(), false);
                return Advanced::Behind;
            }
            match self.start_part(part) {
                Ok(()) => turn = false,
                // This waits for operations under way.
                Err(Refused::Absent) => {}
                Err(Refused::Lost) => return Advanced::On,
                Err(Refused::Now) => {
                    self.wait(copy, part.kind(), turn);
                    return Advanced::Refused;
                }
            }
        }
    }

    /// Whether copies wait for a place of this kind with the same peer, this one among them or not.
    fn has_others(&self, copy: usize, kind: usize) -> bool {
        let rank = self.copies.all[copy].rank;
        self.links.get(rank).is_some_and(|link| !link.copying.copies[kind].is_empty())
    }

    /// Has a copy, which holds nothing, wait for a place of this kind: as the `first`, or behind the others.
    fn wait(&mut self, copy: usize, kind: usize, first: bool) {
        let known = &mut self.copies.all[copy];
        let Some(link) = self.links.get_mut(known.rank) else { return };
        if known.waits.replace(kind) == Some(kind) {
            return;
        }
        match first {
            true => link.copying.copies[kind].push_front(copy),
            false => link.copying.copies[kind].push_back(copy),
        }
    }

    /// Starts a part. Where that is refused nothing is held for it any more, and its copy goes on later. That
    /// is when a part of its kind has ended, if there are as many as may be, and otherwise when it is tried
    /// again.
    fn start_part(&mut self, part: Part) -> Result<(), Refused> {
        let (rank, kind) = (self.copies.all[part.copy].rank, part.kind());
        let link = self.links.get_mut(rank).ok_or(Refused::Lost)?;
        if link.copying.parts[kind] >= PARTS[kind] {
            return Err(Refused::Now);
        }
        let mut buffer = None;
        if !part.direct {
            let Some(taken) = self.endpoint.take(part.size()) else { return Err(self.lack_buffer(&part)) };
            if self.copies.sends(&part) {
                if !self.has_memory(&part) {
                    self.endpoint.buffers.put_back(taken);
                    return Err(Refused::Absent);
                }
                self.copies.fill(&part, &self.endpoint.buffers, &taken);
            }
            buffer = Some(taken);
        }
        let number = self.copies.parts.insert(part);
        let started = match buffer {
            Some(buffer) => self.start_buffered(buffer, part, number),
            None => self.start_direct(part, number).map_err(|busy| (None, busy)),
        };
        match started {
            Ok(()) => self.note_started(&part),
            Err((buffer, busy)) => {
                self.copies.parts.remove(number);
                buffer.into_iter().for_each(|buffer| self.endpoint.buffers.put_back(buffer));
                return Err(self.refused(&part, busy));
            }
        }
        Ok(())
    }

    /// The provider has taken a part.
    fn note_started(&mut self, part: &Part) {
        let rank = self.copies.all[part.copy].rank;
        self.copies.all[part.copy].under_way += 1;
        if !part.confirms {
            self.copies.pass(part);
        }
        let Some(link) = self.links.get_mut(rank) else { return };
        link.copying.parts[part.kind()] += 1;
        match part.direct {
            true => link.copying.aux_endpoint_pause.end(),
            // The endpoint's own connection has room.
            false => link.has_room(),
        }
    }

    /// The provider has not taken a part: not now, if it is `busy`.
    fn refused(&mut self, part: &Part, busy: bool) -> Refused {
        let rank = self.copies.all[part.copy].rank;
        match (busy, part.direct) {
            // That it is closed is told, and then the put goes on.
            (true, true) if self.copies.sends(part) && self.is_landing_closing(rank) => {}
            (true, true) => self.doubt_pooled(part.copy),
            (true, false) => self.grow_impatient(rank),
            (false, true) if self.lacks_memory(part.copy) => {}
            (false, _) => self.lose(rank),
        }
        self.waits_on(part)
    }

    /// There is no memory for a part's buffer. Others have some under way, which come back; where none has,
    /// the peer is not waited for for ever.
    fn lack_buffer(&mut self, part: &Part) -> Refused {
        let rank = self.copies.all[part.copy].rank;
        if self.copies.parts.is_empty() {
            self.lack_memory(rank)
        } else {
            self.try_again(rank)
        }
        self.waits_on(part)
    }

    /// Whether a part still waits once its refusal is dealt with: all that was with the peer may be over by
    /// now, or go another way.
    fn waits_on(&self, part: &Part) -> Refused {
        match self.copies.all.get(part.copy) {
            Some(copy) if copy.error.is_none() && (copy.pooled.is_some() || !part.direct) => Refused::Now,
            _ => Refused::Lost,
        }
    }

    /// A place is free again.
    pub(super) fn release(&mut self, rank: Rank, kind: usize) {
        if let Some(link) = self.links.get_mut(rank) {
            assert!(link.copying.parts[kind] > 0, "a part ends once");
            link.copying.parts[kind] -= 1;
        }
    }

    /// Gives the provider a part in a buffer. `Err`: the buffer again, and whether it may be taken another
    /// time.
    fn start_buffered(
        &mut self,
        buffer: Buffer,
        part: Part,
        number: usize,
    ) -> Result<(), (Option<Buffer>, bool)> {
        let known = &self.copies.all[part.copy];
        let (list, count) = self.copies.remote(&part);
        let until = if self.copies.delivers { Until::Delivered } else { Until::Reusable };
        let lent = if known.direction == Direction::Put && !part.confirms {
            self.endpoint.write(known.peer, &list[..count], (buffer, part.len), until, Purpose::Part(number))
        } else {
            self.endpoint.read(known.peer, &list[..count], (buffer, part.len), Purpose::Part(number))
        };
        lent.map_err(|Kept { buffer, busy }| (Some(buffer), busy))
    }

    /// Gives the provider a part in the caller's memory. `Err`: whether it may be taken another time.
    fn start_direct(&mut self, part: Part, number: usize) -> Result<(), bool> {
        let known = &self.copies.all[part.copy];
        let (rank, direction, pooled) = (known.rank, known.direction, known.pooled.ok_or(false)?);
        let aux_endpoint = self.endpoint_pool.aux_endpoint(pooled).ok_or(false)?;
        let peer = match direction {
            Direction::Get => known.peer,
            Direction::Put => self.landing(rank).ok_or(true)?,
        };
        let (list, count) = self.copies.remote(&part);
        let regions = &self.regions;
        let desc = |reg| regions.get(&reg).map_or(Desc::NONE, |registered| registered.desc);
        let (lent, lent_count) = self.copies.local(&part, desc);
        let started = self.endpoint.copy_from_aux_endpoint(
            aux_endpoint,
            (direction, peer),
            &lent[..lent_count],
            &list[..count],
            number,
        );
        started.map_err(|NotStarted { busy }| busy)?;
        self.endpoint_pool.load(pooled);
        Ok(())
    }

    /// The auxiliary endpoint has no room for a part of a copy: it is to be tried again, but not for ever. It
    /// has a connection of its own, and the peer may be reached by the endpoint's all the while. So it is not
    /// lost by this, and the next auxiliary endpoint is not tried at once.
    fn doubt_pooled(&mut self, copy: usize) {
        let RmaOp { rank, pooled: Some(pooled), .. } = self.copies.all[copy] else { return };
        self.try_again(rank);
        if self.endpoint_pool.found_no_room(pooled) > AUX_ENDPOINT_WITHIN {
            if let Some(link) = self.links.get_mut(rank) {
                link.copying.aux_endpoint_pause.failed(
                    Instant::now(),
                    AUX_ENDPOINT_PAUSE,
                    AUX_ENDPOINT_PAUSE_MAX,
                );
            }
            tracing::warn!(
                peer = rank,
                "the endpoint for long copies does not reach the peer: they go through buffers"
            );
            self.break_off(rank);
        }
    }

    /// A part has ended.
    pub(super) fn on_part(&mut self, number: usize, buffer: Option<Buffer>, done: bool) {
        if !done && buffer.is_none() {
            return self.on_aux_endpoint_failed(number);
        }
        let part = self.copies.parts.remove(number);
        let known = &mut self.copies.all[part.copy];
        assert!(known.under_way > 0, "a part ends once");
        known.under_way -= 1;
        known.confirmed |= part.confirms && done;
        let (rank, wanted) = (known.rank, !known.given_up && known.error.is_none());
        match (&buffer, known.pooled) {
            (None, Some(pooled)) => self.endpoint_pool.unload(pooled),
            (Some(buffer), _)
                if done && wanted && known.direction == Direction::Get && self.has_memory(&part) =>
            {
                self.copies.drain(&part, &self.endpoint.buffers, buffer);
            }
            _ => {}
        }
        if let Some(link) = self.links.get_mut(rank) {
            link.copying.suspect &= part.direct || !done;
            link.copying.doubts_aux_endpoints &= !part.direct;
        }
        self.release(rank, part.kind());
        buffer.into_iter().for_each(|buffer| self.endpoint.buffers.put_back(buffer));
        if !done {
            self.lose(rank);
        }
        self.go_on_with_copies(rank, part.kind());
        self.advance(part.copy, false);
    }

    /// A part has failed at an auxiliary endpoint, and with it the auxiliary endpoint's connection. The peer
    /// may be there all the same: copies with it that go on by the endpoint's connection find that out.
    #[cold]
    fn on_aux_endpoint_failed(&mut self, number: usize) {
        let copy = self.copies.parts[number].copy;
        if !self.lacks_memory(copy) {
            let rank = self.copies.all[copy].rank;
            if !vm::fault_safe_copy::can_tell() {
                // It may be memory that is not there, and going on through a buffer would end this process.
                return self.lose(rank);
            }
            tracing::debug!(peer = rank, "an endpoint for long copies has lost its connection");
            self.break_off(rank);
        }
    }

    /// For long no part has ended at the auxiliary endpoint for a peer that is heard from. The network does
    /// not carry what it took, as one does that forgot a connection, or drops long packets. Its copies begin
    /// anew by another auxiliary endpoint, and not by the endpoint's connection, which that network would
    /// end. If it was so with the last one, too, they end.
    #[cold]
    pub(super) fn doubt_aux_endpoint(&mut self, rank: Rank) {
        let Some(link) = self.links.get_mut(rank) else { return };
        let again = std::mem::replace(&mut link.copying.doubts_aux_endpoints, true);
        let what = if again { "they end" } else { "they begin anew by another" };
        tracing::warn!(
            peer = rank,
            "the network does not carry long copies by the connection that has them: {what}"
        );
        for copy in self.take_back(rank) {
            let known = &mut self.copies.all[copy];
            if again {
                (known.given_up, known.fault) = (true, Some(OpError::Timeout { peer: rank }));
            } else {
                self.carry(copy, rank);
            }
        }
        self.begin_anew(rank);
    }

    /// Whether callers' memory has failed the auxiliary endpoint of this copy. Its other copies begin anew.
    #[cold]
    fn lacks_memory(&mut self, copy: usize) -> bool {
        let lacks = self.gives_faults_up(copy);
        if lacks {
            let rank = self.copies.all[copy].rank;
            tracing::debug!(peer = rank, "memory of this process is not there: other copies begin anew");
            self.break_off(rank);
        }
        lacks
    }

    /// Goes on with the copies that wait for a place of this kind with a peer, in turn, until there is none
    /// again.
    pub(super) fn go_on_with_copies(&mut self, rank: Rank, kind: usize) {
        while let Some(copy) = self.links.get_mut(rank).and_then(|link| link.copying.copies[kind].pop_front())
        {
            // It may be over, or wait for something else by now.
            let waits = |known: &&mut RmaOp| known.waits == Some(kind) && known.rank == rank;
            if let Some(known) = self.copies.all.get_mut(copy).filter(waits) {
                known.waits = None;
                if self.advance(copy, true) == Advanced::Refused {
                    return;
                }
            }
        }
    }

    /// Has a copy touch no local memory any more. It is still reported, when it touches none of the peer's
    /// either. Returns whether it is a put that may still write there.
    pub(super) fn abandon_copy(&mut self, op: OpId) -> bool {
        let abandoned = |copies: &RmaOps| {
            let found = copies.all.iter().find(|(_, copy)| copy.op == op && !copy.reported);
            found.map(|(number, copy)| (number, copy.rank))
        };
        let Some((copy, rank)) = abandoned(&self.copies) else { return false };
        let is_put = self.copies.all[copy].direction == Direction::Put;
        self.copies.all[copy].given_up = true;
        if self.is_lent_for(copy) {
            // It may have ended, and so may have others that need not be broken off then.
            self.progress_while(|_| true);
            let begun = Instant::now();
            while begun.elapsed() < READS_END
                && abandoned(&self.copies).is_some_and(|(copy, _)| self.would_stay_open(copy))
            {
                self.progress_while(|_| true);
            }
        }
        if abandoned(&self.copies).is_none() {
            return false;
        }
        if self.is_lent_for(copy) {
            tracing::debug!(peer = rank, "copies are broken off to have their memory back");
            self.break_off(rank);
        } else {
            self.advance(copy, false);
        }
        is_put && abandoned(&self.copies).is_some()
    }

    /// There is no landing for puts to this peer, so those that wait for one go through buffers.
    #[cold]
    pub(super) fn carry_no_puts(&mut self, rank: Rank) {
        for copy in self.copies.with(rank) {
            if self.copies.all[copy].direction == Direction::Put
                && !self.is_lent_for(copy)
                && let Some(pooled) = self.copies.all[copy].pooled.take()
            {
                self.endpoint_pool.leave(pooled);
            }
        }
    }

    /// Whether a copy's memory can be had back only by an endpoint that is left to the process for good, with
    /// its connections and buffers.
    #[cold]
    fn would_stay_open(&self, copy: usize) -> bool {
        let pooled = self.copies.all[copy].pooled.filter(|_| self.is_lent_for(copy));
        let aux_endpoint = pooled.and_then(|pooled| self.endpoint_pool.aux_endpoint(pooled));
        aux_endpoint.is_some_and(|aux_endpoint| self.endpoint.stays_open(aux_endpoint))
    }

    /// Whether the provider has a part of a copy in the caller's memory.
    fn is_lent_for(&self, copy: usize) -> bool {
        self.copies.parts.iter().any(|(_, part)| part.direct && part.copy == copy)
    }

    /// Takes back all callers' memory that is lent for copies with a peer. Parts of these that have not ended
    /// go through buffers from now on.
    fn break_off(&mut self, rank: Rank) {
        if let Some(link) = self.links.get_mut(rank) {
            link.copying.suspect = true;
        }
        self.take_back(rank);
        self.begin_anew(rank);
    }

    /// Closes the auxiliary endpoint for a peer, if there is one. Returns the copies that it carried. Where
    /// puts of them were under way, the peer is asked to close the endpoint at which they come in.
    fn take_back(&mut self, rank: Rank) -> Vec<usize> {
        let mut carried = self.copies.with(rank);
        carried.retain(|copy| {
            let Some(pooled) = self.copies.all[*copy].pooled.take() else { return false };
            self.endpoint_pool.close(pooled, &mut self.endpoint);
            self.take_from(pooled, *copy);
            self.endpoint_pool.leave(pooled);
            true
        });
        if carried.iter().any(|copy| self.copies.all[*copy].doubtful) {
            self.quit_landing(rank);
        }
        carried
    }

    /// Goes on with all copies with a peer, whose auxiliary endpoint is closed: those first that waited for
    /// it, in the same order.
    fn begin_anew(&mut self, rank: Rank) {
        let link = self.links.get_mut(rank);
        let waiting =
            link.map_or_else(VecDeque::new, |link| std::mem::take(&mut link.copying.copies[DIRECT]));
        for copy in &waiting {
            let waits = |known: &&mut RmaOp| known.waits == Some(DIRECT) && known.rank == rank;
            self.copies.all.get_mut(*copy).filter(waits).into_iter().for_each(|known| known.waits = None);
        }
        let all = self.copies.with(rank);
        waiting.into_iter().chain(all).for_each(|copy| _ = self.advance(copy, false));
    }

    /// Takes the parts of a copy from a pooled endpoint that is closed.
    fn take_from(&mut self, pooled: usize, copy: usize) {
        let RmaOps { all, parts, .. } = &mut self.copies;
        let known = &mut all[copy];
        let (mut lost, mut first) = (0, None);
        parts.retain(|_, part| {
            let lent = part.direct && part.copy == copy;
            if lent {
                lost += 1;
                first = Some(first.map_or(part.from, |first| part.from.min(first)));
            }
            !lent
        });
        known.under_way -= lost;
        let rank = known.rank;
        if let Some(first) = first {
            known.restart(first);
        }
        for _ in 0..lost {
            self.endpoint_pool.unload(pooled);
            self.release(rank, DIRECT);
        }
    }

    /// Nothing that was broken off of copies with a peer can arrive any more.
    pub(super) fn settle_copies(&mut self, rank: Rank) {
        for copy in self.copies.with(rank) {
            if let Some(known) = self.copies.all.get_mut(copy)
                && std::mem::take(&mut known.doubtful)
            {
                self.advance(copy, false);
            }
        }
    }

    /// Ends all copies with a peer that is gone. The parts that the provider still has of them then are in
    /// buffers of this transport.
    pub(super) fn lose_copies(&mut self, rank: Rank) {
        for copy in self.copies.with(rank) {
            self.copies.all[copy].error = Some(OpError::PeerLost { peer: rank });
        }
        self.break_off(rank);
        self.lose_smalls(rank);
        for copy in self.copies.with(rank) {
            self.report(copy);
            self.advance(copy, false);
        }
    }

    fn report(&mut self, copy: usize) {
        let known = &mut self.copies.all[copy];
        if !std::mem::replace(&mut known.reported, true) {
            let result = known.error.or(known.fault).map_or(Ok(0), Err);
            self.events.push_back(Event::Completed { op: known.op, result });
        }
    }

    fn end_copy(&mut self, copy: usize) {
        self.report(copy);
        if let Some(pooled) = self.copies.all[copy].pooled {
            self.endpoint_pool.leave(pooled);
        }
        self.copies.remove(copy);
    }
}
