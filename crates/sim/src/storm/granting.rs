//! What ranks do by grants: grant, revoke and re-point, and put and get by names, old ones as well.

use std::sync::Arc;

use engine::{Direction, GrantId, MemId, OpError, Piece, Place, Rank, Rights};

use super::granted::{Found, Granted, Name, Named, Owner, SLOT_WORDS, Since};
use super::run::{Flying, Run, SLOT_BYTES, Work};
use super::shadow::WORD;
use crate::cluster::Cluster;
use crate::space::{self, Access};

/// Names, at most, from the newest on, of which ranks mostly take one.
const RECENT: u64 = 12;

/// Pieces of an operation, at most, and the words of one.
const PIECES_MAX: u64 = 4;
const PIECE_WORDS_MAX: u64 = 256;

/// A line that no owner has.
const FORGED_LINE: u32 = 77_777;

/// Whether ranks of this storm grant memory. It rolls no dice: the storms of other seeds stay as they are.
pub(super) fn grants(seed: u64) -> bool {
    seed % 7 == 3
}

/// Makes the memory of objects at each of these ranks, which is at the same place everywhere.
pub(super) fn make_arenas(cluster: &mut Cluster, ranks: impl Iterator<Item = Rank>) -> Place {
    let places = ranks.map(|rank| {
        let incarnation = u64::from(cluster.incarnation(rank));
        cluster.node(rank).seed_grants(u64::from(rank) << 32 | incarnation);
        cluster.map(rank, Granted::arena_bytes(), Access::Full)
    });
    places.last().expect("there are ranks")
}

impl Run {
    /// Has `rank` do something by grants, in some storms and sometimes. `false`: it does something else.
    pub(super) fn acts_by_grants(&mut self, rank: Rank) -> bool {
        if self.granted.is_none() || !self.dice.once_in(3) {
            return false;
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
        let some: Option<Arc<[Rank]>> = self.dice.once_in(4).then(|| {
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

    /// Takes the memory back at which nobody is any more, for other objects.
    pub(super) fn take_memory_back(&mut self, rank: Rank) -> Result<(), String> {
        let Some(granted) = &mut self.granted else { return Ok(()) };
        let node = self.cluster.view(rank);
        let is_idle = |&mut (name, _): &mut (u32, u32)| node.is_grant_idle(granted.names[name as usize].id);
        let mut leaving = std::mem::take(&mut granted.owners[rank as usize].leaving);
        let left: Vec<(u32, u32)> = leaving.extract_if(.., is_idle).collect();
        granted.owners[rank as usize].leaving = leaving;
        for (name, object) in left {
            let Some(granted) = &mut self.granted else { break };
            if granted.is_left(name, object, self.step) {
                self.judge_object(rank, object)?;
                if let Some(granted) = &mut self.granted {
                    granted.free(rank, object);
                }
            }
        }
        Ok(())
    }

    /// Nothing lies in an object but what its owner and puts by its names have put there.
    fn judge_object(&mut self, rank: Rank, object: u32) -> Result<(), String> {
        let Some(granted) = &self.granted else { return Ok(()) };
        let (place, len) = (granted.place(object, 0), u64::from(SLOT_WORDS) * WORD);
        let bytes = space::first(&mut self.bytes, len);
        if self.cluster.peek(rank, place, bytes).is_err() {
            return Ok(());
        }
        let has_holes = self.shadow.was_unmapped(rank, granted.arena, Granted::arena_bytes());
        let found = Found { first: 0, bytes, has_holes };
        granted.judge_object(object, found).map_err(|what| format!("object {object} of rank {rank}: {what}"))
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

    /// An operation by names has succeeded: it was allowed, and what it got is what they stood for.
    pub(super) fn judge_by_name(&mut self, rank: Rank, flying: &Flying) -> Result<(), String> {
        let Work::ByName { direction, named } = &flying.work else { return Ok(()) };
        let since = Since { step: flying.started, known: flying.known };
        let is_clean = self.is_local_clean(rank, flying);
        let Some(granted) = &self.granted else { return Ok(()) };
        for piece in named {
            let name = &granted.names[piece.name as usize];
            let wrong = |what| Err(format!("rank {rank} went by a name that {what}: {name:?}, {flying:?}"));
            if piece.forged {
                return wrong("nobody made");
            }
            if !name.is_for(rank, *direction) {
                return wrong("is not for that");
            }
            if piece.at + piece.count > name.words {
                return wrong("does not go so far");
            }
            if name.incarnation != flying.met || !name.shown.iter().any(|shown| since.may_see(shown)) {
                return wrong("stood for nothing any more");
            }
            if *direction == Direction::Put || !is_clean {
                continue;
            }
            let bytes = space::first(&mut self.bytes, u64::from(piece.count) * WORD);
            let local = Place::new(MemId::Space, piece.local);
            self.cluster.peek(rank, local, bytes).map_err(|at| format!("{at:#x} is unmapped"))?;
            let is_gone = name.incarnation != self.cluster.incarnation(name.owner);
            let arena = (granted.arena, Granted::arena_bytes());
            let has_holes = is_gone || self.shadow.was_unmapped(name.owner, arena.0, arena.1);
            let found = Found { first: name.first + piece.at, bytes, has_holes };
            let judged = granted.judge_got(piece.name, since, found);
            judged.map_err(|what| format!("rank {rank} got by {name:?}: {what}"))?;
        }
        Ok(())
    }

    /// Whether an operation by names may have failed so.
    pub(super) fn explains_by_name(&self, rank: Rank, flying: &Flying, error: OpError) -> bool {
        let (Work::ByName { direction, named }, Some(granted)) = (&flying.work, &self.granted) else {
            return false;
        };
        let is_gone = flying.met != self.cluster.incarnation(flying.peer);
        let id_of = |piece: &Named| {
            let GrantId { line, generation } = granted.names[piece.name as usize].id;
            GrantId { line: if piece.forged { FORGED_LINE } else { line }, generation }
        };
        named.iter().any(|piece| {
            let name = &granted.names[piece.name as usize];
            match error {
                OpError::Revoked { grant, .. } => {
                    let is_over = piece.forged || name.revoked || name.incarnation != flying.met || is_gone;
                    grant == id_of(piece) && is_over
                }
                OpError::NotGranted { grant, direction: told, .. } => {
                    grant == id_of(piece) && told == *direction && !name.is_for(rank, *direction)
                }
                OpError::Fault { mem: MemId::Grant(generation), .. } => {
                    let is_it = generation == id_of(piece).generation;
                    let arena = (granted.arena, Granted::arena_bytes());
                    let hole = || self.shadow.had_hole(flying.peer, arena.0, arena.1, flying.started);
                    is_it && (piece.at + piece.count > name.words || is_gone || hole())
                }
                _ => false,
            }
        })
    }

    /// At the end, what names stand for is what it should be, and nothing is kept that they do not.
    pub(super) fn end_grants(&mut self, rank: Rank) -> Result<(), String> {
        let Some(granted) = &self.granted else { return Ok(()) };
        let Owner { live, leaving, .. } = &granted.owners[rank as usize];
        let (count, names) = (self.cluster.view(rank).grants(), live.len() as u64);
        if count != names {
            return Err(format!("rank {rank} counts {count} grants, and has {names}"));
        }
        if let Some((name, object)) = leaving.first() {
            return Err(format!("rank {rank} never has object {object} back, of name {name}"));
        }
        let objects: Vec<u32> = granted.objects_of(rank).collect();
        objects.into_iter().try_for_each(|object| self.judge_object(rank, object))
    }
}
