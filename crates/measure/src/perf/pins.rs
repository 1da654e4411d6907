//! Memory that is pinned, or granted, again and again. A pin's registration is kept in between, as room is
//! not needed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use standpipe::{Audience, GrantError, Node, Rights};

use super::case::{Case, Samples};
use super::timing::{each, interleave, timed};
use crate::bare;

/// Settings by which the ranks register memory.
pub(super) const SETTINGS: [(&str, &str); 1] = [("STANDPIPE_STRATEGY", "firehose")];

/// The limit of both.
const LIMIT: &str = "mlock and munlock of as much";

/// How long it takes to lock and unlock these pages so often.
fn locked(pages: &bare::LockablePages, times: u32) -> Result<Duration> {
    let locked = (0..times).map(|_| pages.lock_and_unlock().map(|(locked, unlocked)| locked + unlocked));
    locked.sum::<Result<Duration, _>>().context("the kernel locks no memory; see `ulimit -l`")
}

/// A pin of private memory, and its end, beside the same by the kernel.
///
/// # Errors
/// The library's and the kernel's errors, and one where nothing is registered.
pub(super) fn measure(node: &Node, case: &Case) -> Result<Option<Samples>> {
    ensure!(
        node.provider().is_some(),
        "pins are measured over a network: nothing is registered within a host"
    );
    if node.rank() != 0 {
        node.barrier()?;
        return Ok(None);
    }
    let buffer = vec![1_u8; case.size];
    let pages = bare::LockablePages::new(case.size.div_ceil(4096))?;
    let ours = |times| timed(times, |_| node.pin(&buffer[..]).map(drop));
    let samples = interleave(LIMIT, ours, |times| locked(&pages, times))?;
    node.barrier()?;
    Ok(Some(samples))
}

/// A grant of private memory, its revocation, and the look whether anybody uses it, beside what it takes to
/// register as much.
///
/// # Errors
/// The library's and the kernel's errors.
pub(super) fn granted(node: &Node, case: &Case) -> Result<Option<Samples>> {
    if node.rank() != 0 {
        node.barrier()?;
        return Ok(None);
    }
    let mut buffer = vec![1_u8; case.size];
    let pages = bare::LockablePages::new(case.size.div_ceil(4096))?;
    let mut grant = || {
        let mut grant = node.grant(std::mem::take(&mut buffer), Rights::ReadWrite, Audience::ALL)?;
        grant.revoke()?;
        buffer = grant.wait_idle(Duration::ZERO)?;
        Ok::<(), GrantError>(())
    };
    let ours = |times| timed(times, |_| grant());
    let samples = interleave(LIMIT, ours, |times| locked(&pages, times))?;
    node.barrier()?;
    Ok(Some(samples))
}

/// The limit of a list of grants, for each.
const SHARE_LIMIT: &str = "set: 100 ns";
const SHARE_LIMIT_NS: f64 = 100.0;

/// Lists that are granted, one after the other.
const LISTS: usize = 15;

/// Grants each of a list by one call, and takes them back, which is not measured. The first list also says
/// what memory grants take: handles, what the node keeps, and what it shows its peers.
///
/// # Errors
/// The library's errors, and one where the system does not tell the process's memory.
pub(super) fn shared(node: &Node, case: &Case) -> Result<Option<Samples>> {
    static PIECE: [u8; 64] = [1; 64];
    let (mut ours, mut bytes_each) = (Vec::new(), None);
    for _ in 0..LISTS {
        let before = resident_bytes()?;
        let start = Instant::now();
        let grants = node.share_many((0..case.n).map(|_| &PIECE[..]), Audience::ALL)?;
        ours.push(each(start.elapsed(), u32::try_from(case.n)?));
        let taken = resident_bytes()?.saturating_sub(before) as f64;
        bytes_each.get_or_insert(taken / grants.len() as f64);
    }
    let limit = vec![SHARE_LIMIT_NS; ours.len()];
    Ok(Some(Samples { bytes_each, ..Samples::new(SHARE_LIMIT, u32::try_from(case.n)?, ours, limit) }))
}

/// This process's memory that is there: its own, and what it shares and has touched.
fn resident_bytes() -> Result<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").context("/proc/self/statm")?;
    let pages: usize = text.split(' ').nth(1).context("/proc/self/statm has no second number")?.parse()?;
    Ok(pages * rustix::param::page_size())
}
