//! `score.h`: the environment in which SCore starts a program.

use std::ffi::{c_char, c_int};

use standpipe::{Node, Rank};

use super::names::pmContext;
use super::state::{COMPOSITE, layer, pmc_of, say};

/// Declares the variables of score.h.
macro_rules! variables {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[allow(non_upper_case_globals, reason = "its name in score.h")]
            // SAFETY: no other symbol of the process has this name, which is of the interface of PM and
            // SCore.
            #[unsafe(no_mangle)]
            pub static mut $name: c_int = 0;
        )*
    };
}

variables! {
    /// Networks: elements of [`score_pmnet`].
    score_num_pmnet;
    /// Hosts.
    score_num_host;
    /// This process's host, from 0.
    score_self_host;
    /// Processes on this host.
    score_num_proc;
    /// This process's number on its host, from 0.
    score_self_proc;
    /// Processes in all.
    score_num_node;
    /// This process's number, from 0.
    score_self_node;
}

/// The contexts that the program is given.
#[allow(non_upper_case_globals, reason = "its name in score.h")]
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub static mut score_pmnet: *mut *mut pmContext = std::ptr::null_mut();

/// What [`score_pmnet`] points to.
static mut NETS: [*mut pmContext; 2] = [std::ptr::null_mut(); 2];

/// `score_initialize`: see score.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn score_initialize(_argc: c_int, _argv: *mut *mut c_char) {
    let layer = &mut *layer();
    if layer.devices[COMPOSITE] {
        say(
            "score_initialize: the composite device is open already; call this once, and open no such device",
        );
        return;
    }
    // Where PM cannot be had the program cannot go on, and the reason has been said.
    if layer.open().is_err() {
        say("score_initialize: PM cannot be opened; start the program by `standpipe run`");
        std::process::exit(1);
    }
    layer.devices[COMPOSITE] = true;
    let opened = layer.open_context(COMPOSITE);
    let pm = layer.pm.as_ref().filter(|_| opened.is_ok());
    let Some(hosts) = pm.and_then(|pm| hosts_of(pm.node())) else {
        say("score_initialize: the other processes cannot be reached; see what ended them");
        std::process::exit(1);
    };
    let (rank, size) = pm.map(layers::pm::Pm::rank_and_size).unwrap_or_default();
    set(rank, size, hosts);
}

/// Numbers of hosts and of processes on this one: `num_host`, `self_host`, `num_proc`, `self_proc`.
type Hosts = [usize; 4];

/// Processes under one running kernel share a host; hosts are numbered by the first process of each.
fn hosts_of(node: &Node) -> Option<Hosts> {
    let mut all = vec![0; node.size() as usize];
    node.world_of("pm").ok()?.all_gather(&[kernel_of(node)], &mut all).ok()?;
    hosts_in(&all, node.rank() as usize)
}

/// Seen from one process, of all processes' kernels.
fn hosts_in(all: &[u64], own: usize) -> Option<Hosts> {
    let mut hosts: Vec<u64> = Vec::new();
    all.iter().for_each(|kernel| {
        if !hosts.contains(kernel) {
            hosts.push(*kernel);
        }
    });
    let host = hosts.iter().position(|kernel| *kernel == all[own])?;
    let here = |ranks: &[u64]| ranks.iter().filter(|kernel| **kernel == all[own]).count();
    Some([hosts.len(), host, here(all), here(&all[..own])])
}

/// The part of the kernel's random number that tells it from others; where that is hidden, processes that
/// share memory are told from others.
fn kernel_of(node: &Node) -> u64 {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = boot_id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    let nearest = || node.near_ranks().first().copied().unwrap_or_default();
    u64::from_str_radix(&digits, 16).unwrap_or_else(|_| nearest().into())
}

fn set(rank: Rank, size: u32, [num_host, self_host, num_proc, self_proc]: Hosts) {
    let int = |number: usize| c_int::try_from(number).unwrap_or(c_int::MAX);
    // SAFETY: the layer's lock is held, and by score.h the program reads these only after this call.
    unsafe {
        NETS[0] = pmc_of(COMPOSITE);
        score_pmnet = (&raw mut NETS).cast();
        score_num_pmnet = 1;
        score_num_host = int(num_host);
        score_self_host = int(self_host);
        score_num_proc = int(num_proc);
        score_self_proc = int(self_proc);
        score_num_node = int(size as usize);
        score_self_node = int(rank as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_by_their_first_processes() {
        let all = [30, 7, 30, 7, 9, 30];
        let seen: Vec<_> =
            (0..all.len()).map(|own| hosts_in(&all, own).expect("it is one of them")).collect();
        assert_eq!(
            seen,
            [[3, 0, 3, 0], [3, 1, 2, 0], [3, 0, 3, 1], [3, 1, 2, 1], [3, 2, 1, 0], [3, 0, 3, 2]]
        );
        assert_eq!(hosts_in(&[5], 0), Some([1, 0, 1, 0]));
    }
}
