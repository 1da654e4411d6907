//! Memory of the kinds that programs transfer, which can be changed.

use std::fs::File;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::area::{Area, PAGE};

pub(crate) const PAGES: u64 = 3;

const BYTES: usize = (PAGES * PAGE) as usize;

/// The memory of one end.
pub(crate) struct Spot {
    pub(crate) area: Area,
    pub(crate) backing: Backing,
}

/// What it is made of.
pub(crate) enum Backing {
    /// Anonymous memory, mapped by whoever changes it.
    Anonymous,
    /// A file, mapped there.
    File(File),
    /// Memory of the C library's, or of what stands in for it.
    Allocated,
    /// An array of a thread's that waits.
    Stack { _waits: Waiting },
}

/// A thread that has an array on its stack, and ends when this is dropped.
pub(crate) struct Waiting {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Deref for Spot {
    type Target = Area;

    fn deref(&self) -> &Area {
        &self.area
    }
}

impl Spot {
    pub(crate) fn anonymous() -> Option<Spot> {
        Some(Spot { area: Area::new(PAGES), backing: Backing::Anonymous })
    }

    /// A file without a name, mapped with these flags.
    fn of_file(flags: i32) -> Option<Spot> {
        // SAFETY: the name is a string of this program's; the descriptor that is returned is nobody else's.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"changing".as_ptr(), libc::MFD_CLOEXEC)) };
        file.set_len(PAGES * PAGE).expect("memory");
        let area = Area::reserved(PAGES);
        area.map(file.as_raw_fd(), flags);
        Some(Spot { area, backing: Backing::File(file) })
    }

    pub(crate) fn of_shared_file() -> Option<Spot> {
        Spot::of_file(libc::MAP_SHARED)
    }

    pub(crate) fn of_private_file() -> Option<Spot> {
        Spot::of_file(libc::MAP_PRIVATE)
    }

    /// `None`: there are no System V segments.
    pub(crate) fn of_segment() -> Option<Spot> {
        let spot = Spot { area: Area::reserved(PAGES), backing: Backing::Anonymous };
        spot.attach().then_some(spot)
    }

    /// Maps a new segment there, which goes when it is detached.
    pub(crate) fn attach(&self) -> bool {
        // SAFETY: makes a segment; the area is this test's alone, and nothing is mapped there now.
        unsafe {
            let id = libc::shmget(libc::IPC_PRIVATE, self.len(), 0o600);
            if id < 0 {
                return false;
            }
            assert_eq!(libc::shmat(id, self.start(), 0), self.start());
            libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        }
        true
    }

    /// Memory of the C library's that is not aligned to anything.
    pub(crate) fn allocated(bytes: usize) -> Option<Spot> {
        // SAFETY: it is freed when this is dropped, or by `free`.
        let addr = unsafe { libc::malloc(bytes + 40) } as u64;
        assert_ne!(addr, 0, "no memory");
        let area = Area { addr: addr + 24, len: bytes as u64, is_borrowed: true };
        Some(Spot { area, backing: Backing::Allocated })
    }

    /// Frees what [`Spot::allocated`] gave, and allocates as much again, often elsewhere.
    pub(crate) fn allocate_anew(&mut self) {
        let bytes = self.len();
        let other = (self.addr >> 4) as usize % (2 * bytes) + 1;
        *self = {
            self.free();
            let decoy = Spot::allocated(other);
            let spot = Spot::allocated(bytes);
            drop(decoy);
            spot.expect("there was memory")
        };
    }

    fn free(&mut self) {
        if matches!(std::mem::replace(&mut self.backing, Backing::Anonymous), Backing::Allocated) {
            // SAFETY: it came from `malloc`, 24 bytes before the area, and nobody has freed it.
            unsafe { libc::free((self.addr - 24) as *mut _) };
        }
    }

    /// An array on the stack of a thread that waits until this is dropped.
    pub(crate) fn on_a_stack() -> Option<Spot> {
        let (addr, has_addr) = channel();
        let (stop, stopped): (Sender<()>, Receiver<()>) = channel();
        let thread = std::thread::spawn(move || {
            let mut array = [0_u8; BYTES];
            addr.send(std::hint::black_box(array.as_mut_ptr()).expose_provenance() as u64).expect("it waits");
            let _ = stopped.recv();
            std::hint::black_box(&mut array);
        });
        let area = Area { addr: has_addr.recv().expect("sent"), len: PAGES * PAGE, is_borrowed: true };
        Some(Spot {
            area,
            backing: Backing::Stack { _waits: Waiting { stop: Some(stop), thread: Some(thread) } },
        })
    }

    /// A part of what lies below the break: two of them lie there, in turn.
    pub(crate) fn at_the_break() -> Option<Spot> {
        static TURN: AtomicU64 = AtomicU64::new(0);
        let (first, _) = break_of_the_tests();
        let addr = first + TURN.fetch_add(1, Ordering::Relaxed) % 2 * PAGES * PAGE;
        Some(Spot { area: Area { addr, len: PAGES * PAGE, is_borrowed: true }, backing: Backing::Anonymous })
    }
}

impl Drop for Spot {
    fn drop(&mut self) {
        self.free();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

/// The first page that was added to the end of the program's data, and the break after all that was.
fn break_of_the_tests() -> (u64, u64) {
    static BREAK: OnceLock<(u64, u64)> = OnceLock::new();
    *BREAK.get_or_init(|| {
        // SAFETY: what lies above the break is nobody's, and the C library bears it when others move the
        // break up.
        let old = unsafe { libc::sbrk((2 * PAGES * PAGE + PAGE) as isize) } as u64;
        (old.next_multiple_of(PAGE), old + 2 * PAGES * PAGE + PAGE)
    })
}

/// Moves the break below what the tests have added, and up again. `false`: others have added more.
pub(crate) fn move_the_break() -> bool {
    let (first, top) = break_of_the_tests();
    let down = first as isize - top as isize;
    // SAFETY: it is set down and up again only while it is where it was set, so that what goes is the tests'.
    // The process is for this alone, and its other thread, whose allocator alone moves the break, waits for
    // this one.
    unsafe { libc::sbrk(0) as u64 == top && libc::sbrk(down) as i64 != -1 && libc::sbrk(-down) as i64 != -1 }
}
