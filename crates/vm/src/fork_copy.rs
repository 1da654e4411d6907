//! A copy of the heap for each child made by `fork`, in a program that knows nothing of the heap.
//!
//! A child must not share its parent's heap. A private mapping of the file will not do: it shows what the
//! parent writes to pages that the child has not written yet. So the child gets the bytes themselves before
//! `fork` returns in it, and its parent waits until it has them. The parent's heap stays where it is all the
//! while, so that nothing that goes wrong with a child harms the parent.
//!
//! 1. *Before*: all other threads of the parent [halt](crate::halted_threads), so that the copy is of one
//!    moment, as any memory of a child's.
//! 2. *In the child* the heap is not mapped at first. Its first access, which may be the system library's on
//!    its way out of `fork`, faults; the handler maps private memory there, and reads the file into it. If
//!    nothing touches the heap, our own handler of forks does the same.
//! 3. *In the parent*: it waits for a byte of the child's, by a pipe that also tells of the child's end. Then
//!    the threads go on, and later writes are nobody's but the parent's.
//!
//! `posix_spawn` and `vfork` make no copy of the parent's memory, and come by none of this. A child that has
//! a copy forks as any process does.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;
use rustix::thread::futex::{self, Flags};

use crate::halted_threads;
use crate::heap_face::ForkCounts;
use crate::heap_file::HeapFile;

/// How large a heap may be that a child copies.
const MAX: &CStr = c"STANDPIPE_MALLOC_FORK_MAX";

/// The status with which a child ends that can have no copy.
const REFUSED: c_int = 71;

/// For the handler of faults: the kernel stores all registers there.
const STACK_BYTES: usize = 64 << 10;

/// A parent waits for this long, and for as long again for every so many bytes.
const COPY_S: u64 = 10;
const BYTES_WITHIN: u64 = 1 << 30;

/// How often `fork` tries to halt threads at a moment in which none of them has a lock of the allocator's.
const TRIES: u32 = 1000;

static HEAP: OnceLock<&'static HeapFile> = OnceLock::new();
/// Says whether a thread may have a lock of the allocator's.
static ARE_LOCKS_HELD: OnceLock<fn() -> bool> = OnceLock::new();
static WINDOW: Window = Window { lock: AtomicU32::new(0), state: UnsafeCell::new(MaybeUninit::uninit()) };
static STACK: Stack = Stack(UnsafeCell::new([0; STACK_BYTES]));
static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// The time between the first and the last of our handlers of one fork: one thread has it.
struct Window {
    /// 0: nobody forks. 1: somebody does. 2: and others wait.
    lock: AtomicU32,
    state: UnsafeCell<MaybeUninit<State>>,
}

// SAFETY: the state is read and written by the thread that has the lock, and by handlers that it runs.
unsafe impl Sync for Window {}

struct Stack(UnsafeCell<[u8; STACK_BYTES]>);

// SAFETY: only the kernel writes it, for the thread that has the window's lock.
unsafe impl Sync for Stack {}

/// Notes of a fork under way, for its end.
#[derive(Clone, Copy)]
struct State {
    plan: Plan,
    parent: c_int,
    not_halted: u32,
    stdio: Option<Stdio>,
    /// The mask that was there before; it and the next two are put back.
    mask: libc::sigset_t,
    faults: libc::sigaction,
    stack: libc::stack_t,
}

#[derive(Clone, Copy)]
enum Plan {
    /// The child copies a heap of so many bytes, and says so by the second descriptor.
    Copy {
        resident: u64,
        reader: RawFd,
        writer: RawFd,
    },
    Refuse(Why),
}

/// Why a child can have no copy.
#[derive(Clone, Copy)]
enum Why {
    TooLarge { resident: u64, max: u64 },
    NoNumber,
    Stack,
    NoDescriptor,
    NoMemory,
    TooLate,
}

/// The list of open files of the system's library. `fork` takes its lock after our handler has halted all
/// threads, so that none of them may have it by then.
#[derive(Clone, Copy)]
struct Stdio {
    unlock: unsafe extern "C" fn(),
    reset: unsafe extern "C" fn(),
}

/// Has children of this process copy this heap from now on. Whether the system's library will tell of forks.
pub(crate) fn watch(heap: &'static HeapFile, are_locks_held: fn() -> bool) -> bool {
    // SAFETY: the handlers are functions for the program's whole life. The one for children calls only what a
    // forked child may.
    HEAP.set(heap).is_ok()
        && ARE_LOCKS_HELD.set(are_locks_held).is_ok()
        && unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } == 0
}

/// Counts of what forks have done so far.
pub(crate) extern "C" fn counts() -> ForkCounts {
    let [copied, bytes, refused, not_halted] = COUNTS.each_ref().map(|count| count.load(Ordering::Relaxed));
    ForkCounts { copied, bytes, refused, not_halted }
}

fn count(values: ForkCounts) {
    let values = [values.copied, values.bytes, values.refused, values.not_halted];
    for (count, value) in COUNTS.iter().zip(values) {
        count.fetch_add(value, Ordering::Relaxed);
    }
}

/// # Safety
/// Only the system's library calls it, in a thread that is about to fork.
unsafe extern "C" fn before() {
    let Some(heap) = HEAP.get().filter(|heap| !heap.is_copy()) else { return };
    WINDOW.enter();
    let mask = block_signals();
    let stdio = halted_threads::are_there().then(Stdio::lock).flatten();
    let not_halted = halt_without_locks();
    // SAFETY: it asks for this process's own number, and cannot fail.
    let parent = unsafe { libc::getpid() };
    let (faults, stack) = handlers_of_faults();
    WINDOW.set(State { plan: Plan::of(heap), parent, not_halted, stdio, mask, faults, stack });
    watch_faults();
}

/// Halts all other threads at a moment in which none has a lock of the allocator: it would stay locked in
/// the child. Says how many it could not halt.
fn halt_without_locks() -> u32 {
    let mut tries = 1;
    loop {
        let not_halted = halted_threads::halt();
        let are_locks_held = ARE_LOCKS_HELD.get().is_some_and(|are_held| are_held());
        if !are_locks_held || tries == TRIES {
            return not_halted;
        }
        halted_threads::go_on();
        rustix::thread::sched_yield();
        tries += 1;
    }
}

/// # Safety
/// Only the system's library calls it, in a thread that has forked, or could not.
unsafe extern "C" fn in_parent() {
    let Some(state) = WINDOW.state() else { return };
    halted_threads::attend();
    let not_halted = match state.plan {
        Plan::Copy { resident, reader, writer } => {
            let has_copy = await_child(resident, reader, writer);
            count(ForkCounts {
                copied: has_copy.into(),
                bytes: u64::from(has_copy) * resident,
                ..ForkCounts::default()
            });
            state.not_halted
        }
        Plan::Refuse(_) => {
            count(ForkCounts { refused: 1, ..ForkCounts::default() });
            0
        }
    };
    let impatient = halted_threads::go_on();
    count(ForkCounts { not_halted: (not_halted + impatient).into(), ..ForkCounts::default() });
    if let Some(stdio) = state.stdio {
        // SAFETY: `before` has locked the list for this thread.
        unsafe { (stdio.unlock)() };
    }
    state.put_back(|| WINDOW.leave());
}

/// # Safety
/// Only the system's library calls it, in a child that has just been forked.
unsafe extern "C" fn in_child() {
    let Some(state) = WINDOW.state() else { return };
    if let Some(heap) = HEAP.get().filter(|heap| !heap.is_copy()) {
        copy_or_end(heap, &state);
    }
    // There are no other threads.
    halted_threads::go_on();
    if let Some(stdio) = state.stdio {
        // SAFETY: nobody else is in this process who could have the list.
        unsafe { (stdio.reset)() };
    }
    state.put_back(|| WINDOW.leave());
}

/// Copies the heap in a child that has none yet, or ends it.
fn copy_or_end(heap: &HeapFile, state: &State) {
    let (resident, reader, writer) = match state.plan {
        Plan::Copy { resident, reader, writer } => (resident, reader, writer),
        Plan::Refuse(why) => end(why),
    };
    close(reader);
    // SAFETY: this is a child, as the callers know, in which the heap is not mapped.
    let copied = unsafe { heap.copy_here(resident) };
    if copied.is_err() {
        end(Why::NoMemory);
    }
    // SAFETY: the descriptor was opened by the parent for this, and nobody has closed it.
    let told =
        rustix::io::retry_on_intr(|| rustix::io::write(unsafe { BorrowedFd::borrow_raw(writer) }, b"."));
    if told.is_err() {
        // Its threads went on while this process copied.
        end(Why::TooLate);
    }
    close(writer);
}

/// Waits until the child has its copy, or has ended, or there is none. Whether it has.
fn await_child(resident: u64, reader: RawFd, writer: RawFd) -> bool {
    close(writer);
    // SAFETY: `before` has opened it for this, and it is closed below.
    let fd = unsafe { BorrowedFd::borrow_raw(reader) };
    let within = COPY_S * (1 + resident / BYTES_WITHIN);
    let within = rustix::event::Timespec { tv_sec: within as i64, tv_nsec: 0 };
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    // All signals that have handlers of the program's are blocked: nothing interrupts this.
    let is_told = rustix::event::poll(&mut polled, Some(&within)).is_ok_and(|ready| ready > 0);
    let has_copy = is_told && rustix::io::read(fd, &mut [0_u8]).is_ok_and(|len| len == 1);
    close(reader);
    has_copy
}

fn close(fd: RawFd) {
    // SAFETY: `before` has opened it, each process closes it once, and none uses it any more.
    unsafe { rustix::io::close(fd) };
}

impl Plan {
    fn of(heap: &HeapFile) -> Plan {
        // The parent goes on on this stack, and writes there, while the child copies it.
        if heap.addresses().contains(&(&raw const heap).addr()) {
            return Plan::Refuse(Why::Stack);
        }
        let Some(resident) = heap.resident_bytes() else { return Plan::Refuse(Why::NoDescriptor) };
        match most() {
            Some(max) if resident <= max => {}
            Some(max) => return Plan::Refuse(Why::TooLarge { resident, max }),
            None => return Plan::Refuse(Why::NoNumber),
        }
        match rustix::pipe::pipe_with(PipeFlags::CLOEXEC) {
            Ok((reader, writer)) => {
                use std::os::fd::IntoRawFd;
                Plan::Copy { resident, reader: reader.into_raw_fd(), writer: writer.into_raw_fd() }
            }
            Err(_) => Plan::Refuse(Why::NoDescriptor),
        }
    }
}

/// How large a heap may be that is copied: a quarter of the machine's memory unless set. `None` if it is set
/// to no number of bytes.
fn most() -> Option<u64> {
    // SAFETY: the name ends with a zero byte, and all threads are halted that might change the environment.
    let value = unsafe { libc::getenv(MAX.as_ptr()) };
    if value.is_null() {
        let system = rustix::system::sysinfo();
        return Some((system.totalram as u64).saturating_mul(system.mem_unit.into()) / 4);
    }
    // SAFETY: the environment's strings end with a zero byte, and nobody changes them now, as above.
    bytes_of(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// A number of bytes, which may end with K, M, G or T.
fn bytes_of(text: &[u8]) -> Option<u64> {
    let (last, before) = text.split_last()?;
    let (digits, shift) = match last.to_ascii_uppercase() {
        b'K' => (before, 10),
        b'M' => (before, 20),
        b'G' => (before, 30),
        b'T' => (before, 40),
        _ => (text, 0),
    };
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    number.checked_mul(1 << shift)
}

impl Window {
    /// Waits until no other thread forks.
    fn enter(&self) {
        let mut free = self.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        while !free {
            // A signal may come here: another thread that forks halts this one.
            free = self.lock.swap(2, Ordering::Acquire) == 0;
            if !free {
                let _ = futex::wait(&self.lock, Flags::PRIVATE, 2, None);
            }
        }
    }

    fn set(&self, state: State) {
        // SAFETY: this thread has the lock, and no handler of it reads the state before it is there: its
        // faults are not watched for, or are the program's own.
        unsafe { (*self.state.get()).write(state) };
    }

    /// The state, if a fork is under way: it is this thread's, as handlers of forks run in no other.
    fn state(&self) -> Option<State> {
        let is_entered = self.lock.load(Ordering::Relaxed) != 0;
        // SAFETY: the thread that has the lock has written the state, and a child has its parent's.
        is_entered.then(|| unsafe { (*self.state.get()).assume_init() })
    }

    fn leave(&self) {
        if self.lock.swap(0, Ordering::Release) == 2 {
            let _ = futex::wake(&self.lock, Flags::PRIVATE, 1);
        }
    }
}

/// Signals that a thread's own code causes.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Keeps the program's handlers from running until the fork is over, and gives the mask that was there.
fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are ours, and valid as sets of no signals until they are filled; the call changes
    // nothing but which signals this thread takes.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        for signal in FAULTS {
            libc::sigdelset(&raw mut all, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

/// The program's handler of faults, and this thread's stack for handlers.
fn handlers_of_faults() -> (libc::sigaction, libc::stack_t) {
    // SAFETY: the values are of this frame, and zeroes are valid for them; the calls write them alone.
    unsafe {
        let mut stack: libc::stack_t = std::mem::zeroed();
        let mut faults: libc::sigaction = std::mem::zeroed();
        libc::sigaltstack(std::ptr::null(), &raw mut stack);
        libc::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut faults);
        (faults, stack)
    }
}

/// Has faults come to us, on a stack of ours: in the child this thread's own may lie where nothing is mapped.
/// A thread that runs on such a stack already stays there.
fn watch_faults() {
    let handler = on_fault as unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    // SAFETY: the values are of this frame, zeroes are valid for them, and the stack and the handler stay for
    // the program's whole life. The thread has the stack alone while it has the window's lock.
    unsafe {
        let stack = libc::stack_t { ss_sp: STACK.0.get().cast(), ss_flags: 0, ss_size: STACK_BYTES };
        libc::sigaltstack(&raw const stack, std::ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
    }
}

/// # Safety
/// Only the kernel calls it, while a fork is under way.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    let (Some(heap), Some(state)) = (HEAP.get(), WINDOW.state()) else { return };
    // SAFETY: the kernel gives what it knows of the fault, whose address is there for each of its own.
    let (address, is_of_kernel) = unsafe { ((*info).si_addr().addr(), (*info).si_code > 0) };
    // SAFETY: it asks for this process's own number, and cannot fail.
    let is_child = unsafe { libc::getpid() } != state.parent;
    if is_child && is_of_kernel && !heap.is_copy() && heap.addresses().contains(&address) {
        // The access is made anew.
        return copy_or_end(heap, &state);
    }
    // Not ours: it comes again, to whom it was for. SAFETY: the action is the one that was there before.
    unsafe { libc::sigaction(signal, &raw const state.faults, std::ptr::null_mut()) };
    if !is_of_kernel {
        // SAFETY: somebody has sent the signal, which this passes on.
        unsafe { libc::raise(signal) };
    }
}

impl State {
    /// Puts back what `before` has changed of this thread and process. Signals come once `last` was called.
    fn put_back(&self, last: impl FnOnce()) {
        // SAFETY: the values are those that were there before; the stack is not in use, as its handler has
        // returned.
        unsafe {
            libc::sigaction(libc::SIGSEGV, &raw const self.faults, std::ptr::null_mut());
            libc::sigaltstack(&raw const self.stack, std::ptr::null_mut());
        }
        last();
        // SAFETY: the mask is the one that was there before; it is read only.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, std::ptr::null_mut()) };
    }
}

impl Stdio {
    /// Locks the list, where the system's library has these functions.
    fn lock() -> Option<Stdio> {
        let find = |name: &CStr| {
            // SAFETY: it looks a name up in what is loaded, and runs none of its code.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            // SAFETY: glibc exports these names as functions without arguments and result.
            (!found.is_null())
                .then(|| unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(found) })
        };
        let [lock, unlock, reset] = [c"_IO_list_lock", c"_IO_list_unlock", c"_IO_list_resetlock"].map(find);
        let (lock, stdio) = (lock?, Stdio { unlock: unlock?, reset: reset? });
        // SAFETY: any thread may take the lock, also several times; `in_parent` and `in_child` give it back.
        unsafe { lock() };
        Some(stdio)
    }
}

/// Says why a child can have no copy, and ends it. It allocates nothing.
fn end(why: Why) -> ! {
    use std::io::Write;
    let mut room = [0; 512];
    let mut rest = &mut room[..];
    let said = match why {
        Why::TooLarge { resident, max } => write!(
            rest,
            "its parent's malloc uses {resident} bytes, more than the {max} that a child may copy: {}=BYTES sets it",
            MAX.to_str().unwrap_or_default()
        ),
        Why::NoNumber => write!(rest, "{} is no number of bytes", MAX.to_str().unwrap_or_default()),
        Why::Stack => write!(rest, "it runs on a stack that its parent's malloc gave"),
        Why::NoDescriptor => write!(
            rest,
            "its parent has no free descriptor, or has closed that of the memory file of its malloc"
        ),
        Why::NoMemory => write!(rest, "there is no memory for a copy of its parent's malloc"),
        Why::TooLate => write!(rest, "copying its parent's malloc took too long"),
    };
    let left = rest.len();
    let len = room.len() - if said.is_ok() { left } else { 0 };
    let parts: [&[u8]; 3] = [b"standpipe: a forked process ends: ", &room[..len], b".\n"];
    // SAFETY: the standard error's number, whether open or not; nothing is closed.
    let err = unsafe { BorrowedFd::borrow_raw(2) };
    let _ = rustix::io::writev(err, &parts.map(std::io::IoSlice::new));
    // SAFETY: it ends the process at once, and runs nothing of it.
    unsafe { libc::_exit(REFUSED) }
}

#[cfg(test)]
mod tests {
    use super::bytes_of;

    #[test]
    fn bytes_are_numbers_with_a_unit_or_without() {
        for (text, bytes) in [("0", Some(0)), ("17", Some(17)), ("2K", Some(2048)), ("3m", Some(3 << 20))] {
            assert_eq!(bytes_of(text.as_bytes()), bytes, "{text}");
        }
        for text in ["", "K", "-1", "1 G", "one", "99999999999999999999", "99999999999T"] {
            assert_eq!(bytes_of(text.as_bytes()), None, "{text}");
        }
        assert_eq!((bytes_of(b"4G"), bytes_of(b"1T")), (Some(4 << 30), Some(1 << 40)));
    }
}
