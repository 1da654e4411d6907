//! Messages that are tried, and payloads that are kept, beside the same by requests that wait and handlers
//! that only look.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use standpipe::Node;

use super::case::{Case, Samples};
use super::timing::{ROUNDS, TURNS, each};

/// Requests that are tried, there and back, beside requests.
///
/// # Errors
/// Whatever the library says.
pub(super) fn tried(node: &Node, served: &AtomicU64) -> Result<Option<Samples>> {
    let ping = node.handler("ping").context("registered at open")?;
    in_turn(
        node,
        served,
        "the same by requests that wait",
        |turn| {
            while !node.try_request(1, ping, [turn; 4])? {
                node.progress();
            }
            Ok(())
        },
        |turn| Ok(node.request(1, ping, [turn; 4])?),
    )
}

/// Requests whose handler keeps their payload, there and back, beside those whose handler only looks.
///
/// # Errors
/// Whatever the library says.
pub(super) fn kept(node: &Node, case: &Case, served: &AtomicU64) -> Result<Option<Samples>> {
    let (ping, keep) = (node.handler("ping"), node.handler("keep"));
    let (ping, keep) = (ping.context("registered at open")?, keep.context("registered at open")?);
    let payload = vec![5; case.size];
    in_turn(
        node,
        served,
        "the same where the handler only looks",
        |turn| Ok(node.request_medium(1, keep, [turn; 4], &payload)?),
        |turn| Ok(node.request_medium(1, ping, [turn; 4], &payload)?),
    )
}

/// Rank 0 asks in both ways, in turn; both are served alike.
fn in_turn(
    node: &Node,
    served: &AtomicU64,
    name: &str,
    ours: impl Fn(u64) -> Result<()>,
    limit: impl Fn(u64) -> Result<()>,
) -> Result<Option<Samples>> {
    ensure!(node.size() == 2, "messages are measured between two processes");
    node.connect(1 - node.rank())?;
    let (mut mine, mut bare) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS as u64 {
        let mut took = [Duration::ZERO; 2];
        for half in 0..2 {
            node.barrier()?;
            let before = (2 * round + half) * u64::from(TURNS);
            let begun = Instant::now();
            if node.rank() == 0 {
                for turn in 0..u64::from(TURNS) {
                    if half == 0 { ours(turn) } else { limit(turn) }?;
                    node.wait_until(|| served.load(Ordering::Relaxed) > before + turn)?;
                }
            } else {
                node.wait_until(|| served.load(Ordering::Relaxed) >= before + u64::from(TURNS))?;
            }
            took[half as usize] = begun.elapsed();
        }
        if round > 0 {
            mine.push(each(took[0], TURNS));
            bare.push(each(took[1], TURNS));
        }
    }
    Ok((node.rank() == 0).then(|| Samples::new(name, TURNS, mine, bare)))
}
