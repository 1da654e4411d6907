//! The meaning of the facts.

use measure::{attach::Attach, units::bytes};
use standpipe::PathReason;
use standpipe::host::{Limit, Seccomp, ShmemHugePages, Userfaultfd};
use standpipe::network::LEAST_BUDGET;
use standpipe::path::{self, Access, Facts as PathFacts, Limits, MemId, Path, Wanted};

use super::{
    check::{Check, Status},
    facts::Facts,
    network::GET_LIBFABRIC,
};

/// All checks, the most basic first; the paths that memory takes here come last.
pub(super) fn of(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![
        check("kernel", Status::Info, &facts.kernel, ""),
        cores(facts.cores),
        memory(facts),
        settings(facts),
        job(&facts.job),
        segment(&facts.segment),
        membarrier(facts.membarrier),
        watch(&facts.watch),
        seccomp(facts.seccomp),
        ptrace_scope(facts),
        check("CAP_SYS_PTRACE", Status::Info, facts.traces_anyone.map_or_else(unknown, held), ""),
        attach(facts),
        memlock(facts),
        heap_limit(ADDRESS, facts.address_space, facts, ADDRESS_REMEDY),
        heap_limit("file size", facts.file_size, facts, FILE_REMEDY),
        open_files(facts.open_files),
        userfaultfd(facts.watching.offer),
        copies(&facts.watching.copies),
        huge_pages(facts.shmem_huge_pages),
        dev_shm(facts.dev_shm_bytes),
        libfabric(facts),
        pin_budget(facts),
    ];
    checks.extend(rendezvous(facts));
    checks.extend(malloc(facts));
    checks.extend([heap_path(facts), private_path(facts), granted_path(facts)]);
    checks
}

fn check(check: &'static str, status: Status, value: impl Into<String>, remedy: &str) -> Check {
    Check { check, status, value: value.into(), remedy: remedy.to_owned(), node: None }
}

fn unknown() -> String {
    "not known".to_owned()
}

fn held(held: bool) -> String {
    if held { "held: this process may read any other's memory" } else { "not held" }.to_owned()
}

fn cores(cores: usize) -> Check {
    if cores == 1 {
        let remedy = "with one core, processes that wait for each other take turns; give the job two or more";
        return check("cores", Status::Warn, "1", remedy);
    }
    check("cores", Status::Ok, cores.to_string(), "")
}

fn memory(facts: &Facts) -> Check {
    let all = facts.memory_bytes.map_or_else(unknown, bytes);
    let limit = facts.memory_limit.filter(|limit| facts.memory_bytes.is_none_or(|all| *limit < all));
    let Some(limit) = limit else { return check("memory", Status::Info, all, "") };
    let value = format!("{all}, of which the control group may use {}", bytes(limit));
    let remedy = "where the processes of this control group use more, heaps included, the kernel kills one of them (SIGKILL): \
                  STANDPIPE_HEAP bounds each rank's";
    check("memory", Status::Info, value, remedy)
}

const JOB_REMEDY: &str = "no program opens a node here; those that `standpipe run` starts do";

/// Whom a node would meet when it opens.
fn job(job: &Result<Option<String>, String>) -> Check {
    match job {
        Ok(None) => check("job", Status::Info, "none: a node opened here is a job of one", ""),
        Ok(Some(launcher)) => check("job", Status::Info, format!("by {launcher}"), ""),
        Err(why) => check("job", Status::Fail, why, JOB_REMEDY),
    }
}

/// Where nodes that nobody launched find each other.
fn rendezvous(facts: &Facts) -> Option<Check> {
    let why = facts.bad_rendezvous.as_ref()?;
    let remedy =
        "nodes open, and whoever asks Rendezvous::from_env is refused: mend the variable, or unset it";
    Some(check("rendezvous", Status::Warn, why, remedy))
}

/// Only where it is preloaded.
fn malloc(facts: &Facts) -> Option<Check> {
    let most = bytes(facts.near.preloaded?);
    let value = format!(
        "libstandpipe_malloc.so is preloaded: peers of each program's first node map its malloc, up to {most}"
    );
    let remedy = "peers may write all of that memory: preload it only where you trust them (docs/MALLOC.md)";
    Some(check("malloc", Status::Info, value, remedy))
}

/// A bad one stops every job when its nodes open.
fn settings(facts: &Facts) -> Check {
    if !facts.bad_settings.is_empty() {
        let (whys, names): (Vec<_>, Vec<_>) = facts.bad_settings.iter().cloned().unzip();
        let remedy = format!("no job can start: unset {}, or give it such a value", names.join(" and "));
        return check("settings", Status::Fail, whys.join("; "), &remedy);
    }
    if let Some(no_network) = &facts.no_network {
        let remedy = format!(
            "no job can start, and no node reach others: unset STANDPIPE_TRANSPORT, or {}",
            no_network.mend
        );
        return check("settings", Status::Fail, format!("STANDPIPE_TRANSPORT: {}", no_network.why), &remedy);
    }
    if !facts.unknown_settings.is_empty() {
        let remedy = "unset such a variable, or give it the right name: docs/SETTINGS.md has all";
        return check("settings", Status::Warn, facts.unknown_settings.join("; "), remedy);
    }
    check("settings", Status::Ok, "no STANDPIPE_ variable is wrong", "")
}

fn segment(segment: &Result<(), String>) -> Check {
    match segment {
        Ok(()) => check("memfd", Status::Ok, "sealed memory files can be made", ""),
        Err(why) => check(
            "memfd",
            Status::Fail,
            why,
            "no job can start: allow memfd_create, ftruncate and fcntl in the seccomp filter",
        ),
    }
}

fn membarrier(works: bool) -> Check {
    if works {
        return check("membarrier", Status::Ok, "senders need no fence; sleepers pay for it", "");
    }
    let remedy = "messages cost a fence each, some nanoseconds: Linux 4.16 and a seccomp filter that allows membarrier \
                  would spare it";
    check("membarrier", Status::Warn, "refused", remedy)
}

fn watch(watch: &Result<(), String>) -> Check {
    match watch {
        Ok(()) => check("pidfd_open", Status::Ok, "processes can be watched for their end", ""),
        Err(why) => check(
            "pidfd_open",
            Status::Fail,
            why,
            "no job can start: Linux 5.3 has it; allow pidfd_open in the seccomp filter, as newer profiles of containers do",
        ),
    }
}

fn seccomp(seccomp: Option<Seccomp>) -> Check {
    let value = match seccomp {
        Some(Seccomp::Off) => return check("seccomp", Status::Ok, "no filter", ""),
        Some(Seccomp::Strict) => "strict: only read, write and exit".to_owned(),
        Some(Seccomp::Filter) => "a filter is in force; what it forbids shows in the other checks".to_owned(),
        Some(other) => format!("{other:?}"),
        None => unknown(),
    };
    check("seccomp", Status::Info, value, "")
}

fn ptrace_scope(facts: &Facts) -> Check {
    let name = "ptrace scope";
    match (facts.ptrace_scope, facts.traces_anyone) {
        (None, _) => {
            check(name, Status::Ok, "no Yama: processes of one user may read each other's memory", "")
        }
        (Some(0), _) => check(name, Status::Ok, "0: processes of one user may read each other's memory", ""),
        (Some(1), _) => check(
            name,
            Status::Ok,
            "1: ranks of a job permit each other, as Yama asks for; nodes that nobody launched by STANDPIPE_TRACER",
            "",
        ),
        (Some(2), Some(true)) => check(name, Status::Ok, "2: administrators only, and this is one", ""),
        (Some(scope @ 2), _) => {
            check(name, Status::Warn, format!("{scope}: administrators only"), PTRACE_REMEDY)
        }
        (Some(scope), _) => {
            check(name, Status::Warn, format!("{scope}: nobody, until the next boot"), PTRACE_REMEDY)
        }
    }
}

const PTRACE_REMEDY: &str = "`sysctl kernel.yama.ptrace_scope=1` (from 3 only by rebooting), or give the processes \
                             CAP_SYS_PTRACE";

fn attach(facts: &Facts) -> Check {
    let name = "cross-memory attach";
    match &facts.attach {
        Attach::Works => check(name, Status::Ok, "one process read another's private memory", ""),
        Attach::Denied(why) => check(name, Status::Warn, format!("denied: {why}"), attach_remedy(facts)),
        Attach::Failed(why) => check(name, Status::Warn, format!("could not be tried: {why}"), ""),
    }
}

/// Who forbids cross-memory attach here, and how to change their mind.
fn attach_remedy(facts: &Facts) -> &'static str {
    if facts.ptrace_scope.is_some_and(|scope| scope >= 2) && facts.traces_anyone != Some(true) {
        PTRACE_REMEDY
    } else if facts.seccomp == Some(Seccomp::Filter) {
        "allow process_vm_readv and process_vm_writev in the seccomp filter (docker: `--cap-add SYS_PTRACE`, or \
         `--security-opt seccomp=FILE`)"
    } else {
        "run all ranks as one user, in one user namespace, and not from set-user-id programs"
    }
}

/// Only jobs that ask for it need it.
fn libfabric(facts: &Facts) -> Check {
    match &facts.libfabric {
        Ok(version) => match &facts.no_provider {
            None => check("libfabric", Status::Ok, version, ""),
            Some(no_network) => {
                let remedy = format!("no transport but shm can be used: {}", no_network.mend);
                check("libfabric", Status::Warn, format!("{version}: {}", no_network.why), &remedy)
            }
        },
        Err(why) => {
            let remedy = format!("for STANDPIPE_TRANSPORT=ofi {GET_LIBFABRIC}; nothing else needs it");
            check("libfabric", Status::Info, why, &remedy)
        }
    }
}

/// Bytes that suffice for what verbs pins for a node and two connections of long copies, 83 MiB each over
/// soft-RoCE, and for some buckets.
const VERBS_BYTES: u64 = 288 << 20;

const UNPINNED: &str = "nothing is pinned between processes of one host, or over tcp";
const MEMLOCK_REMEDY: &str = "libfabric's verbs pins its queues and buffers, 83 MiB a node at soft-RoCE, and twice that for long copies, and cannot be \
                              opened: STANDPIPE_TRANSPORT=ofi takes tcp, and says so; what is registered may be half of \
                              the limit, and the rest goes by message: `ulimit -l unlimited`, `* - memlock unlimited` in \
                              /etc/security/limits.conf, or LimitMEMLOCK=infinity for a service of systemd";

fn memlock(facts: &Facts) -> Check {
    let (name, limit) = ("memlock", text(facts.memlock));
    if facts.locks_anything == Some(true) {
        return check(name, Status::Info, format!("{limit}; CAP_IPC_LOCK: it does not bind"), UNPINNED);
    }
    match facts.verbs_devices.as_slice() {
        _ if facts.memlock.soft.is_none_or(|soft| soft >= VERBS_BYTES) => {
            check(name, Status::Ok, limit, UNPINNED)
        }
        [] => check(name, Status::Info, limit, &format!("{UNPINNED}; over a card, {MEMLOCK_REMEDY}")),
        devices => {
            let value = format!("{limit}: not enough for {}", devices.join(", "));
            check(name, Status::Warn, value, MEMLOCK_REMEDY)
        }
    }
}

/// What may be registered over a network, where that is set.
fn pin_budget(facts: &Facts) -> Check {
    let name = "pin budget";
    let Some(budget) = facts.pin_bytes else {
        return check(name, Status::Info, "the default: STANDPIPE_PIN is not set", UNPINNED);
    };
    let (value, memory) = (bytes(budget), facts.memory_bytes.unwrap_or(u64::MAX));
    let locked = facts.memlock.soft.filter(|_| facts.locks_anything != Some(true)).unwrap_or(u64::MAX);
    let (status, remedy) = match budget {
        _ if budget < LEAST_BUDGET => (
            Status::Warn,
            "STANDPIPE_PIN has no room for a page: nothing can be registered, and all goes by message",
        ),
        _ if budget > locked => (
            Status::Warn,
            "STANDPIPE_PIN is more than may be locked: what a card refuses to register goes by message (ulimit -l)",
        ),
        _ if budget > memory => (
            Status::Warn,
            "STANDPIPE_PIN is more than this machine's memory: nothing keeps what is pinned from taking all of it",
        ),
        _ => (Status::Ok, UNPINNED),
    };
    check(name, status, value, remedy)
}

fn text(limit: Limit) -> String {
    let text = |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), bytes);
    format!("{} (at most {})", text(limit.soft), text(limit.hard))
}

/// A limit that heaps run into: unless `STANDPIPE_HEAP` says otherwise they may grow to half of the memory,
/// and none is made that could not.
fn heap_limit(name: &'static str, limit: Limit, facts: &Facts, remedy: &str) -> Check {
    let needed = facts.memory_bytes.map_or(0, |bytes| bytes / 2);
    match limit.soft {
        None => check(name, Status::Ok, "no limit", ""),
        Some(soft) if soft > needed && name != ADDRESS => check(name, Status::Ok, text(limit), ""),
        Some(soft) if soft <= needed && !facts.heap_set => {
            let value = format!("{}: no room for a heap of {}", text(limit), bytes(needed));
            check(name, Status::Fail, value, remedy)
        }
        Some(_) => check(name, Status::Warn, text(limit), remedy),
    }
}

/// Descriptors that the launcher of a job of two needs.
const JOB_FILES: u64 = 151;

fn open_files(limit: Limit) -> Check {
    let count = |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), |count| count.to_string());
    let value = format!("{} (at most {})", count(limit.soft), count(limit.hard));
    // The launcher raises the soft limit itself.
    if limit.hard.is_some_and(|hard| hard < JOB_FILES) {
        let remedy =
            format!("a job of two needs {JOB_FILES}, and 7 more for each rank more: `ulimit -n 1024`");
        return check("open files", Status::Fail, value, &remedy);
    }
    check("open files", Status::Ok, value, "")
}

const ADDRESS: &str = "address space";
const ADDRESS_REMEDY: &str = "a rank maps the heaps of all ranks it talks to: lift the limit, or give STANDPIPE_HEAP, \
                              times the number of ranks, well below it: `ulimit -v unlimited`";
const FILE_REMEDY: &str =
    "a heap is a file in memory: lift the limit, or set STANDPIPE_HEAP below it: `ulimit -f unlimited`";

fn userfaultfd(offer: Userfaultfd) -> Check {
    let value = match offer {
        Userfaultfd::Full => "offered".to_owned(),
        Userfaultfd::UserModeOnly => "offered for faults of user code".to_owned(),
        Userfaultfd::Refused { errno } => format!("refused: {errno}"),
        other => format!("{other:?}"),
    };
    let remedy = match offer {
        Userfaultfd::Refused { .. } => {
            "where memory is registered over libfabric, only what is watched may be: without this all of it goes by \
             message, unless /dev/userfaultfd may be opened; let the filter of system calls pass userfaultfd"
        }
        _ => {
            "tells of registered memory that changes, but not of MADV_GUARD_INSTALL, shmat with SHM_REMAP, mprotect, \
             a userfaultfd of the program's own (UFFDIO_UNREGISTER, on Linux 6.1), and what a process does that shares the memory \
             (CLONE_VM) and is killed meanwhile: no program may do these to memory that it transfers; \
             mremap of a range that only a part of is watched fails with EFAULT: whole mappings are, until others come to lie beside them; not used between processes of one host"
        }
    };
    check("userfaultfd", Status::Info, value, remedy)
}

fn copies(copies: &[(u32, usize)]) -> Check {
    let name = "copies";
    let Some((pid, count)) = copies.first() else {
        return check(name, Status::Ok, "at most one of the library watches memory in each process", "");
    };
    let others = match copies.len() {
        1 => String::new(),
        all => format!(", and {} more processes likewise", all - 1),
    };
    let remedy = "over networks that register memory, what one copy watches the others register for each operation anew, which is \
                  slow: link one shared library, or have one part of the program open the node";
    check(name, Status::Warn, format!("process {pid} has {count} copies of the library{others}"), remedy)
}

fn huge_pages(setting: Option<ShmemHugePages>) -> Check {
    let name = "huge pages";
    let small = "the heap has small pages, which costs a few per cent on large puts and gets: `echo advise > \
                 /sys/kernel/mm/transparent_hugepage/shmem_enabled`";
    match setting {
        Some(ShmemHugePages::Always) => check(name, Status::Ok, "always, for shared memory", ""),
        Some(ShmemHugePages::WithinSize) => check(name, Status::Ok, "within_size, for shared memory", ""),
        Some(ShmemHugePages::Force) => check(name, Status::Ok, "force, for shared memory", ""),
        Some(ShmemHugePages::Advise) => check(name, Status::Ok, "advise, for shared memory", ""),
        Some(ShmemHugePages::Never) => check(name, Status::Info, "never, for shared memory", small),
        Some(ShmemHugePages::Deny) => check(name, Status::Info, "deny, for shared memory", small),
        Some(other) => check(name, Status::Info, format!("{other:?}, for shared memory"), ""),
        None => check(name, Status::Info, "none for shared memory in this kernel", ""),
    }
}

fn dev_shm(size: Option<u64>) -> Check {
    let value = size.map_or_else(|| "not there".to_owned(), bytes);
    check("/dev/shm", Status::Info, value, "not used: heaps are anonymous, its size is no limit")
}

/// Why no node can open here, and so takes no path, and which check says more; `None` where one can.
fn no_path(facts: &Facts) -> Option<(String, &'static str)> {
    if facts.segment.is_err() {
        return Some(("there can be no heap".to_owned(), "see memfd"));
    }
    if facts.watch.is_err() {
        return Some(("no process can be watched".to_owned(), "see pidfd_open"));
    }
    if let Some((_, name)) = facts.bad_settings.first() {
        return Some((format!("no node opens with this {name}"), "see settings"));
    }
    let network = facts.transport_set.as_ref().filter(|_| facts.no_network.is_some())?;
    Some((format!("{network} cannot be used here"), "see settings"))
}

fn heap_path(facts: &Facts) -> Check {
    let name = "path: heap";
    if let Some((why, see)) = no_path(facts) {
        return check(name, Status::Fail, format!("none: {why}"), see);
    }
    if let Some(network) = &facts.transport_set {
        let value = format!("the network, by {network}: one-sided by a key, also within this host");
        let remedy = "unset STANDPIPE_TRANSPORT to map the heaps of this host's processes";
        return check(name, Status::Info, value, remedy);
    }
    let path = path_to(MemId::Heap, Ok(())).name();
    check(name, Status::Ok, format!("{path}: a put is a store, a get is a load"), "")
}

/// The path that private memory of this host's processes takes under the present settings, in a job and
/// outside one.
fn private_path(facts: &Facts) -> Check {
    let name = "path: private memory";
    if let Some((why, see)) = no_path(facts) {
        return check(name, Status::Fail, format!("none: {why}"), see);
    }
    if let Some(network) = &facts.transport_set {
        let value = format!(
            "the network, by {network}: one-sided where it is registered (STANDPIPE_STRATEGY), else messages"
        );
        return check(name, Status::Info, value, "");
    }
    let [never, ranges] = [is(&facts.near.attach_set, "never"), is(&facts.near.expose_set, "ranges")];
    let attach = match facts.attach {
        _ if never || ranges => Err(PathReason::Configured),
        Attach::Works => Ok(()),
        _ => Err(PathReason::PtraceDenied),
    };
    match path_to(MemId::Space, attach) {
        Path::Attached => {
            let value = format!("{}, the owner takes no part", attached(facts));
            let outside = "between nodes that no launcher started it goes by messages, unless it is granted, or both set \
                           STANDPIPE_EXPOSE=everything";
            let remedy = if is(&facts.near.expose_set, "everything") { "" } else { outside };
            check(name, Status::Ok, value, remedy)
        }
        _ if never => check(
            name,
            Status::Warn,
            format!("{MESSAGES} (STANDPIPE_ATTACH=never)"),
            "unset STANDPIPE_ATTACH to use cross-memory attach",
        ),
        _ if ranges => check(
            name,
            Status::Warn,
            format!("{MESSAGES} (STANDPIPE_EXPOSE=ranges)"),
            "unset STANDPIPE_EXPOSE to use cross-memory attach in jobs",
        ),
        _ => check(name, Status::Warn, MESSAGES, "see cross-memory attach"),
    }
}

const MESSAGES: &str = "messages: copied twice, and the owner must make progress";

/// Whether a setting has this value.
fn is(setting: &Option<String>, value: &str) -> bool {
    setting.as_deref() == Some(value)
}

/// How memory is reached where the kernel lets us attach.
fn attached(facts: &Facts) -> String {
    let strict = match is(&facts.near.attach_set, "strict") {
        true => "puts by a descriptor of the peer's memory, two system calls a piece; gets by ",
        false => "",
    };
    format!("{strict}cross-memory attach: one system call for up to 1,024 pieces")
}

/// The path that memory takes which one process of this user grants to another.
fn granted_path(facts: &Facts) -> Check {
    let name = "path: granted memory";
    if let Some((why, see)) = no_path(facts) {
        return check(name, Status::Fail, format!("none: {why}"), see);
    }
    if let Some(network) = &facts.transport_set {
        let value = format!("the network, by {network}: messages, as the owner copies what it grants");
        let remedy =
            "unset STANDPIPE_TRANSPORT to have grants of this host's processes go by cross-memory attach";
        return check(name, Status::Info, value, remedy);
    }
    let by_message =
        |why: &str, remedy: &str| check(name, Status::Warn, format!("{MESSAGES} ({why})"), remedy);
    if is(&facts.near.attach_set, "never") {
        let remedy = "unset STANDPIPE_ATTACH to use cross-memory attach";
        return by_message("STANDPIPE_ATTACH=never", remedy);
    }
    if facts.attach != Attach::Works {
        return by_message("no process may attach to another", "see cross-memory attach");
    }
    if let Err(why) = &facts.near.table {
        let remedy = "Linux 5.1 has the seal that lets peers read a node's table of grants, and not write it: \
                      allow fcntl(F_ADD_SEALS) in the seccomp filter";
        return by_message(&format!("no table of grants: {why}"), remedy);
    }
    if let Err(why) = &facts.near.end {
        let remedy = "allow set_robust_list and get_robust_list in the seccomp filter";
        return by_message(&format!("no word of a process's end: {why}"), remedy);
    }
    let near = format!("{}, whatever the owner exposes", attached(facts));
    if facts.ptrace_scope != Some(1) || facts.traces_anyone == Some(true) {
        return check(name, Status::Ok, near, "");
    }
    under_yama(facts, name, &near)
}

/// The same where Yama lets only ancestors attach to a process, and those that it permits itself.
fn under_yama(facts: &Facts, name: &'static str, near: &str) -> Check {
    let ranges = is(&facts.near.expose_set, "ranges");
    let (to, status, value) = match facts.near.tracer_set.as_deref() {
        Some("any") => return check(name, Status::Ok, near, ""),
        Some("never") => {
            ("", Status::Warn, format!("{MESSAGES} (ptrace scope 1, and STANDPIPE_TRACER=never)"))
        }
        None if ranges => {
            let why = "ptrace scope 1, and a node of STANDPIPE_EXPOSE=ranges permits nobody";
            ("", Status::Warn, format!("{MESSAGES} ({why})"))
        }
        None => {
            let value = format!(
                "in a job: {near}; between nodes that no launcher started: messages (ptrace scope 1)"
            );
            (" of such nodes", Status::Info, value)
        }
        Some("parent") => (
            " of others",
            Status::Info,
            format!(
                "{near}: by processes that the owner's parent has started; messages by others (ptrace scope 1)"
            ),
        ),
        Some(pid) => (
            " of others",
            Status::Info,
            format!(
                "{near}: by processes that process {pid} has started; messages by others (ptrace scope 1)"
            ),
        ),
    };
    let remedy = format!(
        "to have grants{to} go by cross-memory attach, the owner permits it: Config::tracer with Tracer::Parent (its \
         siblings), Process (a process's children) or Any (all of the user's), or STANDPIPE_TRACER=parent, a number or any"
    );
    check(name, status, value, &remedy)
}

/// The path that the library takes to memory of a process of this host.
fn path_to(memory: MemId, attach: Result<(), PathReason>) -> Path {
    let access = Access::near(memory, attach);
    let (wanted, limits) = (Wanted::Put, Limits::default());
    path::choose(&PathFacts { wanted, bytes: 1, alone: true, memory, access, limits }).path
}

#[cfg(test)]
mod tests;
