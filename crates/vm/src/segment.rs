//! Memory that one process makes and its peers map: a memfd, sealed against shrinking.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::MprotectFlags;

use crate::host;
use crate::mapping::Mapping;
use crate::pages::HUGE_PAGE_BYTES;
pub use crate::pages::PAGE_BYTES;
use crate::shared::SharedMemory;

/// The name that `fstatfs` has for the file system behind an ordinary memfd. One of huge pages has another
/// number and raises SIGBUS when the pool of huge pages is empty, so it is refused from a peer.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A sealed memfd of fixed size and its mapping in this process.
///
/// It is sparse: a page exists once somebody touched it, and no longer when it was punched out. Nothing in
/// the file system names it, so it goes with the last process that has it open or mapped, however that one
/// ends.
#[derive(Debug)]
pub struct Segment {
    fd: OwnedFd,
    memory: SharedMemory,
}

/// Why a segment could not be made, opened or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// A system call failed.
    #[error("{call} failed: {errno}")]
    Os {
        /// The system call.
        call: &'static str,
        /// The system's error.
        errno: Errno,
    },
    /// This process locks all that it maps, by `mlockall` with `MCL_FUTURE`, and may not lock so much.
    #[error(
        "{len} bytes more are not lockable, of {limit} in all (RLIMIT_MEMLOCK), and this process locks whatever it maps \
         (mlockall with MCL_FUTURE)"
    )]
    Lockable {
        /// The segment's size in bytes.
        len: u64,
        /// How many bytes the process may lock in all.
        limit: u64,
    },
    /// A peer sent something that is no memfd of ordinary pages.
    #[error("not a memory file of ordinary pages")]
    NotMemfd,
    /// A peer sent something that could be shrunk under us, so touching it could kill us.
    #[error("the memory file is not sealed against shrinking")]
    Unsealed,
    /// The size is zero, or more than can be mapped.
    #[error("a segment cannot have {len} bytes")]
    BadLength {
        /// The size in bytes.
        len: u64,
    },
    /// A range to punch out is not made of whole pages inside the segment.
    #[error("{len} bytes at {offset} are not whole pages of the segment")]
    NotPages {
        /// Its start in bytes.
        offset: u64,
        /// Its length in bytes.
        len: u64,
    },
}

impl SegmentError {
    /// Whether it was the size that the system, or this process's limits, did not allow.
    pub fn is_for_size(&self) -> bool {
        match self {
            SegmentError::Os { errno, .. } => matches!(*errno, Errno::NOMEM | Errno::FBIG),
            SegmentError::BadLength { len } => *len > 0,
            SegmentError::Lockable { .. } => true,
            SegmentError::NotMemfd | SegmentError::Unsealed | SegmentError::NotPages { .. } => false,
        }
    }
}

fn os(call: &'static str) -> impl Fn(Errno) -> SegmentError {
    move |errno| SegmentError::Os { call, errno }
}

impl Segment {
    /// Makes a segment of `len` bytes, all zero, none of them backed by memory yet. `name` is for people who
    /// look into `/proc`. All of it is open: it is in this process's core dumps, and `mlockall` takes memory
    /// for all of it.
    ///
    /// # Errors
    /// As for [`Segment::create_closed`].
    pub fn create(name: &str, len: u64) -> Result<Segment, SegmentError> {
        let segment = Segment::create_closed(name, len)?;
        segment.memory.open_part(0..len).map_err(os("mprotect"))?;
        Ok(segment)
    }

    /// The same, where no byte may be accessed before it [is opened](SharedMemory::open_to): until then it is
    /// in no core dump, and `mlockall` leaves it alone.
    ///
    /// # Errors
    /// [`SegmentError::BadLength`] if `len` is zero or no file can be so long; [`SegmentError::Lockable`] if
    /// this process locks all that it maps, and may not lock so much; [`SegmentError::Os`] if the kernel
    /// refuses.
    pub fn create_closed(name: &str, len: u64) -> Result<Segment, SegmentError> {
        if len == 0 || i64::try_from(len).is_err() {
            return Err(SegmentError::BadLength { len });
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags).map_err(os("memfd_create"))?;
        Segment::sealed(fd, len, 0)
    }

    /// The same, which nobody but this process will ever write: peers open it by [`ReadOnly::open`], and
    /// the kernel refuses them everything else.
    ///
    /// # Errors
    /// As for [`Segment::create_closed`]. [`SegmentError::Os`] of a kernel before 5.1, which has no such
    /// seal.
    pub fn create_own(name: &str, len: u64) -> Result<Segment, SegmentError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags).map_err(os("memfd_create"))?;
        Segment::sealed_by(fd, len, 0, SealFlags::FUTURE_WRITE)
    }

    /// Makes a memory file of this process's that is not sealed yet a closed segment of `len` bytes, no fewer
    /// than it has. Its core dumps have nothing of the first `has` bytes, which are mapped elsewhere.
    ///
    /// # Errors
    /// As for [`Segment::create_closed`].
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn grown(fd: BorrowedFd<'_>, has: u64, len: u64) -> Result<Segment, SegmentError> {
        if i64::try_from(len).is_err() {
            return Err(SegmentError::BadLength { len });
        }
        let fd = fd.try_clone_to_owned().map_err(|error| SegmentError::Os {
            call: "fcntl(F_DUPFD_CLOEXEC)",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
        })?;
        Segment::sealed(fd, len, has)
    }

    /// Gives a memory file its length, for good once it is mapped.
    fn sealed(fd: OwnedFd, len: u64, dumped_from: u64) -> Result<Segment, SegmentError> {
        Segment::sealed_by(fd, len, dumped_from, SealFlags::empty())
    }

    /// As [`Segment::sealed`], by more seals.
    fn sealed_by(fd: OwnedFd, len: u64, dumped_from: u64, more: SealFlags) -> Result<Segment, SegmentError> {
        // The kernel ends the process that makes a file longer than this: see setrlimit(2).
        let longest = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if longest.is_some_and(|longest| len > longest) {
            return Err(os("ftruncate")(Errno::FBIG));
        }
        rustix::io::retry_on_intr(|| rustix::fs::ftruncate(&fd, len)).map_err(os("ftruncate"))?;
        let segment = Segment::map(fd, len, dumped_from)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | more;
        rustix::fs::fcntl_add_seals(&segment.fd, seals).map_err(os("fcntl(F_ADD_SEALS)"))?;
        Ok(segment)
    }

    /// Maps the segment behind a descriptor that a peer sent, closed: it may be accessed once it [is
    /// opened](SharedMemory::open_to), and is in no core dump of this process. For every descriptor, the
    /// result is a segment that can be touched without danger then, or an error.
    ///
    /// # Errors
    /// [`SegmentError::NotMemfd`], [`SegmentError::Unsealed`], [`SegmentError::BadLength`] for a descriptor
    /// that is not what [`Segment::create`] makes; [`SegmentError::Lockable`] and [`SegmentError::Os`] if it
    /// cannot be mapped.
    pub fn open(fd: OwnedFd) -> Result<Segment, SegmentError> {
        let len = sealed_len(fd.as_fd())?;
        let segment = Segment::map(fd, len, u64::MAX)?;
        // Whether it may be written, the kernel says once something is opened.
        segment.memory.open_part(0..1).map_err(os("mprotect"))?;
        Ok(segment)
    }

    /// Asks for huge pages at this mapping, which the system gives where it is set to `advise`. Each is 2 MiB
    /// from when one byte of it is touched.
    pub fn prefer_huge_pages(&self) {
        self.memory.prefer_huge_pages();
    }

    /// Opens the first `end` bytes, and some more: see [`SharedMemory::open_to`].
    ///
    /// # Errors
    /// [`SegmentError::Os`] if there are not so many bytes, or the kernel has no memory.
    pub fn open_to(&self, end: u64) -> Result<(), SegmentError> {
        self.memory.open_to(end).map_err(os("mprotect"))
    }

    /// The descriptor to send to a peer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The mapping. It stays alive with the last clone, also after the segment is dropped.
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// The segment's size in bytes, resident or not.
    pub fn len(&self) -> u64 {
        self.memory.len()
    }

    /// Whether it has no bytes; it always has some.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Gives the memory of a range of whole pages back to the system; it then reads as zeros, in every
    /// process.
    ///
    /// # Errors
    /// [`SegmentError::NotPages`] if the range is not made of whole pages of the segment,
    /// [`SegmentError::Os`] if the kernel refuses.
    pub fn punch(&self, offset: u64, len: u64) -> Result<(), SegmentError> {
        let inside =
            offset.checked_add(len).is_some_and(|end| end <= self.len().next_multiple_of(PAGE_BYTES));
        if len == 0 || !inside || !offset.is_multiple_of(PAGE_BYTES) || !len.is_multiple_of(PAGE_BYTES) {
            return Err(SegmentError::NotPages { offset, len });
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.fd, flags, offset, len))
            .map_err(os("fallocate"))
    }

    /// Takes memory for a range of bytes now, so that no touch of it fails later. Pages that have some keep
    /// it.
    ///
    /// # Errors
    /// [`SegmentError::Os`] where the system has no more, or the range is not of the segment.
    pub fn reserve(&self, offset: u64, len: u64) -> Result<(), SegmentError> {
        if len == 0 {
            return Ok(());
        }
        let reserve = || rustix::fs::fallocate(&self.fd, FallocateFlags::KEEP_SIZE, offset, len);
        rustix::io::retry_on_intr(reserve).map_err(os("fallocate"))
    }

    /// The most that offsets can be aligned to so that addresses are, in every process that maps it and has
    /// the address space to do so.
    pub fn align(&self) -> u64 {
        if self.len() < HUGE_PAGE_BYTES { PAGE_BYTES } else { HUGE_PAGE_BYTES }
    }

    /// Takes memory for a range of bytes now, in huge pages.
    ///
    /// # Errors
    /// [`SegmentError::NotPages`] if the range is not made of whole huge pages of the segment,
    /// [`SegmentError::Os`] where the system has none, or no memory.
    pub fn take_huge_pages(&self, offset: u64, len: u64) -> Result<(), SegmentError> {
        let huge = HUGE_PAGE_BYTES;
        if !offset.is_multiple_of(huge) || !len.is_multiple_of(huge) {
            return Err(SegmentError::NotPages { offset, len });
        }
        self.memory.collapse(offset, len).map_err(os("madvise(MADV_COLLAPSE)"))
    }

    /// How many bytes of memory the segment occupies now, on behalf of all who map it.
    ///
    /// # Errors
    /// [`SegmentError::Os`] if the descriptor cannot be asked.
    pub fn resident_bytes(&self) -> Result<u64, SegmentError> {
        let status = rustix::fs::fstat(&self.fd).map_err(os("fstat"))?;
        Ok(u64::try_from(status.st_blocks).unwrap_or(0) * 512)
    }

    fn map(fd: OwnedFd, len: u64, dumped_from: u64) -> Result<Segment, SegmentError> {
        let bytes = usize::try_from(len).map_err(|_| SegmentError::BadLength { len })?;
        let memory = SharedMemory::map(fd.as_fd(), bytes, dumped_from).map_err(|errno| match errno {
            Errno::AGAIN => SegmentError::Lockable { len, limit: host::memlock().soft.unwrap_or(u64::MAX) },
            errno => SegmentError::Os { call: "mmap", errno },
        })?;
        Ok(Segment { fd, memory })
    }
}

/// The bytes of a memory file that a peer sent, which can be mapped without danger.
fn sealed_len(fd: BorrowedFd<'_>) -> Result<u64, SegmentError> {
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| SegmentError::NotMemfd)?;
    let system = rustix::fs::fstatfs(fd).map_err(os("fstatfs"))?;
    if system.f_type as i64 != TMPFS_MAGIC {
        return Err(SegmentError::NotMemfd);
    }
    if !seals.contains(SealFlags::SHRINK) {
        return Err(SegmentError::Unsealed);
    }
    // Sealed before measured: from here on the file can only be this long or longer.
    let status = rustix::fs::fstat(fd).map_err(os("fstat"))?;
    u64::try_from(status.st_size).ok().filter(|len| *len > 0).ok_or(SegmentError::BadLength { len: 0 })
}

/// Memory of a peer's that this process can only read: see [`Segment::create_own`]. The peer may write it at
/// any time.
#[derive(Debug)]
pub struct ReadOnly {
    mapping: Mapping,
}

impl ReadOnly {
    /// Maps the segment behind a descriptor that a peer sent, closed: words of it can be read once it [is
    /// opened](ReadOnly::open_to).
    ///
    /// # Errors
    /// As for [`Segment::open`].
    pub fn open(fd: BorrowedFd<'_>) -> Result<ReadOnly, SegmentError> {
        let len = sealed_len(fd)?;
        let bytes = usize::try_from(len).map_err(|_| SegmentError::BadLength { len })?;
        let mapping = Mapping::new(fd, bytes, u64::MAX, MprotectFlags::READ).map_err(os("mmap"))?;
        Ok(ReadOnly { mapping })
    }

    /// Opens the first `end` bytes, and some more. One comparison where they are open.
    ///
    /// # Errors
    /// [`SegmentError::Os`] if there are not so many bytes, or the kernel has no memory.
    pub fn open_to(&self, end: u64) -> Result<(), SegmentError> {
        self.mapping.open_to(end).map_err(os("mprotect"))
    }

    /// The 64-bit word that begins at a multiple of 8, if it lies in what is open.
    #[inline]
    pub fn load(&self, offset: u64, ordering: Ordering) -> Option<u64> {
        self.load_all(offset, [ordering]).map(|[word]| word)
    }

    /// As many words from a multiple of 8 on, if all lie in what is open: one after the other, each in its
    /// own ordering.
    #[inline]
    pub fn load_all<const N: usize>(&self, offset: u64, orderings: [Ordering; N]) -> Option<[u64; N]> {
        let end = offset.checked_add(8 * N as u64)?;
        if !offset.is_multiple_of(8) || end > self.mapping.open_bytes() {
            return None;
        }
        let first = self.mapping.base().as_ptr().wrapping_add(offset as usize).cast::<u64>();
        let mut words = [0; N];
        for (at, (word, ordering)) in words.iter_mut().zip(orderings).enumerate() {
            // SAFETY: the word lies in pages of the mapping that are open for reading, at a multiple of 8. It
            // is only read, and others change it by atomics alone.
            *word = unsafe { AtomicU64::from_ptr(first.wrapping_add(at)) }.load(ordering);
        }
        Some(words)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_keeps_to_itself_others_read_and_never_write() {
        let mine = Segment::create_own("own-test", 4 * MIB).unwrap();
        mine.open_to(2 * PAGE_BYTES).unwrap();
        let sent = || mine.fd().try_clone_to_owned().unwrap();
        assert!(
            matches!(Segment::open(sent()), Err(SegmentError::Os { .. })),
            "it cannot be opened for writing"
        );
        let theirs = ReadOnly::open(sent().as_fd()).unwrap();
        assert_eq!(theirs.load(8, Ordering::Acquire), None, "it is closed");
        theirs.open_to(PAGE_BYTES).unwrap();
        mine.memory().atomic_u64(8).unwrap().store(77, Ordering::Release);
        assert_eq!(theirs.load(8, Ordering::Acquire), Some(77));
        assert_eq!([theirs.load(4, Ordering::Relaxed), theirs.load(4 * MIB, Ordering::Relaxed)], [None; 2]);
        assert_eq!(theirs.load(u64::MAX - 7, Ordering::Relaxed), None);
        assert!(
            ReadOnly::open(raw_memfd(MemfdFlags::ALLOW_SEALING, MIB).as_fd()).is_err(),
            "it is not sealed"
        );
    }

    const MIB: u64 = 1 << 20;

    fn raw_memfd(flags: MemfdFlags, len: u64) -> OwnedFd {
        let fd = rustix::fs::memfd_create("hostile", flags).expect("a memfd");
        rustix::fs::ftruncate(&fd, len).expect("sized");
        fd
    }

    #[test]
    fn two_mappings_of_one_segment_share_bytes() {
        let mine = Segment::create("shared", MIB).unwrap();
        let theirs = Segment::open(mine.fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(theirs.len(), MIB);
        theirs.open_to(MIB).unwrap();
        assert_ne!(mine.memory().base_addr(), theirs.memory().base_addr());
        mine.memory().store(MIB - 8, 42_u64).unwrap();
        assert_eq!(theirs.memory().load::<u64>(MIB - 8), Ok(42));
    }

    #[test]
    fn pages_exist_once_touched_and_not_after_a_punch() {
        let segment = Segment::create("sparse", 1024 * MIB).unwrap();
        assert_eq!(segment.resident_bytes(), Ok(0));
        for page in 0..8 {
            segment.memory().store(page * PAGE_BYTES, 1_u64).unwrap();
        }
        assert_eq!(segment.resident_bytes(), Ok(8 * PAGE_BYTES));
        segment.punch(PAGE_BYTES, 2 * PAGE_BYTES).unwrap();
        assert_eq!(segment.resident_bytes(), Ok(6 * PAGE_BYTES));
        segment.reserve(PAGE_BYTES - 1, 2).unwrap();
        assert_eq!(segment.resident_bytes(), Ok(7 * PAGE_BYTES));
        assert_eq!(segment.reserve(0, 0), Ok(()));
        assert_eq!(segment.memory().load::<u64>(PAGE_BYTES), Ok(0));
        assert_eq!(segment.memory().load::<u64>(3 * PAGE_BYTES), Ok(1));
    }

    #[test]
    fn only_what_is_opened_is_accessible_and_of_that_only_ones_own_is_dumped() {
        let segment = Segment::create_closed("closed-test", 64 * MIB).unwrap();
        let theirs = Segment::open(segment.fd().try_clone_to_owned().unwrap()).unwrap();
        theirs.open_to(4 * MIB).unwrap();
        let maps = |of: &Segment| {
            let base = of.memory().base_addr();
            let of_it = |map: &testbed::Mapped| map.range.start >= base && map.range.end <= base + of.len();
            let maps = testbed::mapped("closed-test").into_iter().filter(of_it);
            let bytes = |map: testbed::Mapped| (map.bytes(), map.is_open(), map.is_dumped);
            maps.map(bytes).collect::<Vec<_>>()
        };
        assert_eq!(maps(&segment), [(64 * MIB, false, false)]);
        assert_eq!(segment.open_to(64 * MIB + 1).unwrap_err(), os("mprotect")(Errno::INVAL));
        segment.open_to(1).unwrap();
        assert_eq!(maps(&segment), [(2 * MIB, true, true), (62 * MIB, false, false)]);
        assert_eq!(maps(&theirs), [(6 * MIB, true, false), (58 * MIB, false, false)]);
        assert!(segment.memory().set_dumped(MIB..2 * MIB, false));
        segment.open_to(64 * MIB).unwrap();
        assert_eq!(maps(&segment), [(MIB, true, true), (MIB, true, false), (62 * MIB, true, true)]);
        assert_eq!((segment.memory().open_bytes(), theirs.memory().open_bytes()), (64 * MIB, 6 * MIB));
    }

    #[test]
    fn what_is_used_grows_by_few_calls() {
        let segment = Segment::create_closed("grows", 1024 * MIB).unwrap();
        let mut calls = 0;
        for end in (0..=1024 * MIB).step_by(64 << 10) {
            let before = segment.memory().open_bytes();
            segment.open_to(end).unwrap();
            let after = segment.memory().open_bytes();
            assert!(after >= end && after <= end + end / 4 + 4 * MIB);
            calls += usize::from(after > before);
        }
        assert!(calls <= 40, "{calls} times for 16,384 blocks");
    }

    #[test]
    fn only_whole_pages_inside_are_punched() {
        let segment = Segment::create("punch", MIB).unwrap();
        for (offset, len) in
            [(0, 0), (1, PAGE_BYTES), (0, 1), (MIB, PAGE_BYTES), (u64::MAX - 4095, PAGE_BYTES)]
        {
            assert_eq!(segment.punch(offset, len), Err(SegmentError::NotPages { offset, len }));
        }
    }

    #[test]
    fn lengths_that_make_no_file_are_refused() {
        for len in [0, u64::MAX] {
            assert_eq!(Segment::create("bad", len).unwrap_err(), SegmentError::BadLength { len });
        }
        assert!(matches!(Segment::create("huge", 1 << 62), Err(SegmentError::Os { call: "mmap", .. })));
    }

    #[test]
    fn it_cannot_be_resized_by_anyone() {
        let segment = Segment::create("sealed", MIB).unwrap();
        assert_eq!(rustix::fs::ftruncate(segment.fd(), 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(segment.fd(), 2 * MIB), Err(Errno::PERM));
    }

    #[test]
    fn hostile_descriptors_are_errors() {
        let sealable = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let unsealed = raw_memfd(sealable, MIB);
        assert_eq!(Segment::open(unsealed).unwrap_err(), SegmentError::Unsealed);
        let unsealable = raw_memfd(MemfdFlags::CLOEXEC, MIB);
        assert_eq!(Segment::open(unsealable).unwrap_err(), SegmentError::Unsealed);
        let empty = raw_memfd(sealable, 0);
        rustix::fs::fcntl_add_seals(&empty, SealFlags::SHRINK).unwrap();
        assert_eq!(Segment::open(empty).unwrap_err(), SegmentError::BadLength { len: 0 });
        let read_only = raw_memfd(sealable, MIB);
        rustix::fs::fcntl_add_seals(&read_only, SealFlags::SHRINK | SealFlags::WRITE).unwrap();
        let refused = SegmentError::Os { call: "mprotect", errno: Errno::ACCESS };
        assert_eq!(Segment::open(read_only).unwrap_err(), refused);
        let future = raw_memfd(sealable, MIB);
        rustix::fs::fcntl_add_seals(&future, SealFlags::SHRINK | SealFlags::FUTURE_WRITE).unwrap();
        assert_eq!(Segment::open(future).unwrap_err(), refused);

        let file: OwnedFd = std::fs::File::open(std::env::current_exe().unwrap()).unwrap().into();
        assert_eq!(Segment::open(file).unwrap_err(), SegmentError::NotMemfd);
        let socket: OwnedFd = std::os::unix::net::UnixStream::pair().unwrap().0.into();
        assert_eq!(Segment::open(socket).unwrap_err(), SegmentError::NotMemfd);
        let null: OwnedFd = std::fs::File::open("/dev/zero").unwrap().into();
        assert_eq!(Segment::open(null).unwrap_err(), SegmentError::NotMemfd);
    }

    #[test]
    fn huge_page_files_are_refused() {
        let flags =
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let Ok(fd) = rustix::fs::memfd_create("huge", flags) else {
            testbed::skip("no huge page files here");
            return;
        };
        rustix::fs::ftruncate(&fd, 2 * MIB).unwrap();
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
        assert_eq!(Segment::open(fd).unwrap_err(), SegmentError::NotMemfd);
    }
}
