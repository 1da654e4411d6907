//! Providers that misbehave unless libfabric is told something by its environment, which it reads when it is
//! loaded.
//!
//! Setting variables of a process that has threads is not safe, so whoever starts processes sets them:
//! `standpipe run` does. Under other launchers the user must, and is told when an endpoint is opened.

use std::ffi::OsString;

use fabric::Description;

/// One thing to tell, and why.
struct Workaround {
    /// Whose name begins with this.
    provider: &'static str,
    variable: &'static str,
    value: fn(ranks: u32) -> u32,
    why: &'static str,
}

/// Registered memory that libfabric remembers by itself.
const CACHE: &str = "FI_MR_CACHE_MAX_COUNT";

const WORKAROUNDS: [Workaround; 3] = [
    Workaround {
        provider: "verbs;ofi_rxm",
        variable: "FI_UNIVERSE_SIZE",
        value: |ranks| ranks.max(16),
        why: "its completion queues grow with it, and the 256 that it takes for granted are more than small devices, such \
              as soft-RoCE, can have: no endpoint opens there",
    },
    Workaround {
        provider: "verbs;ofi_rxm",
        variable: "FI_OFI_RXM_USE_SRX",
        value: |_| 1,
        why: "without shared receive queues 1.17 puts a buffer back into the queue of a connection that it has just closed \
              when a message comes while an endpoint closes, and the process dies of it",
    },
    Workaround {
        provider: "verbs",
        variable: CACHE,
        value: |_| 0,
        why: "libfabric keeps registrations in a cache of its own, which does not hear of all changes of memory \
              (mremap onto it, for one), and would move bytes of before; as long as it may, nothing is registered",
    },
];

/// Whether what this provider registers may be what was registered before, of other memory.
pub(crate) fn may_mistake_memory(description: &Description) -> bool {
    may_mistake(description.mr_mode.is_free(), std::env::var_os(CACHE))
}

fn may_mistake(free: bool, most: Option<OsString>) -> bool {
    !free && most.is_none_or(|most| most != "0")
}

/// The end of the names of providers over rxm.
const OVER: &str = ";ofi_rxm";

/// Variables by which the user makes rxm's buffers smaller.
const BUFFERS: [&str; 2] = ["FI_OFI_RXM_BUFFER_SIZE", "FI_OFI_RXM_EAGER_LIMIT"];

/// The variable, and its value, by which rxm would cut messages of `bytes` into pieces. With libfabric 1.17
/// and buffers of 8,192 bytes the conformance suite died of a corrupted heap when a peer was lost; with 8,400
/// it passed. The other variable was not tried.
pub(crate) fn cuts_messages(provider: &str, bytes: usize) -> Option<(&'static str, String)> {
    cuts(provider, bytes, crate::base::environment::variable)
}

/// Whether this is a provider over rxm that cannot do with buffers that are enough for `tcp`.
pub(crate) fn needs_buffers(provider: &str) -> bool {
    provider.ends_with(OVER) && !provider.starts_with("tcp")
}

fn cuts(
    provider: &str,
    bytes: usize,
    set: impl Fn(&str) -> Option<String>,
) -> Option<(&'static str, String)> {
    let small = |value: &String| value.trim().parse::<usize>().is_ok_and(|value| value < bytes);
    let cuts = |name: &'static str| Some((name, set(name).filter(small)?));
    BUFFERS.into_iter().filter(|_| provider.ends_with(OVER)).find_map(cuts)
}

/// The variables to add to the environment of the processes of a job, beside those that the user has set.
pub(crate) fn environment(ranks: u32) -> Vec<(&'static str, String)> {
    missing(|name| std::env::var_os(name))
        .map(|workaround| (workaround.variable, (workaround.value)(ranks).to_string()))
        .collect()
}

/// Says what this process lacks for a provider that it is about to open.
pub(crate) fn warn(provider: &str) {
    for workaround in
        missing(|name| std::env::var_os(name)).filter(|workaround| provider.starts_with(workaround.provider))
    {
        let Workaround { variable, why, .. } = workaround;
        let value = (workaround.value)(0);
        tracing::warn!(provider, "set {variable}={value} in the environment of every process: {why}");
    }
}

fn missing(set: impl Fn(&str) -> Option<OsString>) -> impl Iterator<Item = &'static Workaround> {
    WORKAROUNDS.iter().filter(move |workaround| set(workaround.variable).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_has_set_stays() {
        let names = |set: &'static str| -> Vec<&str> {
            missing(|name| (name == set).then(OsString::new)).map(|workaround| workaround.variable).collect()
        };
        assert_eq!(names("HOME"), ["FI_UNIVERSE_SIZE", "FI_OFI_RXM_USE_SRX", CACHE]);
        assert_eq!(names("FI_UNIVERSE_SIZE"), ["FI_OFI_RXM_USE_SRX", CACHE]);
    }

    #[test]
    fn a_cache_that_may_be_there_is_mistrusted_where_memory_is_pinned() {
        let most = |text: &str| Some(OsString::from(text));
        assert!(may_mistake(false, None) && may_mistake(false, most("1024")) && may_mistake(false, most("")));
        assert!(!may_mistake(false, most("0")) && !may_mistake(true, None));
    }

    #[test]
    fn buffers_that_are_too_small_for_messages_are_found() {
        for name in BUFFERS {
            let found = |provider, value: &str| {
                cuts(provider, 8288, |asked| (asked == name).then(|| value.to_owned())).map(|(name, _)| name)
            };
            for small in ["8287", "0", " 64 "] {
                assert_eq!(found("tcp;ofi_rxm", small), Some(name), "{small}");
                assert_eq!(found("net", small), None, "it has no such buffers");
            }
            for enough in ["8288", "16384", "", "many"] {
                assert_eq!(found("verbs;ofi_rxm", enough), None, "{enough}");
            }
        }
    }

    #[test]
    fn buffers_that_are_small_for_tcp_are_refused_to_others_over_rxm() {
        assert!(["sockets;ofi_rxm", "verbs;ofi_rxm", "net;ofi_rxm"].into_iter().all(needs_buffers));
        assert!(!["tcp;ofi_rxm", "tcp", "sockets", "udp;ofi_rxd"].into_iter().any(needs_buffers));
    }

    #[test]
    fn large_jobs_say_how_large_they_are() {
        assert_eq!([(WORKAROUNDS[0].value)(2), (WORKAROUNDS[0].value)(1000)], [16, 1000]);
    }
}
