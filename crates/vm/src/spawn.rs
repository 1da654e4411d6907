//! Calls of the operating system for starting and meeting processes that no safe library offers.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, set_parent_process_death_signal,
};

/// Makes the process that `command` starts die by `SIGKILL` when the thread that starts it ends, however that
/// happens. That thread must therefore live as long as the process is wanted. A process that the started one
/// starts in turn is not covered.
pub fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let before_exec = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above: then no signal comes any more.
        if getppid() == Some(parent) { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
    };
    // SAFETY: `before_exec` runs between fork and exec in a process that may have had other threads, so it
    // may only do what a signal handler may. It makes two system calls, and making an error of an error
    // number does not allocate. It touches no memory but its copy of `parent`, which the command owns for as
    // long as it can run.
    unsafe {
        command.pre_exec(before_exec);
    }
}

/// Has the process that `command` starts block no signal: a blocked one is inherited, and would keep from it
/// what is passed on.
pub fn unblock_signals_of(command: &mut Command) {
    // SAFETY: `unblock` may be called where a signal handler may run: it makes one system call with memory of
    // its own.
    unsafe {
        command.pre_exec(|| unblock(None));
    }
}

/// Lets these signals come to the calling thread, whatever whoever started it had blocked.
///
/// # Errors
/// When one of the numbers is no signal's.
pub fn unblock_signals(signals: &[i32]) -> io::Result<()> {
    unblock(Some(signals))
}

/// Unblocks these signals in the calling thread, or all. Does nothing that a signal handler may not.
fn unblock(signals: Option<&[i32]>) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is a live local, which the first call initializes whole, the others change and read only.
    let rc = unsafe {
        match signals {
            None => _ = libc::sigfillset(set.as_mut_ptr()),
            Some(signals) => {
                libc::sigemptyset(set.as_mut_ptr());
                for signal in signals {
                    if libc::sigaddset(set.as_mut_ptr(), *signal) != 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
            }
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut())
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(rc)) }
}

/// While one lives, the kernel places what the processes that this thread starts map where it always does, by
/// their program and its libraries alone, and not at random. Dropping it restores what was.
#[derive(Debug)]
pub struct SameAddresses {
    before: libc::c_ulong,
}

impl SameAddresses {
    /// Asks for it, for the calling thread.
    ///
    /// # Errors
    /// Where the kernel does not let this process choose, as container profiles (seccomp) may have it.
    pub fn new() -> io::Result<SameAddresses> {
        let before = personality(ASK)?;
        personality(before | libc::ADDR_NO_RANDOMIZE as libc::c_ulong)?;
        Ok(SameAddresses { before })
    }
}

impl Drop for SameAddresses {
    fn drop(&mut self) {
        // It was so before, and the kernel has just let this thread choose.
        let _ = personality(self.before);
    }
}

/// Asks what the calling thread's personality is, and changes nothing.
const ASK: libc::c_ulong = 0xffff_ffff;

/// Sets the calling thread's personality, and says what it was.
fn personality(wanted: libc::c_ulong) -> io::Result<libc::c_ulong> {
    // SAFETY: the call takes a number and touches no memory of this process.
    match unsafe { libc::personality(wanted) } {
        -1 => Err(io::Error::last_os_error()),
        before => Ok(libc::c_ulong::from(before.cast_unsigned())),
    }
}

/// While one lives, children of this process that have ended wait to be asked how. A process that ignores
/// `SIGCHLD`, or was started so, is told of none otherwise. The last one dropped restores what was.
#[derive(Debug)]
pub struct ChildrenWait(());

/// How many there are, and what was before the first, if it had to be changed.
static CHILDREN_WAIT: Mutex<(usize, Option<libc::sigaction>)> = Mutex::new((0, None));

impl ChildrenWait {
    /// Any thread may call. Where this process handles `SIGCHLD`, nothing changes.
    pub fn new() -> ChildrenWait {
        let mut wait = CHILDREN_WAIT.lock().unwrap_or_else(PoisonError::into_inner);
        if wait.0 == 0 {
            let is = disposition(None);
            let forgets = is.sa_sigaction == libc::SIG_IGN || is.sa_flags & libc::SA_NOCLDWAIT != 0;
            wait.1 = forgets.then(|| {
                let handler = if is.sa_sigaction == libc::SIG_IGN { libc::SIG_DFL } else { is.sa_sigaction };
                let flags = is.sa_flags & !libc::SA_NOCLDWAIT;
                disposition(Some(&libc::sigaction { sa_sigaction: handler, sa_flags: flags, ..is }))
            });
        }
        wait.0 += 1;
        ChildrenWait(())
    }
}

impl Default for ChildrenWait {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ChildrenWait {
    fn drop(&mut self) {
        let mut wait = CHILDREN_WAIT.lock().unwrap_or_else(PoisonError::into_inner);
        wait.0 -= 1;
        if wait.0 == 0
            && let Some(before) = wait.1.take()
        {
            disposition(Some(&before));
        }
    }
}

/// Sets how this process handles `SIGCHLD`, if `new` says how. Gives how it did so far.
fn disposition(new: Option<&libc::sigaction>) -> libc::sigaction {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the kernel reads one structure, if any, and writes one, which live here. The new one is what
    // was set before but for its flags, or the default, so any handler is one that this process has set
    // itself.
    let rc = unsafe { libc::sigaction(libc::SIGCHLD, new, before.as_mut_ptr()) };
    assert_eq!(rc, 0, "the signal is one that can be handled");
    // SAFETY: it was zeroed, and any bytes are valid numbers and a valid address or none.
    unsafe { before.assume_init() }
}

/// A file descriptor of one's own for what whoever started this process left open under `number`, which stays
/// open. Programs that this one starts do not get it.
///
/// # Errors
/// Where nothing is open under that number.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only, and any; it gives a new descriptor, or -1.
    let duplicate = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if duplicate < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel has just made, and nobody else knows of.
    Ok(unsafe { OwnedFd::from_raw_fd(duplicate) })
}

/// Whether something is open under `number` that a program started by this one would get, too: what this
/// process's own code opens is usually closed there.
pub fn is_inheritable(number: i32) -> bool {
    // SAFETY: takes numbers only, and any; it gives flags, or -1.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// The process at the other end of a Unix socket, at the time it connected or began to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Its process number here; zero if it is in a process namespace that cannot be seen from here.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
}

/// Asks the kernel who is at the other end of the connected Unix socket `socket`.
///
/// # Errors
/// When `socket` is not a connected Unix socket.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<PeerCredentials> {
    // rustix has this call, but its type for a process number cannot hold the zero that the kernel may
    // return.
    let mut ucred = MaybeUninit::<libc::ucred>::uninit();
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).expect("a dozen bytes");
    // SAFETY: `ucred` and `len` are live locals for the length of the call, `len` holds the size of what the
    // pointer points to, and the kernel writes no more than that. `socket` is borrowed, so it is open.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            ucred.as_mut_ptr().cast(),
            &mut len,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    if len as usize != size_of::<libc::ucred>() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: the kernel has said that it wrote the whole structure, and any bytes are valid integers.
    let ucred = unsafe { ucred.assume_init() };
    Ok(PeerCredentials { pid: u32::try_from(ucred.pid).unwrap_or(0), uid: ucred.uid })
}

/// The kernel's `SO_PEERPIDFD`, since Linux 6.5; libc has no name for it.
const SO_PEERPIDFD: libc::c_int = 77;

/// A descriptor of the process at the other end of the connected Unix socket `socket`, whose number is `pid`
/// here. Older kernels have one by the number only, which may have been given away since the process
/// connected.
///
/// # Errors
/// When the process has no number here, is gone, or there are no descriptors.
pub fn peer_process(socket: BorrowedFd<'_>, pid: u32) -> io::Result<OwnedFd> {
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let mut process: libc::c_int = -1;
    let mut len = libc::socklen_t::try_from(size_of::<libc::c_int>()).expect("four bytes");
    // SAFETY: two live locals for the length of the call, of which the kernel writes no more than `len` says;
    // `socket` is borrowed, so it is open.
    let rc = unsafe {
        let to = (&raw mut process).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, to, &mut len)
    };
    if rc == 0 && process >= 0 {
        // SAFETY: a descriptor that the kernel has just made, and nobody else knows of.
        return Ok(unsafe { OwnedFd::from_raw_fd(process) });
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            Ok(pidfd_open(known, PidfdFlags::empty())?)
        }
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "has no kernel to ask about a socket")]
    fn the_peer_of_a_socket_pair_is_this_process() {
        let (socket, _other) = UnixStream::pair().expect("a socket pair");
        let peer = peer_credentials(socket.as_fd()).expect("a connected socket");
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    }

    #[test]
    #[cfg_attr(miri, ignore = "has no kernel to ask about a socket")]
    fn the_process_at_the_other_end_is_told_by_the_socket_and_not_by_its_number() {
        let (socket, _other) = UnixStream::pair().expect("a socket pair");
        let mut stranger = Command::new("sleep").arg("60").spawn().expect("sleep is everywhere");
        let process = peer_process(socket.as_fd(), stranger.id()).expect("ourselves");
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()));
        let number = |info: String| info.lines().find_map(|line| line.strip_prefix("Pid:\t")?.parse().ok());
        let number: Option<u32> = info.ok().and_then(number);
        let _ = (stranger.kill(), stranger.wait());
        if number == Some(stranger.id()) {
            return testbed::skip("this kernel has no way to tell of a socket's process but its number");
        }
        assert_eq!(number, Some(std::process::id()));
        assert!(peer_process(socket.as_fd(), 0).is_err(), "it has no number here");
    }

    #[test]
    fn what_is_no_socket_has_no_peer() {
        let file = std::fs::File::open("/dev/null").expect("every system has it");
        assert!(peer_credentials(file.as_fd()).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn the_child_dies_with_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("sleep");
            command.arg("60").stdin(Stdio::null());
            die_with_parent(&mut command);
            command.spawn().expect("sleep is everywhere")
        };
        let mut child = std::thread::spawn(start).join().expect("the thread only starts a process");
        let status = child.wait().expect("our child");
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }
}
