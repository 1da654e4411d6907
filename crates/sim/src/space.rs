//! One process's memory: ranges of its address space over pages that exist once they were written.
//!
//! A range names a *backing*, which has the bytes, as a mapping names a memory object. Whoever holds the
//! backing keeps the bytes: memory that is unmapped while it is registered lives on, seen by the card and by
//! nobody else.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What may be done with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    None,
    /// It may be read.
    Read,
    /// It may be read and written.
    Full,
}

/// Pages that are looked up together.
const CHUNK: usize = 64;

/// One page's bytes, once there are any.
type Page = Option<Box<[u8]>>;

/// Pages by number, in chunks: those far from all others take little memory.
#[derive(Debug, Default)]
struct Pages(Vec<Option<Box<[Page; CHUNK]>>>);

impl Pages {
    fn get(&self, number: u64) -> Option<&[u8]> {
        self.0.get(number as usize / CHUNK)?.as_ref()?[number as usize % CHUNK].as_deref()
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut [u8]> {
        self.0.get_mut(number as usize / CHUNK)?.as_mut()?[number as usize % CHUNK].as_deref_mut()
    }

    fn insert(&mut self, number: u64, bytes: Box<[u8]>) {
        let chunk = number as usize / CHUNK;
        if self.0.len() <= chunk {
            self.0.resize_with(chunk + 1, || None);
        }
        let chunk = self.0[chunk].get_or_insert_with(|| Box::new([const { None }; CHUNK]));
        chunk[number as usize % CHUNK] = Some(bytes);
    }
}

/// The bytes behind one mapping: zero until they are written.
#[derive(Debug)]
pub(crate) struct Backing {
    page_shift: u32,
    pages: RefCell<Pages>,
}

/// A stretch of a backing: byte `start` of the address space is byte `start - base` of it.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) access: Access,
    base: u64,
    backing: Rc<Backing>,
}

impl Part {
    /// Where byte `at` is in the backing: its page, its place there, and how many bytes there are from it to
    /// the page's end.
    fn in_page(&self, at: u64) -> (u64, usize, usize) {
        let (offset, page_bytes) = (at - self.base, 1 << self.backing.page_shift);
        let within = offset as usize & (page_bytes - 1);
        (offset >> self.backing.page_shift, within, page_bytes - within)
    }

    /// Reads from byte `at` of the address space on.
    pub(crate) fn read(&self, mut at: u64, mut into: &mut [u8]) {
        debug_assert!(self.has(at, into.len() as u64), "the caller has found the part for these bytes");
        let pages = self.backing.pages.borrow();
        loop {
            let (page, within, room) = self.in_page(at);
            let run = room.min(into.len());
            let (here, rest) = into.split_at_mut(run);
            match pages.get(page) {
                Some(bytes) => here.copy_from_slice(&bytes[within..][..run]),
                None => here.fill(0),
            }
            if rest.is_empty() {
                return;
            }
            (at, into) = (at + run as u64, rest);
        }
    }

    /// Writes from byte `at` of the address space on. Zeros written where nothing is take no memory.
    pub(crate) fn write(&self, mut at: u64, mut from: &[u8]) {
        debug_assert!(self.has(at, from.len() as u64), "the caller has found the part for these bytes");
        let mut pages = self.backing.pages.borrow_mut();
        loop {
            let (page, within, room) = self.in_page(at);
            let run = room.min(from.len());
            let (here, rest) = from.split_at(run);
            match pages.get_mut(page) {
                Some(bytes) => bytes[within..][..run].copy_from_slice(here),
                None if is_zero(here) => {}
                None => {
                    let mut bytes = vec![0; 1 << self.backing.page_shift].into_boxed_slice();
                    bytes[within..][..run].copy_from_slice(here);
                    pages.insert(page, bytes);
                }
            }
            if rest.is_empty() {
                return;
            }
            (at, from) = (at + run as u64, rest);
        }
    }

    /// Whether all of these bytes lie here.
    fn has(&self, at: u64, len: u64) -> bool {
        self.start <= at && at.checked_add(len).is_some_and(|end| end <= self.end)
    }
}

/// Whether there is nothing but zeros, found many bytes at a time.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|some| some.iter().fold(0, |all, byte| all | byte) == 0)
}

/// The first `len` of a buffer's bytes, which grows if need be and does not shrink: to make room would mean
/// to write it.
pub(crate) fn first(buffer: &mut Vec<u8>, len: u64) -> &mut [u8] {
    buffer.resize(buffer.len().max(len as usize), 0);
    &mut buffer[..len as usize]
}

/// The ranges of an address space, with unmapped space between them.
#[derive(Debug)]
pub(crate) struct Space {
    page_shift: u32,
    /// By start: mostly a few.
    parts: Vec<Part>,
    /// The one that was looked for last.
    last: Cell<usize>,
    /// Where the next range goes whose place does not matter.
    next: u64,
}

impl Space {
    /// An address space with nothing in it.
    pub(crate) fn new(page_bytes: u64) -> Space {
        Space { page_shift: page_bytes.ilog2(), parts: Vec::new(), last: Cell::new(0), next: 1 << 20 }
    }

    /// Bytes of a page.
    pub(crate) fn page_bytes(&self) -> u64 {
        1 << self.page_shift
    }

    /// Maps `len` bytes, in whole pages, where nothing is, with an unmapped page behind them.
    pub(crate) fn map(&mut self, len: u64, access: Access) -> u64 {
        let start = self.next;
        self.map_at(start, len, access);
        self.next = start + len.next_multiple_of(self.page_bytes()) + self.page_bytes();
        start
    }

    /// Maps whole pages at `start`, fresh and zero, in place of what was there.
    pub(crate) fn map_at(&mut self, start: u64, len: u64, access: Access) {
        let end = (start + len).next_multiple_of(self.page_bytes());
        let start = start - start % self.page_bytes();
        self.unmap(start, end - start);
        let backing = Rc::new(Backing { page_shift: self.page_shift, pages: RefCell::default() });
        let at = self.up_to(start);
        self.parts.insert(at, Part { start, end, access, base: start, backing });
        self.next = self.next.max(end + self.page_bytes());
    }

    /// Takes away every page that `len` bytes from `start` on touch.
    pub(crate) fn unmap(&mut self, start: u64, len: u64) {
        let end = (start + len).next_multiple_of(self.page_bytes());
        let start = start - start % self.page_bytes();
        let first = self.parts.partition_point(|part| part.end <= start);
        let last = self.parts.partition_point(|part| part.start < end);
        if first >= last {
            return;
        }
        let (left, right) = (self.parts[first].clone(), self.parts[last - 1].clone());
        let left = Some(Part { end: start, ..left }).filter(|left| left.start < start);
        let right = Some(Part { start: end, ..right }).filter(|right| end < right.end);
        self.parts.splice(first..last, left.into_iter().chain(right));
    }

    /// How many parts begin at `at` or before.
    fn up_to(&self, at: u64) -> usize {
        self.parts.partition_point(|part| part.start <= at)
    }

    /// The part that byte `at` lies in.
    #[inline]
    pub(crate) fn part(&self, at: u64) -> Option<&Part> {
        self.parts.get(self.last.get()).filter(|part| part.has(at, 1)).or_else(|| self.find(at))
    }

    fn find(&self, at: u64) -> Option<&Part> {
        let index = self.up_to(at).checked_sub(1)?;
        self.last.set(index);
        Some(&self.parts[index]).filter(|part| at < part.end)
    }

    /// Reads what lies there. `Err` with the first byte that cannot be read.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), u64> {
        let len = into.len() as u64;
        // Mostly it is all in one part.
        if let Some(part) = self.part(at).filter(|part| part.access >= Access::Read && part.has(at, len)) {
            part.read(at, into);
            return Ok(());
        }
        self.walk(at, len, Access::Read, |part, from, run| {
            part.read(from, &mut into[(from - at) as usize..][..run as usize]);
        })
    }

    /// Writes what lies there. `Err` with the first byte that cannot be written; what comes before has been.
    pub(crate) fn write(&self, at: u64, from: &[u8]) -> Result<(), u64> {
        let len = from.len() as u64;
        if let Some(part) = self.part(at).filter(|part| part.access >= Access::Full && part.has(at, len)) {
            part.write(at, from);
            return Ok(());
        }
        self.walk(at, len, Access::Full, |part, to, run| {
            part.write(to, &from[(to - at) as usize..][..run as usize]);
        })
    }

    /// The `index`th of the ranges, by address.
    pub(crate) fn nth(&self, index: usize) -> Option<&Part> {
        self.parts.get(index)
    }

    /// How many ranges there are.
    pub(crate) fn ranges(&self) -> usize {
        self.parts.len()
    }

    /// Calls `each` with the parts that `len` bytes from `at` on lie in, and how much of them lies there.
    /// `Err` with the first byte that may not be accessed so; the parts before it have been seen.
    pub(crate) fn walk(
        &self,
        at: u64,
        len: u64,
        access: Access,
        mut each: impl FnMut(&Part, u64, u64),
    ) -> Result<(), u64> {
        let mut here = at;
        let end = at.checked_add(len).ok_or(at)?;
        while here < end {
            let part = self.part(here).filter(|part| part.access >= access).ok_or(here)?;
            let until = part.end.min(end);
            each(part, here, until - here);
            here = until;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn read(space: &Space, at: u64, len: u64) -> Result<Vec<u8>, u64> {
        let mut bytes = vec![0xcc; len as usize];
        space.read(at, &mut bytes)?;
        Ok(bytes)
    }

    fn write(space: &Space, at: u64, from: &[u8]) -> Result<(), u64> {
        space.write(at, from)
    }

    #[test]
    fn memory_is_zero_until_it_is_written_and_keeps_what_was() {
        let mut space = Space::new(PAGE);
        let at = space.map(3 * PAGE, Access::Full);
        assert_eq!(read(&space, at + 10, 20), Ok(vec![0; 20]));
        assert_eq!(write(&space, at + PAGE - 2, &[1, 2, 3, 4]), Ok(()));
        assert_eq!(read(&space, at + PAGE - 3, 6), Ok(vec![0, 1, 2, 3, 4, 0]));
    }

    #[test]
    fn zeros_written_where_nothing_is_take_no_memory() {
        let mut space = Space::new(PAGE);
        let at = space.map(1 << 30, Access::Full);
        write(&space, at, &[0; 100_000]).expect("the range is mapped");
        let pages = |space: &Space| {
            let pages = &space.part(at).expect("mapped").backing.pages;
            pages.borrow().0.iter().flatten().flat_map(|chunk| chunk.iter()).flatten().count()
        };
        assert_eq!(pages(&space), 0);
        write(&space, at + 5, &[7]).expect("the range is mapped");
        write(&space, at, &[0; 100]).expect("the range is mapped");
        assert_eq!(pages(&space), 1);
        assert_eq!(read(&space, at, 8), Ok(vec![0; 8]), "zeros must still be written over what is there");
    }

    #[test]
    fn rights_and_holes_are_told_with_the_first_byte_at_fault() {
        let mut space = Space::new(PAGE);
        let at = space.map(4 * PAGE, Access::Full);
        space.map_at(at + PAGE, PAGE, Access::Read);
        space.unmap(at + 2 * PAGE, 1);
        assert_eq!(write(&space, at + 10, &[1; 5000]), Err(at + PAGE));
        assert_eq!(read(&space, at, 3 * PAGE), Err(at + 2 * PAGE));
        assert_eq!(read(&space, at + 3 * PAGE, PAGE), Ok(vec![0; PAGE as usize]));
        assert_eq!(read(&space, u64::MAX - 2, 8), Err(u64::MAX - 2));
    }

    #[test]
    fn who_holds_a_part_keeps_its_bytes_when_it_is_mapped_anew() {
        let mut space = Space::new(PAGE);
        let at = space.map(PAGE, Access::Full);
        write(&space, at, b"old").expect("the page is mapped");
        let held = space.part(at).expect("the page is mapped").clone();
        space.map_at(at, PAGE, Access::Full);
        write(&space, at, b"new").expect("the page is mapped");
        let mut seen = [0; 3];
        held.read(at, &mut seen);
        assert_eq!(&seen, b"old");
        assert_eq!(read(&space, at, 3), Ok(b"new".to_vec()));
    }

    proptest! {
        #[test]
        fn any_history_of_mapping_reads_like_an_array(
            steps in prop::collection::vec((0u8..3, 0u64..16, 1u64..6, any::<u8>()), 1..60),
        ) {
            const BASE: u64 = 1 << 30;
            let mut space = Space::new(PAGE);
            let mut model: Vec<Option<u8>> = vec![None; 32];
            for (what, page, pages, byte) in steps {
                let range = page as usize..(page + pages) as usize;
                match what {
                    0 => {
                        space.map_at(BASE + page * PAGE, pages * PAGE, Access::Full);
                        model[range].fill(Some(0));
                    }
                    1 => {
                        space.unmap(BASE + page * PAGE, pages * PAGE);
                        model[range].fill(None);
                    }
                    _ => {
                        let bytes = vec![byte; (pages * PAGE) as usize];
                        let hole = range.clone().find(|page| model[*page].is_none());
                        let wanted = hole.map_or(Ok(()), |page| Err(BASE + page as u64 * PAGE));
                        prop_assert_eq!(write(&space, BASE + page * PAGE, &bytes), wanted);
                        model[range.start..hole.unwrap_or(range.end)].fill(Some(byte));
                    }
                }
                for (page, byte) in model.iter().enumerate() {
                    let got = read(&space, BASE + page as u64 * PAGE + 100, 1).ok().map(|bytes| bytes[0]);
                    prop_assert_eq!(got, *byte);
                }
            }
        }
    }
}
