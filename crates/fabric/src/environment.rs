//! Variables that keep the library from asking for memory that nobody fills.
//!
//! Providers over sockets keep buffers for messages in pools, which grow by 1,024 buffers and zero all of
//! them. Their sizes have no other setting than the environment:
//!
//! | library | variable | its own | told | why that is enough |
//! |---|---|---|---|---|
//! | 1.17, `tcp;ofi_rxm` | `FI_OFI_RXM_BUFFER_SIZE` | 16 KiB | 256 | see below |
//! | | `FI_OFI_RXM_EAGER_LIMIT` | the above | 16 KiB | peers must agree on it: it stays what it was |
//! | from 1.20 on, `tcp` | `FI_TCP_MAX_RX_SIZE` | 16 KiB | 256 | tagged messages alone use it: there are none here |
//!
//! `rxm` of 1.17 has 4,096 buffers before the first message, and 1,024 more from the first one sent: 85 MB.
//! Over `tcp` it copies nothing into them. It sends from the caller's memory, and receives into the buffer
//! that waits. A message that no buffer waits for lies in one of these if it fits, and in memory of its own
//! otherwise. So the limit of such messages is a setting apart, the *eager limit*. That holds as long as the
//! user has turned neither way off, and for no provider under `rxm` but `tcp`. It does not hold from 1.20 on,
//! where the limit is the size of the buffers again.
//!
//! The library reads variables when it is first asked for providers, and when an endpoint opens. They are in
//! the environment only meanwhile, and not at all where the user has set one of them. Other threads see them
//! in that moment, and so do processes that these start just then. So a variable that has the very value that
//! would be told counts as not set.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::library::{Fabric, Version};
use crate::signals::kept;

/// Variables that belong together.
struct Setting {
    /// Of the library's versions from this one up to that one.
    versions: [Version; 2],
    /// Names and values.
    told: &'static [&'static CStr],
    /// It is told nothing of these where the user has set one, of them or of those that they depend on.
    unless: &'static [&'static str],
    /// Only where no provider can come to lie under `rxm` that needs its buffers.
    without_devices: bool,
}

const fn version(major: u16, minor: u16) -> Version {
    Version { major, minor }
}

const SETTINGS: [Setting; 2] = [
    Setting {
        versions: [version(1, 17), version(1, 17)],
        told: &[RXM_BUFFERS, c"FI_OFI_RXM_EAGER_LIMIT=16384"],
        unless: &[
            "FI_OFI_RXM_BUFFER_SIZE",
            "FI_OFI_RXM_EAGER_LIMIT",
            "FI_OFI_RXM_ENABLE_DYN_RBUF",
            "FI_OFI_RXM_ENABLE_DIRECT_SEND",
        ],
        without_devices: true,
    },
    Setting {
        versions: [version(1, 20), version(u16::MAX, u16::MAX)],
        told: &[c"FI_TCP_MAX_RX_SIZE=256"],
        unless: &["FI_TCP_MAX_RX_SIZE"],
        without_devices: false,
    },
];

const RXM_BUFFERS: &CStr = c"FI_OFI_RXM_BUFFER_SIZE=256";

/// The devices under `verbs`.
const DEVICES: &str = "/sys/class/infiniband";

impl Setting {
    fn is_for(&self, found: Version, value: impl Fn(&str) -> Option<OsString>, devices: bool) -> bool {
        let [first, last] = self.versions;
        let is_set = |name: &&str| value(name).is_some_and(|value| !self.tells(name, &value));
        (first..=last).contains(&found)
            && !(self.without_devices && devices)
            && !self.unless.iter().any(is_set)
    }

    fn tells(&self, name: &str, value: &OsStr) -> bool {
        let pair = [name.as_bytes(), b"=", value.as_bytes()].concat();
        self.told.iter().any(|told| told.to_bytes() == pair)
    }
}

/// The variables that this process tells the library: the same each time, as it keeps the values it has read.
fn settings(found: Version) -> &'static [&'static CStr] {
    static DECIDED: OnceLock<&'static [&'static CStr]> = OnceLock::new();
    DECIDED.get_or_init(|| {
        let devices = std::fs::read_dir(DEVICES).is_ok_and(|mut devices| devices.next().is_some());
        let value = |name: &str| std::env::var_os(name);
        let setting = SETTINGS.iter().find(|setting| setting.is_for(found, value, devices));
        setting.map_or(&[], |setting| setting.told)
    })
}

impl Fabric {
    /// Whether this process lets `rxm` have buffers that do for `tcp` under it alone. `false`: they are as
    /// the user or the library wants them.
    pub fn has_small_buffers(&self) -> bool {
        settings(self.version()).contains(&RXM_BUFFERS)
    }
}

/// An environment that was made here. It is never freed: somebody may be reading it at any time.
type Made = &'static [AtomicPtr<c_char>];

/// The environment as this module has it.
struct State {
    /// The last one that was made.
    made: Option<Made>,
    /// Calls during which that is in place, and what was in its place before, with its entries.
    calls: usize,
    before: AtomicPtr<*mut c_char>,
    entries: Vec<usize>,
}

/// Held for no call of the library: a child that another thread forks meanwhile would find it locked.
static STATE: Mutex<State> = Mutex::new(State {
    made: None,
    calls: 0,
    before: AtomicPtr::new(std::ptr::null_mut()),
    entries: Vec::new(),
});

/// Calls something that lets the library read variables, and that may take signal handlers.
pub(crate) fn entered<T>(found: Version, call: impl FnOnce() -> T) -> T {
    match settings(found) {
        [] => kept(call),
        more => kept(|| with(more, call)),
    }
}

/// Has these variables in the environment during a call. Calls that overlap have the same ones.
///
/// The standard library's way to set one frees memory that other threads may be reading. Here a whole new
/// environment takes the place of the old one, which stays as it is. So a thread that reads variables
/// meanwhile finds the one or the other. If another thread has set a variable meanwhile, nothing is put back.
fn with<T>(more: &[&'static CStr], call: impl FnOnce() -> T) -> T {
    enter(more);
    let _entered = Entered;
    call()
}

/// A call during which the variables are there.
struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        state.calls -= 1;
        if state.calls == 0
            && let Some(made) = state.made
            && is_of(made, &state.entries)
        {
            let before = state.before.load(Ordering::Relaxed);
            // It fails where another thread has set a variable: its environment stays.
            let _ = current().compare_exchange(start_of(made), before, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

fn enter(more: &[&'static CStr]) {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.calls += 1;
    if state.calls > 1 {
        return;
    }
    loop {
        let before = current().load(Ordering::Acquire);
        let entries = entries(before, more);
        state.entries = entries.iter().map(|entry| entry.addr()).collect();
        let made = match state.made {
            Some(made) if is_of(made, &state.entries) => made,
            _ => Box::leak(entries.into_iter().map(AtomicPtr::new).collect()),
        };
        (state.made, state.before) = (Some(made), AtomicPtr::new(before));
        // Another thread may have put one of its own in the place meanwhile, and have freed the old one.
        if current().compare_exchange(before, start_of(made), Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return;
        }
    }
}

/// Where the C library has the environment.
fn current() -> &'static AtomicPtr<*mut c_char> {
    // SAFETY: it is a variable of the C library, a pointer, alive as long as the process, and aligned. C
    // reads it by one load.
    unsafe { AtomicPtr::from_ptr(&raw mut libc::environ) }
}

fn start_of(made: Made) -> *mut *mut c_char {
    made.as_ptr().cast::<*mut c_char>().cast_mut()
}

/// Whether an environment that was made here has entries at these addresses: nobody has changed one.
fn is_of(made: Made, entries: &[usize]) -> bool {
    made.iter().map(|entry| entry.load(Ordering::Relaxed).addr()).eq(entries.iter().copied())
}

/// The entries of an environment, those of `more`, and the null that ends them.
fn entries(from: *mut *mut c_char, more: &[&'static CStr]) -> Vec<*mut c_char> {
    let mut entries = Vec::new();
    let mut next = from;
    while !next.is_null() {
        // SAFETY: an environment is an array of pointers that a null ends, and that was not reached yet. Like
        // each call of `getenv`, this relies on it that no other thread sets variables just now.
        let entry = unsafe { next.read() };
        if entry.is_null() {
            break;
        }
        entries.push(entry);
        next = next.wrapping_add(1);
    }
    entries.extend(more.iter().map(|told| told.as_ptr().cast_mut()));
    entries.push(std::ptr::null_mut());
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told_to(found: Version, set: &str, devices: bool) -> usize {
        let (set, value) = set.split_once('=').unwrap_or((set, "1"));
        let value = |name: &str| (name == set).then(|| OsString::from(value));
        let is_for = |setting: &&Setting| setting.is_for(found, value, devices);
        SETTINGS.iter().find(is_for).map_or(0, |setting| setting.told.len())
    }

    #[test]
    fn each_version_is_told_what_it_reads() {
        let told = |major, minor| told_to(version(major, minor), "HOME", false);
        assert_eq!([told(1, 17), told(1, 18), told(1, 19), told(1, 20), told(2, 5)], [2, 0, 0, 1, 1]);
        assert_eq!(told_to(version(1, 17), "HOME", true), 0, "a device's provider needs the buffers");
        assert_eq!(told_to(version(1, 22), "HOME", true), 1, "and has none of these");
    }

    #[test]
    fn a_user_who_sets_one_variable_sets_all() {
        for setting in &SETTINGS {
            for name in setting.unless {
                assert_eq!(told_to(setting.versions[0], name, false), 0, "{name}");
            }
            for told in setting.told {
                let pair = told.to_str().expect("ASCII");
                let (name, _) = pair.split_once('=').expect("a value");
                assert!(setting.unless.contains(&name), "{name} would be set twice");
                let inherited = told_to(setting.versions[0], pair, false);
                assert_eq!(inherited, setting.told.len(), "{name} is not the user's");
            }
        }
    }

    const TOLD: &[&CStr] = &[c"STANDPIPE_TEST_TOLD=yes"];

    /// Whether the variable is there, by no lock that a child could find taken.
    fn is_told() -> bool {
        // SAFETY: a text that a null ends; and nobody sets variables in this test program.
        !unsafe { libc::getenv(c"STANDPIPE_TEST_TOLD".as_ptr()) }.is_null()
    }

    /// Makes a child during a call, which makes one itself.
    fn fork_in_call() -> libc::pid_t {
        // SAFETY: the child takes a lock that nobody holds during a call, and ends; it runs nothing else.
        match with(TOLD, || unsafe { libc::fork() }) {
            0 => {
                // SAFETY: both only ask the kernel to end this process, in a while and at once.
                unsafe {
                    libc::alarm(20);
                    libc::_exit(if with(TOLD, is_told) { 7 } else { 1 })
                }
            }
            child => child,
        }
    }

    #[test]
    fn variables_are_there_during_calls_alone_and_a_child_made_in_one_can_make_one() {
        let calls = || (0..300).for_each(|_| assert!(with(TOLD, is_told)));
        for _ in 0..10 {
            let child = std::thread::scope(|scope| {
                (0..3).for_each(|_| drop(scope.spawn(calls)));
                fork_in_call()
            });
            assert!(!is_told());
            let mut status = 0;
            // SAFETY: the kernel writes one status, which lives until the call returns.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
        }
    }
}
