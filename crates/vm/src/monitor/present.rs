//! Which pages of this process are there.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bits of an entry of the page map.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;

/// Entries read at a time.
const CHUNK: u64 = 256;
/// Chunks read for one search, at most: of 4-KiB pages, 64 MiB.
const CHUNKS: u64 = 64;

/// This process's page map; not that of a child that inherits this.
pub(super) struct PageMap {
    file: File,
    page: u64,
}

impl PageMap {
    /// # Errors
    /// Where there is none.
    pub(super) fn open() -> std::io::Result<PageMap> {
        Ok(PageMap { file: File::open("/proc/self/pagemap")?, page: rustix::param::page_size() as u64 })
    }

    /// Whether there is nothing at `addr`: neither a page, nor one that was swapped out.
    pub(super) fn is_empty(&self, addr: u64) -> bool {
        let mut entry = [0];
        self.read(addr / self.page, &mut entry) == 1 && entry[0] & (PRESENT | SWAPPED) == 0
    }

    /// Fills `found` with pages that are there, the last of the range first, and returns how many it found.
    pub(super) fn last_present(&self, start: u64, end: u64, found: &mut [u64]) -> usize {
        let (first, mut after) = (start / self.page, end.div_ceil(self.page));
        let mut entries = [0; CHUNK as usize];
        let mut count = 0;
        for _ in 0..CHUNKS {
            let from = after.saturating_sub(CHUNK).max(first);
            let wanted = (after - from) as usize;
            let read = self.read(from, &mut entries[..wanted]);
            for at in (0..read).rev().filter(|at| entries[*at] & PRESENT != 0) {
                let Some(place) = found.get_mut(count) else { return count };
                *place = (from + at as u64) * self.page;
                count += 1;
            }
            after = from;
            if after == first {
                break;
            }
        }
        count
    }

    /// Allocates nothing.
    fn read(&self, page: u64, entries: &mut [u64]) -> usize {
        let bytes = bytemuck::cast_slice_mut::<u64, u8>(entries);
        self.file.read_at(bytes, page * 8).unwrap_or(0) / 8
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::test_pages::{PAGE, Pages};

    #[test]
    fn pages_are_there_once_they_are_written() {
        let map = PageMap::open().unwrap();
        let pages = Pages::new(1000);
        let mut found = [0; 3];
        let end = pages.addr(0) + 1000 * PAGE;
        assert_eq!(map.last_present(pages.addr(0), end, &mut found), 0);
        for page in [0, 300, 301, 999] {
            assert!(map.is_empty(pages.addr(page)));
            pages.fill(page, 1);
            assert!(!map.is_empty(pages.addr(page)));
        }
        assert_eq!(map.last_present(pages.addr(0), end, &mut found), 3);
        assert_eq!(found, [pages.addr(999), pages.addr(301), pages.addr(300)]);
        assert_eq!(map.last_present(pages.addr(0), pages.addr(300), &mut found), 1);
        assert_eq!(found[0], pages.addr(0));
        assert_eq!(map.last_present(pages.addr(1), pages.addr(300), &mut found), 0);
    }
}
