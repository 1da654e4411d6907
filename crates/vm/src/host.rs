//! Facts about what this machine and its administrator allow this process, read afresh by every call.
//!
//! A fact that cannot be found out is `None`. Any thread may call; the few functions that change something
//! say so.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{PTracer, Pid, Resource, Signal};

/// Bit of the capability that lets a process lock, and so pin, as much memory as it likes.
const CAP_IPC_LOCK: u32 = 14;
/// Bit of the capability that lets a process trace any other.
const CAP_SYS_PTRACE: u32 = 19;
/// Flag of `userfaultfd` for faults of user code only, which needs no privilege.
const UFFD_USER_MODE_ONLY: libc::c_int = 1;

/// A limit on a resource, in the resource's unit; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The limit that holds now.
    pub soft: Option<u64>,
    /// How far this process may raise it.
    pub hard: Option<u64>,
}

/// Whether system calls of this process are filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seccomp {
    /// All calls go through.
    Off,
    /// Only read, write and exit do.
    Strict,
    /// A filter decides.
    Filter,
}

/// The features of `userfaultfd(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Userfaultfd {
    /// All of it.
    Full,
    /// Not for faults that happen inside system calls.
    UserModeOnly,
    /// Nothing.
    Refused {
        /// The kernel's error.
        errno: Errno,
    },
}

/// When shared memory gets huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShmemHugePages {
    /// On every fault.
    Always,
    /// On faults whose huge page lies wholly in the file.
    WithinSize,
    /// Where asked for by madvise.
    Advise,
    /// Only where mappings are collapsed explicitly.
    Never,
    /// Not at all.
    Deny,
    /// Always, for testing.
    Force,
}

/// Bits in a word of a mask of processors.
const WORD_BITS: usize = u64::BITS as usize;
/// Words of a mask that suffices for most hosts, of 1,024 processors, and for any.
const MASK_WORDS: usize = 16;
const MASK_WORDS_MAX: usize = 8192;

/// How many processors this process may run on; 1 where the system does not tell.
pub fn cores() -> usize {
    affinity().iter().map(|word| word.count_ones() as usize).sum::<usize>().max(1)
}

/// The processors that this process may run on, by number, in rising order; none where the system does not
/// tell.
pub fn core_numbers() -> Vec<usize> {
    let mask = affinity();
    let is_set = |core: &usize| mask[core / WORD_BITS] >> (core % WORD_BITS) & 1 == 1;
    (0..mask.len() * WORD_BITS).filter(is_set).collect()
}

/// The mask of the processors that the calling thread may run on. The kernel wants room for as many as the
/// host could have, which may be more than libc's fixed set has.
fn affinity() -> Vec<u64> {
    let mut words = MASK_WORDS;
    loop {
        let mut mask = vec![0_u64; words];
        // SAFETY: the kernel writes no more bytes than it is told, and the mask has as many.
        let written =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&*mask), mask.as_mut_ptr()) };
        if written >= 0 {
            return mask;
        }
        let is_short = std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
        if !is_short || words >= MASK_WORDS_MAX {
            return Vec::new();
        }
        words *= 2;
    }
}

/// Binds the calling thread (and those it starts later) to one processor.
///
/// # Errors
/// EINVAL if this process may not run there, or there is no such processor.
pub fn bind_to_core(core: usize) -> Result<(), Errno> {
    if core >= MASK_WORDS_MAX * WORD_BITS {
        return Err(Errno::INVAL);
    }
    let mut mask = vec![0_u64; core / WORD_BITS + 1];
    mask[core / WORD_BITS] = 1 << (core % WORD_BITS);
    // SAFETY: the kernel reads no more bytes than it is told, and the mask has as many.
    let bound = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&*mask), mask.as_ptr()) };
    if bound == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

/// How many bytes this process may lock (`ulimit -l`).
pub fn memlock() -> Limit {
    limit_of(Resource::Memlock)
}

/// How many bytes of addresses this process may use (`ulimit -v`, in KiB there). Every heap that it maps
/// counts whole.
pub fn address_space() -> Limit {
    limit_of(Resource::As)
}

/// How many files this process may have open (`ulimit -n`).
pub fn open_files() -> Limit {
    limit_of(Resource::Nofile)
}

/// How many bytes a file of this process may have (`ulimit -f`, in KiB there); the file of its heap is one.
pub fn file_size() -> Limit {
    limit_of(Resource::Fsize)
}

fn limit_of(resource: Resource) -> Limit {
    let limit = rustix::process::getrlimit(resource);
    Limit { soft: limit.current, hard: limit.maximum }
}

/// Yama's `ptrace_scope`; `None` where the kernel has no Yama, which restricts nothing.
pub fn ptrace_scope() -> Option<u8> {
    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// Whether this process's system calls are filtered.
pub fn seccomp() -> Option<Seccomp> {
    match status_field(&own_status()?, "Seccomp")? {
        "0" => Some(Seccomp::Off),
        "1" => Some(Seccomp::Strict),
        "2" => Some(Seccomp::Filter),
        _ => None,
    }
}

/// Whether this process may trace every other, by the capability CAP_SYS_PTRACE.
pub fn traces_anyone() -> Option<bool> {
    has_capability(CAP_SYS_PTRACE)
}

/// Whether [`memlock`] does not bind this process, by the capability CAP_IPC_LOCK.
pub fn locks_anything() -> Option<bool> {
    has_capability(CAP_IPC_LOCK)
}

/// Bytes that process `pid` has pinned for devices (verbs, io_uring, VFIO), whichever of its libraries did: a
/// provider's queues and buffers as well as registered memory. `None` where the kernel does not say, or there
/// is no such process.
pub fn pinned_by(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib: u64 = status_field(&status, "VmPin")?.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn has_capability(bit: u32) -> Option<bool> {
    let status = own_status()?;
    let capabilities = u64::from_str_radix(status_field(&status, "CapEff")?, 16).ok()?;
    Some(capabilities >> bit & 1 == 1)
}

/// The kernel's devices with verbs, by name: InfiniBand, RoCE and iWARP.
pub fn verbs_devices() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The features that `userfaultfd(2)` offers to this process.
pub fn userfaultfd() -> Userfaultfd {
    if open_userfaultfd(0).is_ok() {
        return Userfaultfd::Full;
    }
    match open_userfaultfd(UFFD_USER_MODE_ONLY) {
        Ok(_) => Userfaultfd::UserModeOnly,
        Err(errno) => Userfaultfd::Refused { errno },
    }
}

fn open_userfaultfd(flags: libc::c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: userfaultfd takes flags and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | flags) };
    if fd < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    // SAFETY: the kernel has just given us this descriptor, so nobody else owns it; descriptors fit an i32.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// When shared memory, ours included, gets huge pages; `None` where the kernel has none.
pub fn shmem_huge_pages() -> Option<ShmemHugePages> {
    match selected(&fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled").ok()?)? {
        "always" => Some(ShmemHugePages::Always),
        "within_size" => Some(ShmemHugePages::WithinSize),
        "advise" => Some(ShmemHugePages::Advise),
        "never" => Some(ShmemHugePages::Never),
        "deny" => Some(ShmemHugePages::Deny),
        "force" => Some(ShmemHugePages::Force),
        _ => None,
    }
}

/// The size of `/dev/shm` in bytes; `None` where there is none. Segments do not live there, other libraries'
/// do.
pub fn dev_shm_bytes() -> Option<u64> {
    let stat = rustix::fs::statvfs("/dev/shm").ok()?;
    stat.f_blocks.checked_mul(stat.f_frsize)
}

/// Memory of this machine in bytes.
pub fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = status_field(&text, "MemTotal")?.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Tries what launching relies on: to watch a process by a descriptor.
///
/// # Errors
/// The kernel's error: ENOSYS before Linux 5.3, EPERM where a filter of system calls refuses it.
pub fn try_watch() -> Result<(), Errno> {
    rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()).map(drop)
}

/// Whether the system gives no more memory than it has (`vm.overcommit_memory=2`): what is not reserved may
/// be missing when it is touched.
pub fn is_strict_about_memory() -> bool {
    fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2")
}

/// Processor time that this process's threads have used, in user and kernel mode.
pub fn cpu_time() -> Duration {
    duration(rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime))
}

/// Nanoseconds of the clock that all processes of this host share and that never goes back.
pub fn monotonic_ns() -> u64 {
    let now = duration(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic));
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

fn duration(time: rustix::time::Timespec) -> Duration {
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The kernel's release, as `uname -r` prints it.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The size of a page in bytes. Libc's answer: rustix's reads the kernel's table, and what that names is not
/// mapped where Valgrind runs the program.
pub fn page_bytes() -> usize {
    // SAFETY: the call takes a number and gives a number, and every system has this one.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })
        .unwrap_or(crate::segment::PAGE_BYTES as usize)
}

/// The addresses by which this network namespace can be reached, loopback last: those of its [`interfaces`].
pub fn addresses() -> Vec<IpAddr> {
    interfaces().into_iter().map(|(_, ip)| ip).collect()
}

/// Whether this network namespace has a loopback interface that is up. A new namespace's is down, until
/// somebody brings it up: `ip link set lo up`.
pub fn has_loopback() -> bool {
    addresses().iter().any(IpAddr::is_loopback)
}

/// The addresses of this network namespace's interfaces that are up, each with the interface's name.
/// Addresses at links to others come first, then extra ones (`/32`, `/128`), then those of `lo`, and loopback
/// last. IPv6 addresses that mean something on one link only are left out. Empty where the system does not
/// tell.
pub fn interfaces() -> Vec<(String, IpAddr)> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the pointer is valid for a write; what it is set to is given back below, and not used after
    // that.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let (mut found, mut at) = (Vec::new(), list);
    // SAFETY: each entry of the list, and what it points to, stays until the list is given back, and nobody
    // changes it.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP as u32 != 0 {
            // SAFETY: an interface's address is null or a socket address as long as its family says, for the
            // list's life.
            let ip = unsafe { ip_of(entry.ifa_addr) };
            // SAFETY: an interface's mask is null or a socket address as long as its family says, for the
            // list's life.
            let mask = unsafe { ip_of(entry.ifa_netmask) };
            // SAFETY: every entry of the list has a name, a C string that stays until the list is given back.
            let name = || unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
            found.extend(ip.map(|ip| (Place::of(entry.ifa_flags, ip, mask), name(), ip)));
        }
    }
    // SAFETY: the list is as the call above has made it, and no entry of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    found.retain(|(_, _, ip)| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()));
    in_order(found)
}

/// How likely it is that other hosts reach an address, the likeliest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    /// At a link to others.
    Link,
    /// At a link, for itself alone (`/32` or `/128`): one of the extra addresses that load balancers add by
    /// the dozen.
    Extra,
    /// At `lo`, and not of loopback: a service address, which may be the same on many hosts.
    Service,
    Loopback,
}

impl Place {
    /// Of an address with that mask at an interface with these flags.
    fn of(flags: libc::c_uint, ip: IpAddr, mask: Option<IpAddr>) -> Place {
        let has = |flag: libc::c_int| flags & flag as libc::c_uint != 0;
        let is_alone = match mask {
            Some(IpAddr::V4(mask)) => mask == Ipv4Addr::BROADCAST,
            Some(IpAddr::V6(mask)) => mask.to_bits() == u128::MAX,
            None => false,
        };
        match () {
            () if ip.is_loopback() => Place::Loopback,
            () if has(libc::IFF_LOOPBACK) => Place::Service,
            () if is_alone && !has(libc::IFF_POINTOPOINT) => Place::Extra,
            () => Place::Link,
        }
    }
}

/// By place. Of one place the first address of each interface and family comes before any second one, so that
/// no interface crowds out another where a list is cut.
fn in_order(found: Vec<(Place, String, IpAddr)>) -> Vec<(String, IpAddr)> {
    let mut seen: HashMap<(Place, String, bool), u32> = HashMap::new();
    let count = |(place, name, ip): (Place, String, IpAddr)| {
        let before = seen.entry((place, name.clone(), ip.is_ipv4())).or_default();
        *before += 1;
        ((place, *before), (name, ip))
    };
    let mut found: Vec<_> = found.into_iter().map(count).collect();
    found.sort_by_key(|(order, _)| *order);
    found.into_iter().map(|(_, named)| named).collect()
}

/// The address in a socket address, if it is one of IP.
///
/// # Safety
/// `addr` is null or points to a socket address that is as long as its family says.
unsafe fn ip_of(addr: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: by the caller's promise, it is null or there; its first field says what it is.
    let family = i32::from(unsafe { addr.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: by the caller's promise, what has this family is of this type; it need not be aligned.
            let v4 = unsafe { addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: by the caller's promise, what has this family is of this type; it need not be aligned.
            let v6 = unsafe { addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

/// Lets process `pid` trace this one, where Yama would restrict that to ancestors; an earlier permission
/// ends.
///
/// # Errors
/// EINVAL where there is no Yama (nobody needs the permission then), or no such process.
pub fn allow_tracer(pid: u32) -> Result<(), Errno> {
    rustix::process::set_ptracer(PTracer::ProcessID(pid_of(pid)?))
}

/// Lets every process of the same user trace this one, where Yama would restrict that to ancestors.
///
/// # Errors
/// EINVAL where there is no Yama (nobody needs the permission then).
pub fn allow_any_tracer() -> Result<(), Errno> {
    rustix::process::set_ptracer(PTracer::Any)
}

/// Has the kernel send this process the signal with this number when the thread that started it ends. If the
/// parent is gone already, nothing comes: compare the parent's number afterwards.
///
/// # Errors
/// EINVAL if there is no such signal.
pub fn set_parent_death_signal(signal: i32) -> Result<(), Errno> {
    let signal = Signal::from_named_raw(signal).ok_or(Errno::INVAL)?;
    rustix::process::set_parent_process_death_signal(Some(signal))
}

fn pid_of(pid: u32) -> Result<Pid, Errno> {
    i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::INVAL)
}

fn own_status() -> Option<String> {
    fs::read_to_string("/proc/self/status").ok()
}

/// The value of a line `name:<blanks>value`.
fn status_field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// The word in brackets: the choice that holds.
fn selected(choices: &str) -> Option<&str> {
    choices.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn fields_and_choices_are_found() {
        let text = "Name:\tx\nSeccomp_filters:\t0\nSeccomp:\t2\nCapEff:\t0000000000080000\n";
        assert_eq!(status_field(text, "Seccomp"), Some("2"));
        assert_eq!(status_field(text, "CapEff"), Some("0000000000080000"));
        assert_eq!(status_field(text, "Sec"), None);
        assert_eq!(selected("always within_size [never] deny"), Some("never"));
        assert_eq!(selected("always never"), None);
    }

    #[test]
    fn the_facts_of_any_linux_can_be_read() {
        assert!(cores() >= 1);
        assert_eq!(core_numbers().len(), cores());
        assert!(memory_bytes() > Some(1 << 20));
        assert!(kernel_release().contains('.'));
        assert!(page_bytes().is_power_of_two());
        assert!(traces_anyone().is_some());
        let limit = memlock();
        assert!(limit.soft.unwrap_or(u64::MAX) <= limit.hard.unwrap_or(u64::MAX));
        for fact in
            [format!("{:?}", seccomp()), format!("{:?}", userfaultfd()), format!("{:?}", ptrace_scope())]
        {
            println!("{fact}");
        }
    }

    #[test]
    fn what_a_device_may_use_is_pinned_by_its_process() {
        let pages = vec![1_u8; 64 * page_bytes()];
        let before = pinned_by(std::process::id());
        let ring = match io_uring::IoUring::new(1) {
            Ok(ring) => ring,
            Err(why) => return testbed::skip(format_args!("nothing can be pinned: io_uring: {why}")),
        };
        let buffer = libc::iovec { iov_base: pages.as_ptr().cast_mut().cast(), iov_len: pages.len() };
        // SAFETY: The ring, made after the pages, is dropped before them, and reads or writes none of them
        // meanwhile.
        let pinned = unsafe { ring.submitter().register_buffers(&[buffer]) };
        if let Err(why) = pinned {
            return testbed::skip(format_args!("nothing can be pinned: io_uring: {why}"));
        }
        let more = pinned_by(std::process::id()).zip(before).map(|(now, before)| now.saturating_sub(before));
        // Other tests of this process may let go of pages of theirs, but have none.
        assert!(more >= Some(pages.len() as u64), "{more:?}");
        drop(ring);
        assert_eq!(pinned_by(0), None);
    }

    #[test]
    fn a_thread_can_be_bound_to_each_of_its_cores() {
        for core in core_numbers() {
            let bound = std::thread::spawn(move || bind_to_core(core).map(|()| core_numbers()));
            assert_eq!(bound.join().expect("no panic"), Ok(vec![core]));
        }
        assert_eq!(bind_to_core(1 << 40), Err(Errno::INVAL));
    }

    #[test]
    fn addresses_are_of_this_host_and_loopback_comes_last() {
        let all = addresses();
        let firsts = all.iter().take_while(|ip| !ip.is_loopback()).count();
        assert!(all[firsts..].iter().all(IpAddr::is_loopback), "{all:?}");
        // What can be bound to is an address of this host.
        for ip in all {
            std::net::UdpSocket::bind((ip, 0)).expect("its own address");
        }
    }

    #[test]
    fn what_leads_to_others_comes_before_extra_addresses_and_those_of_lo() {
        let place = |flags: libc::c_int, ip: &str, mask: &str| {
            let parsed = |text: &str| text.parse::<IpAddr>().expect("an address");
            Place::of(flags as libc::c_uint, parsed(ip), Some(parsed(mask)))
        };
        let (broadcast, whole) = (libc::IFF_BROADCAST, "255.255.255.255");
        assert_eq!(place(broadcast, "10.77.0.1", "255.255.255.0"), Place::Link);
        assert_eq!(place(libc::IFF_POINTOPOINT, "10.8.0.1", whole), Place::Link);
        assert_eq!(place(broadcast, "10.9.0.1", whole), Place::Extra);
        assert_eq!(place(broadcast, "fd00::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), Place::Extra);
        assert_eq!(place(libc::IFF_LOOPBACK, "10.9.0.1", whole), Place::Service);
        assert_eq!(place(libc::IFF_LOOPBACK, "127.0.0.1", "255.0.0.0"), Place::Loopback);
        assert_eq!(
            place(libc::IFF_LOOPBACK, "::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            Place::Loopback
        );
    }

    #[test]
    fn no_interface_crowds_out_another() {
        let of = |place, name: &str, last: u8| (place, name.to_owned(), IpAddr::from([10, 0, 0, last]));
        let found = vec![
            of(Place::Loopback, "lo", 1),
            of(Place::Service, "lo", 2),
            of(Place::Link, "eth0", 3),
            of(Place::Link, "eth0", 4),
            of(Place::Extra, "eth0", 5),
            of(Place::Link, "eth1", 6),
        ];
        let order: Vec<u8> = in_order(found)
            .into_iter()
            .map(|(_, ip)| if let IpAddr::V4(ip) = ip { ip.octets()[3] } else { 0 })
            .collect();
        assert_eq!(order, [3, 6, 4, 5, 2, 1]);
    }

    #[test]
    fn numbers_of_nothing_are_refused() {
        assert_eq!(allow_tracer(0), Err(Errno::INVAL));
        assert_eq!(allow_tracer(u32::MAX), Err(Errno::INVAL));
        assert_eq!(set_parent_death_signal(0), Err(Errno::INVAL));
        assert_eq!(set_parent_death_signal(-1), Err(Errno::INVAL));
    }
}
