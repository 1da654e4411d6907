//! What ranks do.

use std::sync::Arc;

use engine::{
    AmBody, AmSend, Atomic, Direction, GrantId, Lane, MemId, Nanos, OpId, Piece, Place, Rank, Rights,
    WordType,
};

use super::active_messages::InFlightMessage;
use super::counters::{
    ASKEW, BEYOND, Counter, Counting, GRANTED_BYTES, PLACE_BYTES, PLACES, RECENT_COUNTERS, Revoked,
};
use super::granted::{FORGED_LINE, Granted, Name, Named, SLOT_WORDS, Since};
use super::locality::{HEAP, behind};
use super::run::{Flying, Health, Run, SLOT_BYTES, SLOTS, Work};
use super::shadow::{Shadow, WORD, Words};
use crate::space;

/// Pieces of an operation, at most.
const PIECES_MAX: u64 = 6;

/// Names, at most, from the newest on, of which ranks mostly take one.
const RECENT: u64 = 12;

/// Words, at most, of a piece by a name.
const PIECE_WORDS_MAX: u64 = 256;

/// Words of most pieces, at most.
const FEW_WORDS: u64 = 16;

impl Run {
    /// `rank` does one thing, if it can.
    pub(super) fn act(&mut self, rank: Rank) {
        if let Some(owner) = self.crews[rank as usize].curious.take() {
            return self.get_news(rank, owner);
        }
        if self.acts_by_grants(rank) {
            return;
        }
        let peer = self.peer(rank);
        match self.dice.below(16) {
            0..5 => self.put(rank),
            5..9 => self.get(rank, peer),
            9..11 => self.count(rank, peer),
            11..14 => self.send(rank, peer),
            14 => self.look_for_news(rank),
            _ => self.cancel_one(rank),
        }
    }

    /// Somebody, mostly one of two.
    fn peer(&mut self, rank: Rank) -> Rank {
        let ranks = u64::from(self.cluster.size());
        match self.dice.below(32) {
            0 => rank,
            1..26 => (rank + 1 + self.dice.below(2) as Rank) % ranks as Rank,
            _ => self.dice.below(ranks) as Rank,
        }
    }

    fn put(&mut self, rank: Rank) {
        let Some(slot) = self.free_slot(rank) else { return };
        // It writes to those ranks before it that have words for it.
        let distance = behind(&mut self.dice, self.shadow.writers);
        let words = self.words(rank, slot, Some(distance));
        self.put_words(rank, distance, slot, words);
    }

    /// Puts a word into the heap of the rank before, where others look for news.
    pub(super) fn put_news(&mut self, rank: Rank) {
        let distance = 1;
        let (Some(slot), heap) = (self.free_slot(rank), self.shadow.regions[HEAP]) else { return };
        let local = self.crews[rank as usize].slots.offset + u64::from(slot) * SLOT_BYTES;
        let first = heap.first + distance * heap.grain;
        let words = self.one_word(first, local);
        self.put_words(rank, distance, slot, words);
    }

    /// Gets the word that somebody puts its news to.
    fn look_for_news(&mut self, rank: Rank) {
        let (Some(slot), heap) = (self.free_slot(rank), self.shadow.regions[HEAP]) else { return };
        let local = self.crews[rank as usize].slots.offset + u64::from(slot) * SLOT_BYTES;
        let peer = self.dice.below(u64::from(self.cluster.size())) as Rank;
        let words = self.one_word(heap.first + heap.grain, local);
        self.get_words(rank, peer, slot, words);
    }

    fn put_words(&mut self, rank: Rank, distance: Rank, slot: u32, words: Vec<Words>) {
        let ranks = self.cluster.size();
        let peer = (rank + ranks - distance) % ranks;
        let put = self.shadow.next_put();
        for Words { first, count, local } in &words {
            let all = space::first(&mut self.bytes, u64::from(*count) * WORD);
            for (word, bytes) in (*first..).zip(all.as_chunks_mut().0) {
                *bytes = Shadow::value(put, word).to_ne_bytes();
            }
            if self.cluster.poke(rank, Place::new(MemId::Space, *local), all).is_err() {
                // What is unmapped is put nonetheless where nothing but zeros can come of it.
                if words.len() > 1 || !self.shadow.is_one_page(*local, u64::from(*count) * WORD) {
                    return;
                }
                self.shadow.loosen(peer, &words[0]);
            }
        }
        let known = self.knowledge.of(rank);
        let target = (peer, self.cluster.met(rank, peer));
        assert_eq!(self.shadow.begin_put(rank, target, known.clone()), put, "numbers are given in turn");
        let under_way = self.crews[rank as usize].flying.iter();
        let puts = under_way.filter_map(|flying| match flying.work {
            Work::Put { put, .. } => Some(put),
            _ => None,
        });
        let below = puts.min().unwrap_or(put);
        self.plan(&words);
        let deadline = self.deadline(rank);
        let message = if self.dice.once_in(6) {
            let incarnations = self.incarnations(rank, peer);
            let landed = Some((words.to_vec(), below));
            let lane = Lane::Request;
            Some(self.messages.write(InFlightMessage {
                from: rank,
                to: peer,
                incarnations,
                lane,
                known,
                len: 0,
                landed,
            }))
        } else {
            None
        };
        let id = match message {
            Some(message) => {
                let landed = self.shadow.place(words[0].first);
                let args = [message, 0, 0, 0];
                let body = AmBody::Long(landed, words[0].count * WORD as u32);
                let message = AmSend { peer, lane: Lane::Request, handler: 0, args, body };
                self.cluster.node(rank).transfer_then_am(&self.pieces, &message, deadline)
            }
            None => self.cluster.node(rank).transfer(peer, Direction::Put, &self.pieces, deadline),
        };
        let work = Work::Put { put, below, words, message };
        self.launch(rank, peer, Some(slot), id, deadline, work);
    }

    /// Puts other bytes to the same words of a peer's as before: they are to stay.
    pub(super) fn put_again(&mut self, rank: Rank, peer: Rank, mut words: Vec<Words>) {
        let Some(slot) = self.free_slot(rank) else { return };
        let slots = self.crews[rank as usize].slots.offset;
        for words in &mut words {
            words.local = slots + u64::from(slot) * SLOT_BYTES + (words.local - slots) % SLOT_BYTES;
        }
        let ranks = self.cluster.size();
        self.put_words(rank, (rank + ranks - peer) % ranks, slot, words);
    }

    fn get(&mut self, rank: Rank, peer: Rank) {
        let Some(slot) = self.free_slot(rank) else { return };
        let words = self.words(rank, slot, None);
        self.get_words(rank, peer, slot, words);
    }

    /// Gets some of the memory that is said to have changed: whoever has an old right to it must not use it.
    fn get_news(&mut self, rank: Rank, owner: Rank) {
        let Some(slot) = self.free_slot(rank) else { return };
        let Some(first) = self.shadow.word_at(self.knowledge.place(owner)) else { return };
        let local = self.crews[rank as usize].slots.offset + u64::from(slot) * SLOT_BYTES;
        let words = self.one_word(first, local);
        self.get_words(rank, owner, slot, words);
    }

    fn get_words(&mut self, rank: Rank, peer: Rank, slot: u32, words: Vec<Words>) {
        self.plan(&words);
        let mut floors = self.spare.floors();
        words.iter().for_each(|words| floors.extend_from_slice(self.shadow.floors(peer, words)));
        let deadline = self.deadline(rank);
        let id = self.cluster.node(rank).transfer(peer, Direction::Get, &self.pieces, deadline);
        let work = Work::Get { words, floors };
        self.launch(rank, peer, Some(slot), id, deadline, work);
    }

    fn count(&mut self, rank: Rank, peer: Rank) {
        let deadline = self.deadline(rank);
        let word = self.counter;
        if self.dice.once_in(4) {
            let floor = self.counts[peer as usize].len() as u64;
            let load = Atomic::load(WordType::U64);
            let id = self.cluster.node(rank).atomic(peer, word, load, deadline);
            return self.launch(rank, peer, None, id, deadline, Work::Look { floor });
        }
        let id = self.cluster.node(rank).atomic(peer, word, Atomic::fetch_add(1), deadline);
        // At another process it counts nothing.
        self.counts_begun[peer as usize] += u64::from(!self.is_apart(rank, peer));
        self.launch(rank, peer, None, id, deadline, Work::Count);
    }

    fn cancel_one(&mut self, rank: Rank) {
        let flying = &mut self.crews[rank as usize].flying;
        if flying.is_empty() || !self.dice.once_in(4) {
            return;
        }
        let index = self.dice.below(flying.len() as u64) as usize;
        flying[index].timed = true;
        self.cluster.node(rank).cancel(flying[index].id);
        self.cluster.compute(rank, 0);
    }

    /// Notes an operation of `rank` with `peer` that was started.
    fn launch(
        &mut self,
        rank: Rank,
        peer: Rank,
        slot: Option<u32>,
        id: OpId,
        deadline: Option<Nanos>,
        work: Work,
    ) {
        let (known, met) = (self.knowledge.about(rank, peer), self.cluster.met(rank, peer));
        let (started, timed) = (self.step, deadline.is_some());
        // It may be over already, and nothing else may come.
        let is_over = self.cluster.view(rank).is_done(id);
        let crew = &mut self.crews[rank as usize];
        crew.slots_used |= slot.map_or(0, |slot| 1 << slot);
        crew.flying.push(Flying { id, peer, met, started, known, timed, slot, work });
        if is_over {
            self.cluster.compute(rank, 0);
        }
    }

    fn deadline(&mut self, rank: Rank) -> Option<Nanos> {
        if !self.dice.once_in(10) || !self.is(rank, Health::Alive) {
            return None;
        }
        let deadline = self.cluster.time_of(rank) + self.dice.small(400) * self.latency;
        self.cluster.alarm(rank, deadline);
        Some(deadline)
    }

    /// A local buffer that nobody uses.
    fn free_slot(&mut self, rank: Rank) -> Option<u32> {
        // Mostly the first, which was used just before.
        let from = if self.dice.once_in(8) { self.dice.below(u64::from(SLOTS)) as u32 } else { 0 };
        let used = self.crews[rank as usize].slots_used;
        let free = !used & ((1 << SLOTS) - 1);
        let after = free >> from << from;
        // From there on, or else from the first on.
        let slots = if after > 0 { after } else { free };
        (slots > 0).then(|| slots.trailing_zeros())
    }

    /// Words of a peer's: those of the writer so many ranks behind it, or anyone's.
    fn words(&mut self, rank: Rank, slot: u32, writer: Option<Rank>) -> Vec<Words> {
        let count = if self.dice.once_in(8) { 1 + self.dice.below(PIECES_MAX) } else { 1 };
        let slots = self.crews[rank as usize].slots.offset;
        let start = slots + u64::from(slot) * SLOT_BYTES;
        let mut local = start + self.dice.below(64) * WORD;
        let mut all = self.spare.words();
        let mixes = self.dice.once_in(3);
        let mut spot = self.locality.next(&mut self.dice, &self.shadow);
        for index in 0..count {
            if index > 0 && mixes {
                spot = self.locality.next(&mut self.dice, &self.shadow);
            }
            let region = spot.region;
            let unit = spot.group * self.shadow.writers + writer.unwrap_or(spot.writer);
            let end = if writer.is_some() { unit + 1 } else { region.units };
            let usual = if spot.usual { region.grain.div_ceil(16) } else { region.grain };
            let from = unit * region.grain + self.dice.below(u64::from(usual)) as u32;
            let room = end * region.grain - from;
            let most = u64::from(room).min((start + SLOT_BYTES - local) / WORD);
            if most == 0 {
                break;
            }
            let most = if self.dice.once_in(8) { most } else { most.min(FEW_WORDS) };
            let count = self.dice.small(most) as u32;
            all.push(Words { first: region.first + from, count, local });
            local += u64::from(count) * WORD;
        }
        all
    }

    fn one_word(&mut self, first: u32, local: u64) -> Vec<Words> {
        let mut words = self.spare.words();
        words.push(Words { first, count: 1, local });
        words
    }

    /// Makes the pieces that are to be copied.
    fn plan(&mut self, words: &[Words]) {
        let piece = |words: &Words| {
            let (remote, local) = (self.shadow.place(words.first), Place::new(MemId::Space, words.local));
            Piece::new(remote, local, u64::from(words.count) * WORD)
        };
        self.pieces.clear();
        self.pieces
            .extend(words.iter().map(|words| piece(words).expect("simulated memory does not reach 2^64")));
    }

    /// Has `rank` do something by grants, in some storms and sometimes. `false`: it does something else.
    fn acts_by_grants(&mut self, rank: Rank) -> bool {
        if self.granted.is_none() || !self.dice.once_in(3) {
            return false;
        }
        if self.dice.once_in(4) {
            self.act_by_counter(rank);
            return true;
        }
        match self.dice.below(16) {
            0..2 => self.grant(rank),
            2 => self.revoke(rank),
            3 => self.repoint(rank),
            4..10 => self.start_by_name(rank, Direction::Get),
            _ => self.start_by_name(rank, Direction::Put),
        }
        true
    }

    /// `rank` grants a counter, takes one back, or counts.
    fn act_by_counter(&mut self, rank: Rank) {
        let place = self.dice.below(PLACES.into()) as u32;
        match self.dice.below(8) {
            0 => self.grant_counter(rank, place),
            1 => self.revoke_counter(rank, place),
            _ => self.count_by_name(rank),
        }
    }

    fn grant_counter(&mut self, rank: Rank, place: u32) {
        let ranks = u64::from(self.cluster.size());
        let rights = self.dice.pick(&[Rights::ReadWrite, Rights::ReadWrite, Rights::Write, Rights::Read]);
        let some = self.dice.once_in(4).then(|| Arc::new(vec![self.dice.below(ranks) as Rank]));
        let Some(granted) = &mut self.granted else { return };
        let start = granted.counter_place(place);
        let is_taken = granted.counters.live[rank as usize][place as usize].is_some();
        if is_taken || self.cluster.poke(rank, start, &[0; PLACE_BYTES as usize]).is_err() {
            return;
        }
        let (start, len, to) = (start.offset, GRANTED_BYTES, some.clone());
        let made = self.cluster.node(rank).grant(engine::Granted { start, len, rights, to: some });
        let (id, incarnation) = (made.expect("there are few of them"), self.cluster.incarnation(rank));
        let counters = &mut granted.counters;
        counters.live[rank as usize][place as usize] = Some(counters.all.len() as u32);
        counters.all.push(Counter {
            owner: rank,
            incarnation,
            id,
            place,
            rights,
            to,
            begun: 0,
            found: Default::default(),
            blind: 0,
            revoked: None,
        });
    }

    fn revoke_counter(&mut self, rank: Rank, place: u32) {
        let words = self.counter_words(rank, place);
        let Some(granted) = &mut self.granted else { return };
        let Some(counter) = granted.counters.live[rank as usize][place as usize].take() else { return };
        let counter = &mut granted.counters.all[counter as usize];
        counter.revoked = Some(Revoked { step: self.step, words });
        assert!(self.cluster.node(rank).revoke(counter.id).is_some(), "it was granted");
    }

    /// Adds to a counter, or loads one, that may be old, another's, or nobody's.
    fn count_by_name(&mut self, rank: Rank) {
        let add = Atomic::fetch_add(1);
        let atomic = self.dice.pick(&[add, add, add.without_old(), Atomic::load(WordType::U64)]);
        let at =
            if self.dice.once_in(16) { self.dice.pick(&[ASKEW, BEYOND[0], BEYOND[1], BEYOND[2]]) } else { 0 };
        let (forged, deadline) = (self.dice.once_in(40), self.deadline(rank));
        let Some(granted) = &mut self.granted else { return };
        let all = &mut granted.counters.all;
        let count = all.len() as u64;
        if count == 0 {
            return;
        }
        let number = count - 1 - self.dice.below(count.min(RECENT_COUNTERS));
        let counter = &mut all[number as usize];
        counter.begun += u64::from(atomic.may_change());
        let (peer, floor) = (counter.owner, counter.ended());
        let id = if forged { GrantId { line: FORGED_LINE, ..counter.id } } else { counter.id };
        let word = Place::granted(id, 0).saturating_plus(at);
        let op = self.cluster.node(rank).atomic(peer, word, atomic, deadline);
        let counting = Counting { counter: number as u32, atomic, forged, at, floor };
        self.launch(rank, peer, None, op, deadline, Work::ByCounter(counting));
    }

    /// Makes an object of `rank`'s, with nothing in it but its owner's words.
    fn make_object(&mut self, rank: Rank) -> Option<u32> {
        let granted = self.granted.as_mut()?;
        let object = granted.new_object(rank)?;
        let place = granted.place(object, 0);
        let all = space::first(&mut self.bytes, u64::from(SLOT_WORDS) * WORD);
        for (word, bytes) in (0..).zip(all.as_chunks_mut().0) {
            *bytes = Granted::first_value(object, word).to_ne_bytes();
        }
        if self.cluster.poke(rank, place, all).is_err() {
            // Some of it is unmapped now.
            granted.drop_object(rank, object);
            return None;
        }
        Some(object)
    }

    fn grant(&mut self, rank: Rank) {
        let Some(object) = self.make_object(rank) else { return };
        self.name(rank, object, (0, SLOT_WORDS));
        if self.dice.once_in(3) {
            let first = self.dice.below(u64::from(SLOT_WORDS)) as u32;
            let words = 1 + self.dice.below(u64::from(SLOT_WORDS - first)) as u32;
            self.name(rank, object, (first, words));
        }
    }

    /// Grants some words of an object.
    fn name(&mut self, rank: Rank, object: u32, (first, words): (u32, u32)) {
        const RIGHTS: [Rights; 5] =
            [Rights::ReadWrite, Rights::ReadWrite, Rights::ReadWrite, Rights::Read, Rights::Write];
        let rights = self.dice.pick(&RIGHTS);
        let ranks = u64::from(self.cluster.size());
        let some: Option<Arc<Vec<Rank>>> = self.dice.once_in(4).then(|| {
            let (one, other) = (self.dice.below(ranks) as Rank, self.dice.below(ranks) as Rank);
            let mut some = vec![one, other];
            some.sort_unstable();
            some.dedup();
            some.into()
        });
        let Some(granted) = &mut self.granted else { return };
        let (start, len) = (granted.place(object, first).offset, u64::from(words) * WORD);
        let to = some.clone();
        let made = self.cluster.node(rank).grant(engine::Granted { start, len, rights, to: some });
        let id = made.expect("there are few of them");
        let incarnation = self.cluster.incarnation(rank);
        let (shown, revoked, loose) = (Vec::new(), false, false);
        let name = Name { owner: rank, incarnation, id, first, words, rights, to, shown, revoked, loose };
        granted.add_name(name, object);
    }

    /// One of the names by which `rank` grants something.
    fn pick_own(&mut self, rank: Rank) -> Option<(usize, u32)> {
        let live = &self.granted.as_ref()?.owners[rank as usize].live;
        let at = (!live.is_empty()).then(|| self.dice.below(live.len() as u64) as usize)?;
        Some((at, live[at]))
    }

    fn revoke(&mut self, rank: Rank) {
        let Some((at, name)) = self.pick_own(rank) else { return };
        let Some(granted) = &mut self.granted else { return };
        granted.owners[rank as usize].live.swap_remove(at);
        granted.names[name as usize].revoked = true;
        let id = granted.names[name as usize].id;
        assert!(self.cluster.node(rank).revoke(id).is_some(), "it was granted");
        self.bar(rank, name);
    }

    /// Has a name stand for a new object.
    fn repoint(&mut self, rank: Rank) {
        let Some((_, name)) = self.pick_own(rank) else { return };
        let Some(object) = self.make_object(rank) else { return };
        let Some(granted) = &mut self.granted else { return };
        let Name { id, first, .. } = granted.names[name as usize];
        let start = granted.place(object, first).offset;
        assert!(self.cluster.node(rank).repoint(id, start).is_some(), "it was granted");
        self.bar(rank, name);
        if let Some(granted) = &mut self.granted {
            granted.show(name, object);
        }
    }

    /// A name stands no more for what it stood for: whoever hears of that must not come there by it.
    fn bar(&mut self, rank: Rank, name: u32) {
        let (at, started) = (self.cluster.now(), self.cluster.started());
        let Some(granted) = &mut self.granted else { return };
        let change = self.knowledge.change(rank, granted.arena.offset, at, started);
        granted.bar(name, change);
        self.gossip(rank);
    }

    /// Puts or gets by names, which may be old, another's, or nobody's.
    fn start_by_name(&mut self, rank: Rank, direction: Direction) {
        let Some(slot) = self.free_slot(rank) else { return };
        let Some((peer, mut named)) = self.pick_names(rank, slot) else { return };
        let since = Since { step: self.step, known: self.knowledge.about(rank, peer) };
        let Some(granted) = &mut self.granted else { return };
        self.pieces.clear();
        for piece in &mut named {
            let Name { id, first, .. } = granted.names[piece.name as usize];
            let local = Place::new(MemId::Space, piece.local);
            let len = u64::from(piece.count) * WORD;
            if direction == Direction::Put {
                piece.put = granted.begin_put(piece.name, since);
                let all = space::first(&mut self.bytes, len);
                for (word, bytes) in (first + piece.at..).zip(all.as_chunks_mut().0) {
                    *bytes = Granted::put_value(piece.put, word).to_ne_bytes();
                }
                if self.cluster.poke(rank, local, all).is_err() {
                    return;
                }
            }
            let id = if piece.forged { GrantId { line: FORGED_LINE, ..id } } else { id };
            let remote = Place::granted(id, 0).saturating_plus(u64::from(piece.at) * WORD);
            self.pieces.push(Piece::new(remote, local, len).expect("a grant has room for more"));
        }
        let deadline = self.deadline(rank);
        let id = self.cluster.node(rank).transfer(peer, direction, &self.pieces, deadline);
        self.launch(rank, peer, Some(slot), id, deadline, Work::ByName { direction, named });
    }

    /// Pieces by names of one owner.
    fn pick_names(&mut self, rank: Rank, slot: u32) -> Option<(Rank, Vec<Named>)> {
        let start = self.crews[rank as usize].slots.offset + u64::from(slot) * SLOT_BYTES;
        let granted = self.granted.as_ref()?;
        let all = granted.names.len() as u64;
        let recent = if self.dice.once_in(16) { all } else { all.min(RECENT) };
        let count = if self.dice.once_in(4) { 1 + self.dice.below(PIECES_MAX) } else { 1 };
        let (mut local, mut owner, mut named) = (start, None, Vec::new());
        for _ in 0..if all == 0 { 0 } else { count } {
            let name = (all - 1 - self.dice.below(recent)) as u32;
            let Name { owner: of, words, .. } = granted.names[name as usize];
            if *owner.get_or_insert(of) != of {
                continue;
            }
            let beyond = self.dice.once_in(24);
            let at = self.dice.below(u64::from(words) + if beyond { 9 } else { 0 }) as u32;
            let room = u64::from(words.saturating_sub(at)) + if beyond { 5 } else { 0 };
            let most = room.clamp(1, PIECE_WORDS_MAX);
            let count = self.dice.small(most) as u32;
            named.push(Named { name, forged: self.dice.once_in(40), at, count, local, put: 0 });
            local += u64::from(count) * WORD;
        }
        Some((owner?, named))
    }
}
