//! The processes of a program that nobody launched: `am_enable` makes them itself, by `fork`.

use std::ffi::{c_int, c_void};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use standpipe::launch::{End, HostedJob};

use crate::border::complain;

/// The children of this process, and the job that it hosts for them.
static FAMILY: Mutex<Option<Family>> = Mutex::new(None);

/// The process that has that family; 0 for none. One that it forks later has a copy of all this, and none of
/// the children.
static PARENT: AtomicU32 = AtomicU32::new(0);

/// How long the children of a program that has ended without `am_disable` may take to end by themselves.
/// A child that waits for others finds this process lost, and ends within a second.
const END_WITHIN: Duration = Duration::from_secs(5);

/// How long they may take when they are told to.
const TERMINATE_WITHIN: Duration = Duration::from_secs(2);

/// Whether the program has come to the end of its part: children may then end as they like.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Whether this process was made by [`fork`], and is to end with its parent.
static ENDS_WITH_PARENT: AtomicBool = AtomicBool::new(false);

struct Family {
    children: Vec<Child>,
    /// Has the others find this process lost.
    abandon: fn(),
    _job: HostedJob,
}

/// A process that this one has made, and has not waited for.
struct Child {
    rank: u32,
    pid: libc::pid_t,
}

/// Makes this process and `procs - 1` children of it the processes of a job, by their environment. Returns in
/// each of them.
///
/// # Errors
/// What the system said. No child is left then.
pub(super) fn fork(procs: u32, abandon: fn()) -> Result<(), String> {
    empty_streams();
    let mut children = Vec::new();
    let made = make(procs, &mut children).and_then(|made| match made {
        Made::Child => Ok(None),
        Made::Parent(lines) => host(procs, &lines).map(Some),
    });
    match made {
        Ok(None) => {}
        Ok(Some(job)) => {
            *FAMILY.lock().expect("nobody panics with it") = Some(Family { children, abandon, _job: job });
            PARENT.store(std::process::id(), Ordering::SeqCst);
            at_exit();
        }
        Err(error) => {
            end_all(&children);
            return Err(format!("cannot make {procs} processes: {error}"));
        }
    }
    Ok(())
}

/// Which process this is after [`make`].
enum Made {
    /// One that has been told its rank.
    Child,
    /// The first, with a line to each of the others, which wait to be told.
    Parent(Vec<UnixStream>),
}

/// Makes the children, and notes them in `children`, also where it fails after some.
fn make(procs: u32, children: &mut Vec<Child>) -> Result<Made, String> {
    let mut lines = Vec::new();
    for rank in 1..procs {
        let (line, childs) = UnixStream::pair().map_err(|error| format!("a pair of sockets: {error}"))?;
        // SAFETY: the child goes on as this thread alone. Nothing of this library has a thread yet, which the
        // caller has made sure of, and the program's own threads are its business, as in the original.
        match unsafe { libc::fork() } {
            0 => {
                drop((lines, line));
                become_rank(childs);
                return Ok(Made::Child);
            }
            -1 => return Err(format!("fork: {}", io::Error::last_os_error())),
            pid => {
                children.push(Child { rank, pid });
                lines.push(line);
            }
        }
    }
    Ok(Made::Parent(lines))
}

/// Begins the job, and tells all their ranks.
fn host(procs: u32, lines: &[UnixStream]) -> Result<HostedJob, String> {
    let job = HostedJob::start(procs).map_err(|error| error.to_string())?;
    for (rank, line) in (1..).zip(lines) {
        let variables: String =
            job.variables(rank).iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        send(line, variables.as_bytes()).map_err(|error| format!("telling process {rank} so: {error}"))?;
    }
    for (name, value) in job.variables(0) {
        set(name, &value);
    }
    Ok(job)
}

/// Sends all of it. A child that is dead already is an error, and no signal, which would end a C program.
fn send(line: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the socket is open, and the bytes are a live slice of that length.
        let sent =
            unsafe { libc::send(line.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        match usize::try_from(sent) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Leaves nothing in the buffers of the program's streams, as each process would have it.
fn empty_streams() {
    // SAFETY: every C library has this variable, of this type, under this name: its standard input.
    unsafe extern "C" {
        /// The C library's standard input.
        static stdin: *mut libc::FILE;
    }
    // SAFETY: it takes a null pointer, for all streams: what those hold would be written once by each
    // process.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // SAFETY: the C library has the stream from its start on. Flushed, a file has been read as far as the
    // program has; what is left in the buffer would otherwise be read once by each process.
    unsafe { libc::fflush(stdin) };
}

/// Says that the program has come to the end of its part.
pub(super) fn part_is_over() {
    IS_OVER.store(true, Ordering::SeqCst);
    // What a launcher has set stays.
    if ENDS_WITH_PARENT.swap(false, Ordering::SeqCst) {
        // SAFETY: the call takes numbers alone. A child whose part is done may outlive its parent, which may
        // end first now.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
    }
}

/// Takes this child's rank from its parent.
fn become_rank(mut parent: UnixStream) {
    // SAFETY: the call takes numbers alone: a child ends with the process that hosts its job.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    ENDS_WITH_PARENT.store(true, Ordering::SeqCst);
    let mut lines = String::new();
    let read = parent.read_to_string(&mut lines);
    if read.is_err() || lines.is_empty() {
        // The parent has failed, and has said so. Nothing of it, as its buffers, is this process's.
        // SAFETY: the call ends the process, which has nothing of its own to leave in order.
        unsafe { libc::_exit(1) };
    }
    for (name, value) in lines.lines().filter_map(|line| line.split_once('=')) {
        set(name, value);
    }
}

fn set(name: &str, value: &str) {
    // SAFETY: no thread of this library reads the environment. A thread of the program's that did at this
    // moment would do so within am_enable, of which the header says that nothing else runs meanwhile.
    unsafe { std::env::set_var(name, value) };
}

/// Ends children that have not come to anything.
fn end_all(children: &[Child]) {
    tell(libc::SIGKILL, children);
    children.iter().for_each(|child| _ = end_of(child, 0));
}

/// Has the end of the program wait for its children.
#[cfg(target_env = "gnu")]
fn at_exit() {
    // SAFETY: the GNU C library has this function, of this type.
    unsafe extern "C" {
        /// As atexit, of a function that is told the status.
        fn on_exit(function: extern "C" fn(c_int, *mut c_void), arg: *mut c_void) -> c_int;
    }
    extern "C" fn with_status(status: c_int, _arg: *mut c_void) {
        wait_for_children(status);
    }
    // SAFETY: the function may be called at any time, and lives as long as this library, which stays loaded.
    unsafe { on_exit(with_status, std::ptr::null_mut()) };
}

/// The same, where nobody tells the status.
#[cfg(not(target_env = "gnu"))]
fn at_exit() {
    extern "C" fn without_status() {
        wait_for_children(0);
    }
    // SAFETY: the function may be called at any time, and lives as long as this library, which stays loaded.
    unsafe { libc::atexit(without_status) };
}

/// Waits for the children when the program ends. If the program has not left the layer, they find it lost,
/// and this ends the rest of them. A child that has failed makes this process fail, unless it fails itself.
fn wait_for_children(status: c_int) {
    if PARENT.load(Ordering::SeqCst) != std::process::id() {
        // A child that the program has forked itself: neither the job nor the others are its own.
        return;
    }
    let Ok(mut family) = FAMILY.lock() else { return };
    let Some(Family { mut children, abandon, _job }) = family.take() else { return };
    let mut ends = Vec::new();
    if IS_OVER.load(Ordering::SeqCst) {
        ends.extend(children.iter().filter_map(|child| told_end_of(child, 0)));
    } else {
        abandon();
        wait_within(END_WITHIN, &mut children, &mut ends);
        if !children.is_empty() {
            complain("am_enable", "this process has ended, and others that it made have not: it ends them");
            ends.push(End::Killed(libc::SIGTERM));
        }
        tell(libc::SIGTERM, &children);
        wait_within(TERMINATE_WITHIN, &mut children, &mut ends);
        end_all(&children);
    }
    let worst = ends.into_iter().map(End::status).max().filter(|worst| status == 0 && *worst != 0);
    if let Some(worst) = worst {
        // SAFETY: what the program has written is flushed, as the end that this one takes the place of would
        // do after this function.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(worst.into())
        }
    }
}

fn tell(signal: c_int, children: &[Child]) {
    for child in children {
        // SAFETY: the call takes numbers alone, and the child has not been waited for: the number is its own.
        unsafe { libc::kill(child.pid, signal) };
    }
}

/// Waits for children for so long, notes how they end, and leaves those that have not.
fn wait_within(time: Duration, children: &mut Vec<Child>, ends: &mut Vec<End>) {
    let begun = Instant::now();
    loop {
        children.retain(|child| {
            let end = told_end_of(child, libc::WNOHANG);
            ends.extend(end);
            end.is_none()
        });
        if children.is_empty() || begun.elapsed() > time {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// As [`end_of`], and says which signal has killed it: the others find it lost, and cannot tell why.
fn told_end_of(child: &Child, options: c_int) -> Option<End> {
    let end = end_of(child, options)?;
    if let End::Killed(signal) = end
        && signal != libc::SIGTERM
    {
        complain("am_enable", format_args!("process {}, which this one made, {end}", child.rank));
    }
    Some(end)
}

/// How a child ended: waits for it, or by `WNOHANG` looks whether it has.
fn end_of(child: &Child, options: c_int) -> Option<End> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a live local, and the child is this process's own.
        let waited = unsafe { libc::waitpid(child.pid, &raw mut status, options) };
        if waited == child.pid {
            return Some(match libc::WIFSIGNALED(status) {
                true => End::Killed(libc::WTERMSIG(status)),
                false => End::Exited(libc::WEXITSTATUS(status)),
            });
        }
        if waited == 0 {
            return None;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // The program has waited for it already, or the system lets nobody wait for it.
            return Some(End::Exited(0));
        }
    }
}
