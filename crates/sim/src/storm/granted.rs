//! The grants of all owners: each name, the objects that it has stood for, and the words that may lie there.
//!
//! Each owner has an arena of a few slots, in which *objects* live. A new object's words say whose they are;
//! a word that is put says by which put it came. A name stands for an object, or for part of one, until the
//! owner takes that back: it revokes the name, or has it stand for another object. Then the slot is a newer
//! object's. Of that one no word may come by the old name, and none may be put by it.

use std::sync::Arc;

use engine::{Direction, GrantId, Place, Rank, Rights};

use super::counters::{Counters, PLACE_BYTES};
use super::shadow::WORD;
use crate::cluster::Cluster;
use crate::space::Access;

/// Objects that an owner can have at a time, and the words of each: no whole page, so that neighbours lie in
/// one bucket.
pub(super) const SLOTS: u32 = 6;
pub(super) const SLOT_WORDS: u32 = 700;

/// Bits of a word's value that say where in its slot it belongs; the others name the object or the put.
const PLACE_BITS: u32 = 12;
const _: () = assert!(SLOT_WORDS < 1 << PLACE_BITS);

/// Set in the words that an object has from its owner.
const OWNERS: u64 = 1 << 63;

/// A line that no owner has.
pub(super) const FORGED_LINE: u32 = 77_777;

/// An object that a name has stood for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) object: u32,
    /// The number of the owner's change that barred it, among all changes of its memory.
    pub(super) barred: Option<u32>,
    /// The step at which the owner had the memory back.
    pub(super) until: u64,
}

/// A grant.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) owner: Rank,
    /// How many processes had the owner's rank before.
    pub(super) incarnation: u32,
    pub(super) id: GrantId,
    /// Where in its object it begins, and how much it has: words.
    pub(super) first: u32,
    pub(super) words: u32,
    pub(super) rights: Rights,
    pub(super) to: Option<Arc<Vec<Rank>>>,
    /// The last one is what it stands for, unless it is revoked.
    pub(super) shown: Vec<Shown>,
    pub(super) revoked: bool,
    /// Zeros may have been put by it, because a put's source was unmapped.
    pub(super) loose: bool,
}

impl Name {
    /// Whether that peer may do that by it.
    pub(super) fn is_for(&self, rank: Rank, direction: Direction) -> bool {
        let is_named = self.to.as_ref().is_none_or(|to| to.contains(&rank));
        self.rights.allow(direction) && (rank == self.owner || is_named)
    }

    fn has_shown(&self, object: u32, since: Since) -> bool {
        self.shown.iter().any(|shown| shown.object == object && since.may_see(shown))
    }
}

/// Somebody began at that step, and knew of so many changes of the owner's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    pub(super) step: u64,
    pub(super) known: u32,
}

impl Since {
    /// For a look at all that was ever shown.
    const EVER: Since = Since { step: 0, known: 0 };

    /// Whether what it did then may have come to what the name stood for.
    pub(super) fn may_see(&self, shown: &Shown) -> bool {
        shown.until >= self.step && shown.barred.is_none_or(|barred| self.known < barred)
    }
}

/// A piece of an operation by a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) name: u32,
    /// Nobody ever made this one.
    pub(super) forged: bool,
    /// Where it begins, from where the name does, and how much it is: words.
    pub(super) at: u32,
    pub(super) count: u32,
    /// Where the words are, or go, at the initiator: bytes of its private memory.
    pub(super) local: u64,
    /// The number of the put that it is.
    pub(super) put: u32,
}

/// A put of one piece, which began then.
#[derive(Clone, Copy, Debug)]
struct Put {
    name: u32,
    since: Since,
}

/// An object, and how many names stand for it or have until it is known that nobody is at it any more.
#[derive(Clone, Copy, Debug)]
struct Object {
    slot: u32,
    names: u32,
}

/// The grants of one owner.
#[derive(Debug, Default)]
pub(super) struct Owner {
    /// Names that stand for something.
    pub(super) live: Vec<u32>,
    /// Names that stand for an object no more, at which somebody may still be.
    pub(super) leaving: Vec<(u32, u32)>,
    /// Slots where no object is.
    free: Vec<u32>,
}

impl Owner {
    fn new() -> Owner {
        Owner { free: (0..SLOTS).collect(), ..Owner::default() }
    }
}

/// All grants of a storm.
#[derive(Debug)]
pub(super) struct Granted {
    /// Where every owner's arena begins.
    pub(super) arena: Place,
    pub(super) owners: Vec<Owner>,
    pub(super) names: Vec<Name>,
    objects: Vec<Object>,
    puts: Vec<Put>,
    pub(super) counters: Counters,
}

/// Words that somebody found from word `first` of an object on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) first: u32,
    pub(super) bytes: &'a [u8],
    /// Whether some of the owner's arena was ever unmapped: zeros may lie there.
    pub(super) has_holes: bool,
}

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

impl Granted {
    pub(super) fn new(arena: Place, ranks: u32) -> Granted {
        let nobody = Put { name: 0, since: Since::EVER };
        let nothing = Object { slot: SLOTS, names: 0 };
        Granted {
            arena,
            owners: (0..ranks).map(|_| Owner::new()).collect(),
            names: Vec::new(),
            objects: vec![nothing],
            puts: vec![nobody],
            counters: Counters::new(ranks),
        }
    }

    /// Bytes of an arena: objects, and counters behind them.
    pub(super) fn arena_bytes() -> u64 {
        Granted::objects_bytes() + Counters::bytes()
    }

    /// Where in each owner's arena a place for a counter begins.
    pub(super) fn counter_place(&self, place: u32) -> Place {
        self.arena.plus(Granted::objects_bytes() + u64::from(place) * PLACE_BYTES)
    }

    /// Bytes of all objects.
    fn objects_bytes() -> u64 {
        u64::from(SLOTS * SLOT_WORDS) * WORD
    }

    /// `rank` is another process, which has granted nothing.
    pub(super) fn restart(&mut self, rank: Rank) {
        self.owners[rank as usize] = Owner::new();
        self.counters.restart(rank);
    }

    /// A slot of `owner`'s for a new object, and the object. `None`: there are objects everywhere.
    pub(super) fn new_object(&mut self, owner: Rank) -> Option<u32> {
        let slot = self.owners[owner as usize].free.pop()?;
        self.objects.push(Object { slot, names: 0 });
        Some(self.objects.len() as u32 - 1)
    }

    /// Takes back an object that no name ever stood for.
    pub(super) fn drop_object(&mut self, owner: Rank, object: u32) {
        self.owners[owner as usize].free.push(self.objects[object as usize].slot);
    }

    /// Where word `word` of an object lies.
    pub(super) fn place(&self, object: u32, word: u32) -> Place {
        let slot = self.objects[object as usize].slot;
        self.arena.plus(u64::from(slot * SLOT_WORDS + word) * WORD)
    }

    /// The value that an object's owner writes to a word of it.
    pub(super) fn first_value(object: u32, word: u32) -> u64 {
        OWNERS | u64::from(object) << PLACE_BITS | u64::from(word)
    }

    /// The value that a put brings to a word of whatever object.
    pub(super) fn put_value(put: u32, word: u32) -> u64 {
        u64::from(put) << PLACE_BITS | u64::from(word)
    }

    /// A put by this name begins. Returns its number.
    pub(super) fn begin_put(&mut self, name: u32, since: Since) -> u32 {
        self.puts.push(Put { name, since });
        self.puts.len() as u32 - 1
    }

    /// There is a new name, for an object.
    pub(super) fn add_name(&mut self, name: Name, object: u32) {
        let (number, owner) = (self.names.len() as u32, name.owner);
        self.names.push(name);
        self.owners[owner as usize].live.push(number);
        self.show(number, object);
    }

    /// From now on a name stands for this object.
    pub(super) fn show(&mut self, name: u32, object: u32) {
        let shown = Shown { object, barred: None, until: u64::MAX };
        self.names[name as usize].shown.push(shown);
        self.objects[object as usize].names += 1;
    }

    /// That change of its owner's memory bars the object that a name stood for last.
    pub(super) fn bar(&mut self, name: u32, change: u32) {
        let Name { owner, shown, .. } = &mut self.names[name as usize];
        let shown = shown.last_mut().expect("each stands for something from the first");
        shown.barred = Some(change);
        self.owners[*owner as usize].leaving.push((name, shown.object));
    }

    /// The owner knows, at that step, that nobody is any more at an object by a name that stood for it.
    /// Returns whether its slot is to be another's.
    pub(super) fn is_left(&mut self, name: u32, object: u32, step: u64) -> bool {
        let shown = self.names[name as usize].shown.iter_mut();
        let open = |shown: &&mut Shown| shown.object == object && shown.until == u64::MAX;
        shown.filter(|shown| shown.barred.is_some()).filter(open).for_each(|shown| shown.until = step);
        let left = &mut self.objects[object as usize];
        left.names -= 1;
        left.names == 0
    }

    /// The slot of an object that is no more is for others.
    pub(super) fn free(&mut self, owner: Rank, object: u32) {
        let slot = self.objects[object as usize].slot;
        self.owners[owner as usize].free.push(slot);
    }

    /// Some of a rank's buffers was unmapped, from which an operation by names may put zeros now.
    pub(super) fn loosen(&mut self, named: &[Named]) {
        named.iter().for_each(|piece| self.names[piece.name as usize].loose = true);
    }

    /// Objects that names of a process of this rank stand for.
    pub(super) fn objects_of(&self, owner: Rank) -> impl Iterator<Item = u32> {
        let live = self.owners[owner as usize].live.iter();
        live.filter_map(|name| self.names[*name as usize].shown.last()).map(|shown| shown.object)
    }

    /// Judges what lies in an object.
    ///
    /// # Errors
    /// The first word that is another's.
    pub(super) fn judge_object(&self, object: u32, found: Found<'_>) -> Result<(), String> {
        self.judge(&|other| other == object, &[object], found)
    }

    /// Judges what somebody got by a name.
    ///
    /// # Errors
    /// The first word that is another's.
    pub(super) fn judge_got(&self, name: u32, since: Since, found: Found<'_>) -> Result<(), String> {
        let name = &self.names[name as usize];
        let may: Vec<u32> =
            name.shown.iter().filter(|shown| since.may_see(shown)).map(|shown| shown.object).collect();
        self.judge(&|object| may.contains(&object), &may, found)
    }

    fn judge(&self, is_its: &dyn Fn(u32) -> bool, its: &[u32], found: Found<'_>) -> Result<(), String> {
        for (word, value) in (found.first..).zip(found.bytes.as_chunks().0) {
            let value = u64::from_ne_bytes(*value);
            let number = ((value & !OWNERS) >> PLACE_BITS) as u32;
            let wrong = |what: &str| {
                Err(format!("word {word} is {value:#x}: {what} ({number}; the objects are {its:?})"))
            };
            let in_place = value & ((1 << PLACE_BITS) - 1) == u64::from(word);
            match value {
                0 if found.has_holes || self.may_be_zero(its) => {}
                0 => return wrong("nobody has put that"),
                _ if !in_place => return wrong("it belongs elsewhere"),
                OWNERS.. if is_its(number) => {}
                OWNERS.. => return wrong("it is another object's"),
                _ => {
                    let Some(put) = self.puts.get(number as usize) else {
                        return wrong("nobody has put that");
                    };
                    let by = &self.names[put.name as usize];
                    if !its.iter().any(|object| by.has_shown(*object, put.since)) {
                        return wrong("it was put by a name that did not stand for it");
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether zeros may have been put into one of these objects.
    fn may_be_zero(&self, objects: &[u32]) -> bool {
        let into = |name: &Name| objects.iter().any(|object| name.has_shown(*object, Since::EVER));
        self.names.iter().any(|name| name.loose && into(name))
    }
}
