//! What must lie in memory.
//!
//! Peers write whole words, each of which says which put it came with and where it belongs. Only one rank
//! writes any one word, so that its puts decide what a reader may find: nothing older than what was there for
//! sure when it began.

use std::ops::Range;

use engine::{MemId, Place, Rank};
use rustc_hash::{FxHashMap, FxHashSet};

use super::knowledge::Known;
use crate::cluster::Cluster;
use crate::space::Access;

/// Bytes of a word.
pub(super) const WORD: u64 = 8;

/// Bits of a word's value that say where it belongs; the others name the put.
const PLACE_BITS: u32 = 24;

/// Ranks, at most, that write to any one.
pub(super) const WRITERS_MAX: u32 = 8;

/// Words of memory that ranks write to each other's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) place: Place,
    /// The number of its first word.
    pub(super) first: u32,
    /// Words that belong to one writer, one after the other, a power of two; and how many such stretches
    /// there are.
    pub(super) grain: u32,
    pub(super) units: u32,
}

/// Consecutive words of one region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    pub(super) first: u32,
    pub(super) count: u32,
    /// Where the words are, or go, at the initiator: bytes of its private memory.
    pub(super) local: u64,
}

/// Consecutive words of one region, of the `rank`'s process before which so many had it, as somebody found
/// them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) rank: Rank,
    pub(super) incarnation: u32,
    pub(super) first: u32,
    pub(super) bytes: &'a [u8],
}

/// What somebody knew who then looked: words in memory that has changed since may be anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    /// The changes of the owner's memory that were known.
    pub(super) known: u32,
    /// The step.
    pub(super) step: u64,
}

/// A page that was unmapped.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// Whether it still is.
    hole: bool,
    /// The last change's number among its owner's, and the step.
    change: u32,
    step: u64,
    /// The step until which it was unmapped, if it is not.
    until: u64,
}

/// Who put, to whom, and knowing what.
#[derive(Clone, Debug)]
struct Put {
    writer: Rank,
    /// With how many processes had that rank before.
    target: (Rank, u32),
    known: Known,
}

/// Words that are looked at together.
const BLOCK: usize = 16;

/// Whether all of these words are what put `put` brought to those from `word` on, and none should be newer.
/// Nothing but zeros, for put 0.
fn are(values: &[[u8; WORD as usize]], floors: &[u32], put: u32, word: u32) -> bool {
    let (mut wanted, step) = if put == 0 { (0, 0) } else { (Shadow::value(put, word), 1) };
    let mut differ = 0;
    for value in values {
        differ |= u64::from_ne_bytes(*value) ^ wanted;
        wanted += step;
    }
    differ == 0 && !floors.iter().fold(false, |newer, floor| newer | (*floor > put))
}

/// What must lie in every rank's memory.
#[derive(Debug)]
pub(super) struct Shadow {
    pub(super) regions: [Region; 3],
    /// Ranks that write to any one.
    pub(super) writers: u32,
    ranks: u32,
    page_shift: u32,
    /// By rank and word: puts before this one are no longer there.
    floors: Vec<Vec<u32>>,
    puts: Vec<Put>,
    /// Puts that failed: they may be there, or come yet. Those that have settled, with the number that the
    /// next put had then: they came before all later ones.
    undead: FxHashMap<u32, u32>,
    /// Words that may have been put as zero, because their source was unmapped.
    loose: FxHashSet<(Rank, u32)>,
    pages: FxHashMap<(Rank, u64), Page>,
    /// By rank: how many processes had it before.
    incarnations: Vec<u32>,
}

impl Shadow {
    /// Makes the memory at every rank: large stretches of private memory, small ones, and some of the heap.
    pub(super) fn new(cluster: &mut Cluster) -> Shadow {
        let ranks = cluster.size();
        let writers = ranks.min(WRITERS_MAX);
        let mut first = 0;
        let regions = [(MemId::Space, 2048, 2), (MemId::Space, 32, 16), (MemId::Heap, 64, 4)];
        let regions = regions.map(|(mem, grain, each)| {
            let units = each * writers;
            let bytes = u64::from(grain * units) * WORD;
            let places = (0..ranks).map(|rank| match mem {
                MemId::Space => cluster.map(rank, bytes, Access::Full),
                _ => cluster.heap(rank, bytes),
            });
            let place = places.last().expect("there are ranks");
            let region = Region { place, first, grain, units };
            first += grain * units;
            region
        });
        Shadow {
            regions,
            writers,
            ranks,
            page_shift: cluster.costs().page_bytes.ilog2(),
            // Each is zero as it comes: to copy one would mean to write it.
            floors: (0..ranks).map(|_| vec![0; first as usize]).collect(),
            puts: vec![Put { writer: ranks, target: (ranks, 0), known: None }],
            undead: FxHashMap::default(),
            loose: FxHashSet::default(),
            pages: FxHashMap::default(),
            incarnations: vec![0; ranks as usize],
        }
    }

    /// `rank` is another process, whose memory is made as the old one's was.
    pub(super) fn restart(&mut self, cluster: &mut Cluster, rank: Rank) {
        for Region { place, grain, units, .. } in self.regions {
            let bytes = u64::from(grain * units) * WORD;
            let again = match place.mem {
                MemId::Space => cluster.map(rank, bytes, Access::Full),
                _ => cluster.heap(rank, bytes),
            };
            assert_eq!(again, place, "memory that is made alike lies where it did");
        }
        self.incarnations[rank as usize] = cluster.incarnation(rank);
        self.floors[rank as usize].fill(0);
        self.loose.retain(|(of, _)| *of != rank);
        self.pages.retain(|(of, _), _| *of != rank);
    }

    /// The region that a word belongs to.
    fn region(&self, word: u32) -> &Region {
        let region = self.regions.iter().rev().find(|region| region.first <= word);
        region.expect("the first region begins with word 0")
    }

    /// Where a word lies.
    pub(super) fn place(&self, word: u32) -> Place {
        let region = self.region(word);
        region.place.plus(u64::from(word - region.first) * WORD)
    }

    /// The same words in stretches, each of which has one writer and lies in one page.
    pub(super) fn stretches(&self, words: &Words) -> impl Iterator<Item = Words> + use<> {
        let Region { first, grain, .. } = *self.region(words.first);
        let in_page = 1 << self.page_shift >> WORD.ilog2();
        // Both are powers of two, of which the smaller divides the other.
        let longest: u32 = grain.min(in_page);
        let Words { first: mut here, count, local } = *words;
        let end = here + count;
        std::iter::from_fn(move || {
            let next = ((here - first) | (longest - 1)) + 1;
            let count = (first + next).min(end) - here;
            here += count;
            (count > 0).then_some(Words { first: here - count, count, local })
        })
    }

    /// The word that lies there in private memory, if one does.
    pub(super) fn word_at(&self, offset: u64) -> Option<u32> {
        let regions = self.regions.iter().filter(|region| region.place.mem == MemId::Space);
        regions.into_iter().find_map(|region| {
            let word = (offset.checked_sub(region.place.offset)? / WORD) as u32;
            (word < region.grain * region.units).then_some(region.first + word)
        })
    }

    /// Who writes a word of `rank`'s.
    fn writer(&self, rank: Rank, word: u32) -> Rank {
        let region = self.region(word);
        let writer = rank + ((word - region.first) >> region.grain.ilog2()) % self.writers;
        if writer < self.ranks { writer } else { writer - self.ranks }
    }

    /// The number of the next put.
    pub(super) fn next_put(&self) -> u32 {
        self.puts.len() as u32
    }

    /// A put begins. Returns its number.
    pub(super) fn begin_put(&mut self, writer: Rank, target: (Rank, u32), known: Known) -> u32 {
        self.puts.push(Put { writer, target, known });
        self.puts.len() as u32 - 1
    }

    /// What put `put` brings to a word.
    pub(super) fn value(put: u32, word: u32) -> u64 {
        u64::from(put) << PLACE_BITS | u64::from(word)
    }

    /// What is there for sure now.
    pub(super) fn floors<'a>(&'a self, rank: Rank, words: &Words) -> &'a [u32] {
        &self.floors[rank as usize][words.first as usize..][..words.count as usize]
    }

    /// A put has succeeded that began when all before `below` had ended: these are no longer there. `known`:
    /// the changes of the target's memory that its writer knew of.
    pub(super) fn end_put(&mut self, rank: Rank, words: &Words, below: u32, known: u32) {
        for words in self.stretches(words) {
            if self.is_clean(rank, words.first, Since { known, step: u64::MAX }) {
                let floors = &mut self.floors[rank as usize][words.first as usize..][..words.count as usize];
                floors.iter_mut().for_each(|floor| *floor = below.max(*floor));
            }
        }
    }

    /// A put has failed.
    pub(super) fn fail_put(&mut self, put: u32) {
        self.undead.insert(put, u32::MAX);
    }

    /// A put that has failed can write no more.
    pub(super) fn settle_put(&mut self, put: u32) {
        self.undead.insert(put, self.next_put());
    }

    /// The source of a put was unmapped.
    pub(super) fn loosen(&mut self, rank: Rank, words: &Words) {
        self.loose.extend((words.first..words.first + words.count).map(|word| (rank, word)));
    }

    /// Judges what was found where `floors` were there for sure; but not how old it is where the memory has
    /// changed `since`. Calls `heard` with what the writers of it knew.
    #[inline(never)]
    pub(super) fn judge(
        &self,
        found: Found<'_>,
        floors: &[u32],
        since: Option<Since>,
        heard: &mut dyn FnMut(&Known),
    ) -> Result<(), String> {
        let (mut values, _) = found.bytes.as_chunks::<{ WORD as usize }>();
        let mut floors = &floors[..values.len()];
        let all = Words { first: found.first, count: values.len() as u32, local: 0 };
        for words in self.stretches(&all) {
            // What is not known any more of the memory of a process that is gone.
            let gone = found.incarnation != self.incarnations[found.rank as usize];
            let lax = gone || since.is_some_and(|since| !self.is_clean(found.rank, words.first, since));
            let found = (found.rank, found.incarnation, self.writer(found.rank, words.first));
            // The last put of which a word was judged: what it knew and whose it is needs no second look.
            let mut last = 0;
            let mut first = words.first;
            let (these, those);
            (these, values) = values.split_at(words.count as usize);
            (those, floors) = floors.split_at(words.count as usize);
            for (values, floors) in these.chunks(BLOCK).zip(those.chunks(BLOCK)) {
                let word = first;
                first += values.len() as u32;
                // What the first word is, the others mostly are, too.
                let untouched = values[0] == [0; WORD as usize];
                let put = if untouched { 0 } else { last };
                if (untouched || put > 0) && are(values, floors, put, word) {
                    continue;
                }
                for (word, (value, floor)) in (word..).zip(values.iter().zip(floors)) {
                    let value = u64::from_ne_bytes(*value);
                    if value == Shadow::value(last, word) && last > 0 && last >= *floor {
                        continue;
                    }
                    heard(self.judge_word(found, word, value, *floor, lax)?);
                    last = (value >> PLACE_BITS) as u32;
                }
            }
        }
        Ok(())
    }

    fn judge_word(
        &self,
        (rank, incarnation, writer): (Rank, u32, Rank),
        word: u32,
        value: u64,
        floor: u32,
        lax: bool,
    ) -> Result<&Known, String> {
        let put = (value >> PLACE_BITS) as u32;
        let wrong = |what: &str| {
            Err(format!(
                "word {word} of rank {rank} is {value:#x}: {what} (put {put}; floor {floor}, writer {writer})"
            ))
        };
        if value == 0 {
            let may = floor == 0 || lax || self.loose.contains(&(rank, word));
            return if may { Ok(&None) } else { wrong("what was put is not there") };
        }
        let Some(known) = self.puts.get(put as usize) else { return wrong("nobody has put that") };
        if value & ((1 << PLACE_BITS) - 1) != u64::from(word) {
            return wrong("it belongs elsewhere");
        }
        if (known.writer, known.target.0) != (writer, rank) {
            return wrong("it belongs to another rank");
        }
        if known.target.1 != incarnation {
            return wrong("it was put to another process of that rank");
        }
        if put < floor && !lax && self.undead.get(&put).is_none_or(|settled| floor >= *settled) {
            return wrong("it is older than what was there");
        }
        Ok(&known.known)
    }

    /// Some of `rank`'s private memory was unmapped.
    pub(super) fn unmap(&mut self, rank: Rank, offset: u64, len: u64, change: u32, step: u64) {
        for page in self.pages_of(offset, len) {
            self.pages.insert((rank, page), Page { hole: true, change, step, until: 0 });
            let bytes = page << self.page_shift..(page + 1) << self.page_shift;
            for region in self.regions.iter().filter(|region| region.place.mem == MemId::Space) {
                let start = region.place.offset;
                let end = start + u64::from(region.grain * region.units) * WORD;
                let (from, to) = (bytes.start.max(start), bytes.end.min(end));
                for at in (from..to).step_by(WORD as usize) {
                    let word = region.first + ((at - start) / WORD) as u32;
                    self.floors[rank as usize][word as usize] = 0;
                }
            }
        }
    }

    /// Whether all of the bytes lie in one page.
    pub(super) fn is_one_page(&self, offset: u64, len: u64) -> bool {
        offset >> self.page_shift == (offset + len - 1) >> self.page_shift
    }

    /// The pages that some bytes lie in.
    fn pages_of(&self, offset: u64, len: u64) -> Range<u64> {
        offset >> self.page_shift..((offset + len - 1) >> self.page_shift) + 1
    }

    /// It is there again.
    pub(super) fn remap(&mut self, rank: Rank, offset: u64, len: u64, step: u64) {
        for page in self.pages_of(offset, len) {
            if let Some(page) = self.pages.get_mut(&(rank, page)).filter(|page| page.hole) {
                (page.hole, page.until) = (false, step);
            }
        }
    }

    /// Whether the page that a word lies in has not changed but by changes that were known, nor since.
    fn is_clean(&self, rank: Rank, word: u32, since: Since) -> bool {
        self.pages.is_empty()
            || self.all_pages(rank, self.place(word), WORD, |page| {
                page.change <= since.known && page.step < since.step
            })
    }

    /// Whether some of the memory was unmapped at some time from step `since` on.
    pub(super) fn had_hole(&self, rank: Rank, place: Place, len: u64, since: u64) -> bool {
        !self.all_pages(rank, place, len, |page| !page.hole && page.until < since)
    }

    /// Whether some of the memory was ever unmapped.
    pub(super) fn was_unmapped(&self, rank: Rank, place: Place, len: u64) -> bool {
        !self.all_pages(rank, place, len, |_| false)
    }

    fn all_pages(&self, rank: Rank, place: Place, len: u64, holds: impl Fn(&Page) -> bool) -> bool {
        if self.pages.is_empty() || place.mem != MemId::Space {
            return true;
        }
        self.pages_of(place.offset, len).all(|page| self.pages.get(&(rank, page)).is_none_or(&holds))
    }
}
