use super::*;
use crate::doctor::facts::{Near, Watching};
use crate::doctor::network::NoNetwork;

/// A host where everything works.
fn good() -> Facts {
    Facts {
        kernel: "6.1.0".to_owned(),
        cores: 8,
        memory_bytes: Some(16 << 30),
        memory_limit: None,
        job: Ok(None),
        no_provider: None,
        bad_rendezvous: None,
        segment: Ok(()),
        membarrier: true,
        watch: Ok(()),
        seccomp: Some(Seccomp::Off),
        ptrace_scope: Some(1),
        traces_anyone: Some(false),
        attach: Attach::Works,
        near: Near {
            attach_set: None,
            expose_set: None,
            tracer_set: None,
            preloaded: None,
            table: Ok(()),
            end: Ok(()),
        },
        transport_set: None,
        bad_settings: Vec::new(),
        no_network: None,
        pin_bytes: None,
        unknown_settings: Vec::new(),
        memlock: Limit { soft: Some(8 << 20), hard: None },
        locks_anything: Some(false),
        verbs_devices: Vec::new(),
        address_space: Limit { soft: None, hard: None },
        file_size: Limit { soft: Some(9 << 30), hard: None },
        open_files: Limit { soft: Some(1024), hard: None },
        heap_set: false,
        watching: Watching { offer: Userfaultfd::UserModeOnly, copies: Vec::new() },
        shmem_huge_pages: Some(ShmemHugePages::Advise),
        dev_shm_bytes: Some(64 << 20),
        libfabric: Ok("1.17".to_owned()),
    }
}

/// The same, with these settings.
fn near(attach: Option<&str>, expose: Option<&str>, tracer: Option<&str>) -> Facts {
    let [attach_set, expose_set, tracer_set] = [attach, expose, tracer].map(|value| value.map(str::to_owned));
    Facts { near: Near { attach_set, expose_set, tracer_set, ..good().near }, ..good() }
}

fn find(facts: &Facts, name: &str) -> Check {
    of(facts).into_iter().find(|check| check.check == name).expect("a check of that name")
}

fn missing(why: &str) -> NoNetwork {
    NoNetwork { why: why.to_owned(), mend: "find one" }
}

#[test]
fn there_are_no_paths_where_no_node_opens() {
    let set = |name: &str| Some(name.to_owned());
    let pigeon = || Facts { transport_set: set("ofi:pigeon"), no_network: Some(missing("none")), ..good() };
    let bad = |name: &str| vec![(format!("{name} is wrong"), name.to_owned())];
    for (facts, why, see) in [
        (pigeon(), "none: ofi:pigeon cannot be used here", "see settings"),
        (Facts { bad_settings: bad("STANDPIPE_HEAP"), ..good() }, "with this STANDPIPE_HEAP", "see settings"),
        (Facts { segment: Err("EPERM".to_owned()), ..good() }, "none: there can be no heap", "see memfd"),
        (Facts { watch: Err("EPERM".to_owned()), ..good() }, "none: no process", "see pidfd_open"),
    ] {
        for path in ["path: heap", "path: private memory", "path: granted memory"] {
            let told = find(&facts, path);
            assert_eq!((told.status, told.remedy.as_str()), (Status::Fail, see), "{told:?}");
            assert!(told.value.starts_with("none: ") && told.value.contains(why), "{told:?}");
        }
    }
}

#[test]
fn a_preloaded_malloc_is_named_with_what_it_gives_away() {
    assert!(of(&good()).iter().all(|check| check.check != "malloc"));
    let near = Near { preloaded: Some(8 << 30), ..good().near };
    let told = find(&Facts { near, ..good() }, "malloc");
    assert!(told.value.contains("libstandpipe_malloc.so") && told.value.contains("8.00 GiB"), "{told:?}");
    assert!(told.remedy.contains("peers may write all of that memory"), "{told:?}");
}

#[test]
fn each_setting_that_cannot_be_read_is_told() {
    let bad = ["STANDPIPE_HEAP", "STANDPIPE_TRANSPORT"].map(|name| (format!("{name}=x"), name.to_owned()));
    let told = find(&Facts { bad_settings: bad.to_vec(), ..good() }, "settings");
    assert_eq!(told.value, "STANDPIPE_HEAP=x; STANDPIPE_TRANSPORT=x");
    assert!(told.remedy.contains("unset STANDPIPE_HEAP and STANDPIPE_TRANSPORT"), "{told:?}");
}

#[test]
fn a_good_host_has_nothing_to_mend() {
    for check in of(&good()) {
        assert!(matches!(check.status, Status::Ok | Status::Info), "{check:?}");
    }
    assert_eq!(find(&good(), "memlock").value, "8.00 MiB (at most no limit)");
    assert!(find(&good(), "path: private memory").value.starts_with("cross-memory attach"));
}

#[test]
fn a_network_that_is_not_there_and_a_budget_that_cannot_be_are_told() {
    let facts = Facts {
        no_network: Some(missing("no provider pigeon")),
        transport_set: Some("ofi:pigeon".to_owned()),
        ..good()
    };
    let told = find(&facts, "settings");
    assert_eq!((told.status, told.value.contains("pigeon")), (Status::Fail, true));
    assert!(told.remedy.ends_with("or find one"), "{told:?}");
    let budget = |pin_bytes: u64| find(&Facts { pin_bytes: Some(pin_bytes), ..good() }, "pin budget");
    for (bytes, why) in [(1, "no room"), (5000, "no room"), (9 << 20, "may be locked")] {
        let told = budget(bytes);
        assert_eq!((told.status, told.remedy.contains(why)), (Status::Warn, true), "{bytes}");
    }
    assert_eq!(budget(4 << 20).status, Status::Ok);
    let unbound = |pin_bytes: u64| {
        let facts = Facts { pin_bytes: Some(pin_bytes), locks_anything: Some(true), ..good() };
        find(&facts, "pin budget")
    };
    assert_eq!(unbound(9 << 20).status, Status::Ok);
    assert!(unbound(17 << 30).remedy.contains("memory"));
}

#[test]
fn a_job_that_cannot_be_joined_is_told_and_so_is_what_a_container_may_use() {
    let facts = Facts { job: Err("RANK is not a number".to_owned()), ..good() };
    assert_eq!(find(&facts, "job").status, Status::Fail);
    let facts = Facts { job: Ok(Some("PMIx".to_owned())), ..good() };
    assert_eq!(find(&facts, "job").value, "by PMIx");
    let of = |limit| find(&Facts { memory_limit: Some(limit), ..good() }, "memory");
    assert!(of(1 << 30).value.contains("1.00 GiB") && of(1 << 30).remedy.contains("SIGKILL"));
    assert_eq!(of(64 << 30).value, "16.0 GiB");
    let facts = Facts { bad_rendezvous: Some("no secret".to_owned()), ..good() };
    assert_eq!(find(&facts, "rendezvous").status, Status::Warn);
    let facts = Facts { no_provider: Some(missing("none")), ..good() };
    assert_eq!(find(&facts, "libfabric").status, Status::Warn);
}

#[test]
fn denied_attach_sends_private_memory_by_message_and_names_who_denies() {
    let denied = Facts { attach: Attach::Denied("EPERM".to_owned()), ..good() };
    let by_filter = Facts { seccomp: Some(Seccomp::Filter), ..denied.clone() };
    let by_yama = Facts { ptrace_scope: Some(2), ..by_filter.clone() };
    for (facts, who) in [(&denied, "one user"), (&by_filter, "seccomp filter"), (&by_yama, "ptrace_scope")] {
        assert!(find(facts, "cross-memory attach").remedy.contains(who), "{who}");
        let path = find(facts, "path: private memory");
        assert_eq!((path.status, path.value.starts_with("messages")), (Status::Warn, true));
    }
    let root = Facts { traces_anyone: Some(true), ..by_yama };
    assert_eq!(find(&root, "ptrace scope").status, Status::Ok);
    assert!(find(&root, "cross-memory attach").remedy.contains("seccomp filter"), "Yama lets it through");
}

#[test]
fn paths_are_those_that_are_taken_under_the_settings() {
    let heap = |facts: &Facts| find(facts, "path: heap").value;
    let private = |facts: &Facts| find(facts, "path: private memory").value;
    let set = |value: &str| Some(value.to_owned());
    let network = Facts { transport_set: set("ofi:tcp"), ..good() };
    assert!(heap(&network).contains("ofi:tcp") && private(&network).contains("ofi:tcp"));
    let ranges = near(None, Some("ranges"), None);
    assert!(heap(&ranges).starts_with("mapped") && private(&ranges).contains("STANDPIPE_EXPOSE=ranges"));
    let never = near(Some("never"), None, None);
    assert!(private(&never).contains("STANDPIPE_ATTACH=never"));
    let strict = near(Some("strict"), None, None);
    assert!(private(&strict).starts_with("puts by a descriptor"));
    let outside = |facts: &Facts| find(facts, "path: private memory").remedy;
    assert!(outside(&good()).contains("no launcher"));
    assert_eq!(outside(&near(None, Some("everything"), None)), "");
}

#[test]
fn limits_that_heaps_run_into_are_told() {
    let limit = Limit { soft: Some(4 << 30), hard: None };
    let facts = Facts { address_space: limit, file_size: limit, ..good() };
    for (name, remedy) in [("address space", "ulimit -v"), ("file size", "ulimit -f")] {
        let check = find(&facts, name);
        assert!(check.status == Status::Fail && check.remedy.contains(remedy), "{check:?}");
        let smaller = find(&Facts { heap_set: true, ..facts.clone() }, name);
        assert_eq!(smaller.status, Status::Warn, "a heap that fits may be set");
    }
    let few = Facts { open_files: Limit { soft: Some(20), hard: Some(20) }, ..good() };
    assert!(find(&few, "open files").remedy.contains("ulimit -n"));
}

#[test]
fn a_card_that_cannot_be_used_for_want_of_locked_memory_is_named_with_the_remedy() {
    let card = Facts { verbs_devices: vec!["mlx5_0".to_owned()], ..good() };
    let bound = find(&card, "memlock");
    assert!(bound.status == Status::Warn && bound.value.contains("mlx5_0"), "{bound:?}");
    for remedy in ["ulimit -l unlimited", "limits.conf", "LimitMEMLOCK"] {
        assert!(bound.remedy.contains(remedy) && find(&good(), "memlock").remedy.contains(remedy));
    }
    let unlimited = Facts { memlock: Limit { soft: None, hard: None }, ..card.clone() };
    assert_eq!(find(&unlimited, "memlock").status, Status::Ok);
    let privileged = Facts { locks_anything: Some(true), ..card };
    assert_eq!(find(&privileged, "memlock").status, Status::Info);
}

#[test]
fn what_is_not_told_of_memory_is_named() {
    assert!(find(&good(), "userfaultfd").remedy.contains("MADV_GUARD_INSTALL"));
    let refused = Userfaultfd::Refused { errno: rustix::io::Errno::PERM };
    let check =
        find(&Facts { watching: Watching { offer: refused, copies: Vec::new() }, ..good() }, "userfaultfd");
    assert!(check.status == Status::Info && check.remedy.contains("by message"), "{check:?}");
}

#[test]
fn a_host_without_libfabric_is_told_what_needs_it() {
    let facts = Facts { libfabric: Err("it is not there".to_owned()), ..good() };
    let check = find(&facts, "libfabric");
    assert_eq!((check.status, check.value.as_str()), (Status::Info, "it is not there"));
    assert!(check.remedy.contains("STANDPIPE_TRANSPORT=ofi"));
}

#[test]
fn the_users_own_setting_is_named() {
    let facts = near(Some("never"), None, None);
    assert!(find(&facts, "path: private memory").value.contains("STANDPIPE_ATTACH=never"));
}

#[test]
fn where_no_process_can_be_watched_the_doctor_fails() {
    let facts = Facts { watch: Err("Operation not permitted".to_owned()), ..good() };
    let told = find(&facts, "pidfd_open");
    assert!(told.status == Status::Fail && told.remedy.contains("seccomp"), "{told:?}");
}

#[test]
fn without_memory_files_the_doctor_fails() {
    let facts = Facts { segment: Err("memfd_create: EPERM".to_owned()), ..good() };
    assert_eq!(find(&facts, "memfd").status, Status::Fail);
    assert_eq!(find(&facts, "path: heap").status, Status::Fail);
}

#[test]
fn several_copies_in_a_process_are_told() {
    let watching = Watching { copies: vec![(4711, 2), (4712, 3)], ..good().watching };
    let check = find(&Facts { watching, ..good() }, "copies");
    assert_eq!(check.status, Status::Warn);
    assert_eq!(check.value, "process 4711 has 2 copies of the library, and 1 more processes likewise");
    assert_eq!(find(&good(), "copies").status, Status::Ok);
}

#[test]
fn a_grant_goes_by_the_kernel_where_nobody_forbids_it() {
    let scope = |scope, traces_anyone| Facts { ptrace_scope: scope, traces_anyone, ..good() };
    let any = near(None, None, Some("any"));
    for facts in [scope(None, Some(false)), scope(Some(0), None), scope(Some(1), Some(true)), any] {
        let told = find(&facts, "path: granted memory");
        assert_eq!((told.status, told.remedy.as_str()), (Status::Ok, ""), "{told:?}");
        assert!(told.value.starts_with("cross-memory attach") && !told.value.contains("message"), "{told:?}");
    }
    let strict = Facts { ptrace_scope: None, ..near(Some("strict"), None, None) };
    assert!(find(&strict, "path: granted memory").value.starts_with("puts by a descriptor"));
}

#[test]
fn a_grant_that_goes_by_message_says_who_forbids_the_kernels_copy_and_what_to_do() {
    let denied = Facts { attach: Attach::Denied("EPERM".to_owned()), ..good() };
    let network = Facts { transport_set: Some("ofi:tcp".to_owned()), ..good() };
    let of = |table, end| Facts { near: Near { table, end, ..good().near }, ..good() };
    let refused = || Err("EINVAL".to_owned());
    for (facts, why, remedy) in [
        (denied, "may attach", "see cross-memory attach"),
        (network, "by ofi:tcp: messages", "unset STANDPIPE_TRANSPORT"),
        (near(Some("never"), None, None), "STANDPIPE_ATTACH=never", "unset STANDPIPE_ATTACH"),
        (of(refused(), Ok(())), "no table of grants: EINVAL", "Linux 5.1"),
        (of(Ok(()), refused()), "end: EINVAL", "set_robust_list"),
        (near(None, None, Some("never")), "STANDPIPE_TRACER=never", "STANDPIPE_TRACER=parent"),
        (near(None, Some("ranges"), None), "permits nobody", "Config::tracer"),
    ] {
        let told = find(&facts, "path: granted memory");
        assert!(told.value.contains("messages") && told.value.contains(why), "{told:?}");
        assert!(
            matches!(told.status, Status::Warn | Status::Info) && told.remedy.contains(remedy),
            "{told:?}"
        );
    }
}

#[test]
fn under_yama_a_grant_goes_by_the_kernel_between_those_whom_the_owner_permits() {
    for (tracer, by) in [
        (None, "in a job: cross-memory attach"),
        (Some("parent"), "the owner's parent has started"),
        (Some("4711"), "process 4711 has started"),
    ] {
        let told = find(&near(None, None, tracer), "path: granted memory");
        assert!(told.status == Status::Info && told.value.contains(by), "{told:?}");
        assert!(told.value.contains("messages") && told.value.contains("ptrace scope 1"), "{told:?}");
        assert!(
            told.remedy.contains("Tracer::Parent") && told.remedy.contains("STANDPIPE_TRACER"),
            "{told:?}"
        );
    }
}
