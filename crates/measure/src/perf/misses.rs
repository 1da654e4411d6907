//! Puts that miss: their memory is not held here, though its owner has it registered still.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use standpipe::{Node, Remote};

use super::case::{Case, Samples};
use super::memory::{Shared, Theirs};
use super::timing::{each, timed};

/// What the ranks register by, and how much: 128 pages, of which one peer may hold three quarters.
pub(super) const SETTINGS: [(&str, &str); 2] =
    [("STANDPIPE_STRATEGY", "firehose"), ("STANDPIPE_PIN", "512K")];

/// Pages that are put to in turn: more than may be held, and few enough for all to stay registered. One more
/// is put to in between, for the limit. Those that hit, or that go by message as asking would not pay, are
/// left out.
const PAGES: usize = 110;

/// Samples, at most, and how long they are taken.
const SAMPLES: usize = 500;
const LONGEST: Duration = Duration::from_secs(10);

/// Bytes of the piece of memory that each lies in.
const PIECE: usize = 8192;

/// The case for memory that is shared.
const fn pieces(case: &Case) -> Case {
    Case { size: PIECE, n: PAGES + 1, ..*case }
}

/// A put to a page that must be asked for, beside a message and its reply and a put to one that need not.
///
/// # Errors
/// Whatever the library says; and if no put asked.
pub(super) fn measure(node: &Node, case: &Case, served: &AtomicU64) -> Result<Option<Samples>> {
    ensure!(node.size() == 2, "misses are measured between two processes");
    ensure!(
        node.provider().is_some(),
        "misses are measured over a network: nothing is registered within a host"
    );
    let shared = Shared::new(node, &pieces(case))?;
    if node.rank() == 1 {
        node.barrier()?;
        ensure!(shared.private.len() == PAGES + 1, "the memory is still there");
        return Ok(None);
    }
    let theirs = Theirs::find(node, 1)?;
    let places = theirs.private(node, PAGES + 1)?;
    // Half of a piece on, each word lies on a page of its own.
    let (held, asked) = places.split_first().context("there is one more")?;
    let (held, asked): (Remote, Vec<Remote>) =
        (held.plus(PIECE as u64 / 2), asked.iter().map(|place| place.plus(PIECE as u64 / 2)).collect());
    let (bytes, ping) = (vec![3; case.size], node.handler("ping").context("registered at open")?);
    let mut turn = (0..PAGES).cycle();
    let mut put = || node.put_bytes(asked[turn.next().unwrap_or_default()], &bytes);
    // All are registered once before anything is measured.
    (0..2 * PAGES).try_for_each(|_| put())?;
    let (mut ours, mut limit, begun) = (Vec::new(), Vec::new(), Instant::now());
    while ours.len() < SAMPLES && begun.elapsed() < LONGEST {
        let asked_before = node.registrations().moves;
        let took = timed(1, |_| put())?;
        if node.registrations().moves == asked_before {
            continue;
        }
        ours.push(each(took, 1));
        let took = timed(1, |_| -> Result<()> {
            let wanted = served.load(Ordering::Relaxed) + 1;
            node.request(1, ping, [0; 4])?;
            node.wait_until(|| served.load(Ordering::Relaxed) >= wanted)?;
            Ok(node.put_bytes(held, &bytes)?)
        })?;
        limit.push(each(took, 1));
    }
    ensure!(!ours.is_empty(), "no put has asked for its memory in {} s", LONGEST.as_secs());
    node.barrier()?;
    Ok(Some(Samples::new("a message and its reply, and a put to memory that is held", 1, ours, limit)))
}
