//! The mappings of this process.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, opcode};

/// Linux 6.11.
const QUERY: Opcode = opcode::read_write::<Query>(b'f', 17);
const COVERING_OR_NEXT: u64 = 0x10;
const VMA_SHARED: u64 = 0x08;

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Query {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_bytes: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_bytes: u32,
    build_id_bytes: u32,
    name_addr: u64,
    build_id_addr: u64,
}

/// One mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Others may have the same memory.
    pub(super) shared: bool,
    /// It is a file's, be it in memory only, or private.
    pub(super) file: bool,
}

/// This process's mappings; not those of a child that inherits this.
pub(super) struct Maps(File);

impl Maps {
    /// # Errors
    /// Where there is no `/proc`.
    pub(super) fn open() -> std::io::Result<Maps> {
        File::open("/proc/self/maps").map(Maps)
    }

    /// The mapping that `addr` lies in, or else the next.
    pub(super) fn at_or_after(&self, addr: u64) -> Option<Mapping> {
        match self.query(addr) {
            Err(Errno::NOTTY | Errno::INVAL) => read(addr),
            answer => answer.ok(),
        }
    }

    /// All mappings, in order.
    pub(super) fn all() -> Vec<Mapping> {
        let text = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        text.lines().filter_map(parse).collect()
    }

    fn query(&self, addr: u64) -> Result<Mapping, Errno> {
        let size = size_of::<Query>() as u64;
        let mut query = Query { size, flags: COVERING_OR_NEXT, addr, ..Query::default() };
        // SAFETY: the request's structure, whose size it names and which is ours alone; it asks for no text,
        // so that no other memory is written.
        if unsafe { libc::ioctl(self.0.as_raw_fd(), QUERY.into(), &raw mut query) } < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        let Query { start, end, vma_flags, inode, device, .. } = query;
        Ok(Mapping { start, end, shared: vma_flags & VMA_SHARED != 0, file: inode != 0 || device != [0; 2] })
    }
}

/// The same from the text, which takes time in proportion to the mappings.
fn read(addr: u64) -> Option<Mapping> {
    let text = fs::read_to_string("/proc/self/maps").ok()?;
    text.lines().filter_map(parse).find(|mapping| mapping.end > addr)
}

fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (rights, _offset, device, inode) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        shared: rights.ends_with('s'),
        file: inode != "0" || device != "00:00",
    })
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::test_pages::{PAGE, Pages};

    #[test]
    fn the_query_and_the_text_say_the_same() {
        let maps = Maps::open().unwrap();
        let pages = Pages::new(3);
        pages.unmap(1);
        let code = parse as fn(&str) -> Option<Mapping> as usize as u64;
        for addr in [pages.addr(0), pages.addr(1), pages.addr(2) + 9, code, &raw const maps as u64] {
            let found = maps.at_or_after(addr).unwrap();
            assert_eq!(Some(found), read(addr), "{addr:#x}");
            assert_eq!(found.file, addr == code, "{found:?}");
            assert!(found.end > addr && !found.shared);
        }
        assert_eq!(maps.at_or_after(pages.addr(1)).unwrap().start, pages.addr(2), "nothing is mapped there");
        assert_eq!(maps.at_or_after(u64::MAX - PAGE), read(u64::MAX - PAGE));
        assert!(Maps::all().contains(&maps.at_or_after(code).unwrap()));
    }

    #[test]
    fn lines_are_understood() {
        let shared = "7f0000000000-7f0000002000 rw-s 00000000 00:01 2061   /memfd:x (deleted)";
        let mapping = Mapping { start: 0x7f00_0000_0000, end: 0x7f00_0000_2000, shared: true, file: true };
        assert_eq!(parse(shared), Some(mapping));
        let own = "5500-6500 rw-p 00000000 00:00 0    [heap]";
        assert_eq!(parse(own), Some(Mapping { start: 0x5500, end: 0x6500, shared: false, file: false }));
        assert_eq!(parse("what is this"), None);
    }
}
