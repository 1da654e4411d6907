//! A rank of a live study. Rank 0 does what it is told on standard input, and tells on standard output what
//! that took; rank 1 owns the memory.

use std::{
    io,
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use measure::bare;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use standpipe::{Config, HandlerId, Node, Remote};

use super::case::{Answer, Case, Owner, Puts};
use measure::job_config;
use measure::json_lines::{decode, tell};

/// What a rank is told beforehand.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Bytes of the memory that is put to.
    pub(super) bytes: u64,
    /// Bytes of the longest write by bare libfabric; 0: there are none.
    pub(super) written: usize,
}

/// Runs a rank until rank 0's standard input ends.
///
/// # Errors
/// If the job cannot be joined, an operation fails, or a put did not arrive.
pub(super) fn run(args: Memory) -> Result<ExitCode> {
    let heard = Arc::new(Heard::default());
    let node = Node::open(heard.handlers(job_config::config()?.timeout(PATIENCE)))
        .context("joining the study's job")?;
    let provider = node.provider().context("a live study is over a network")?;
    let open = || bare::Wire::open(&provider, args.written);
    let mut wire = (args.written > 0).then(open).transpose()?;
    if node.rank() == 1 {
        own(&node, wire.as_mut(), args.bytes, &heard)?;
    } else {
        Initiator::join(&node, wire, args.bytes, &heard)?.serve()?;
    }
    node.barrier()?;
    Ok(ExitCode::SUCCESS)
}

/// What handlers have heard.
#[derive(Debug, Default)]
struct Heard {
    pongs: AtomicU64,
    counted: Mutex<Option<Owner>>,
    /// Whether the owner may go.
    ended: AtomicBool,
}

impl Heard {
    fn handlers(self: &Arc<Self>, config: Config) -> Config {
        let [pongs, counts, ended] = std::array::from_fn(|_| Arc::clone(self));
        config
            .handler("ping", |call| {
                let pong = call.node().handler("pong").expect("registered below");
                call.reply(pong, [0; 4]).expect("the requester waits for the reply");
            })
            .handler("pong", move |_| {
                pongs.pongs.fetch_add(1, Ordering::Release);
            })
            .handler("count", |call| {
                let words = owned(&call.node()).to_words();
                let counted = call.node().handler("counted").expect("registered below");
                call.reply_medium(counted, [0; 4], bytemuck::bytes_of(&words)).expect("the requester waits");
            })
            .handler("counted", move |call| {
                let words = bytemuck::try_pod_read_unaligned(call.payload()).ok();
                *counts.counted.lock().unwrap_or_else(PoisonError::into_inner) = words.map(Owner::from_words);
            })
            .handler("end", move |_| ended.ended.store(true, Ordering::Release))
    }
}

/// What this process has counted of its own memory.
fn owned(node: &Node) -> Owner {
    let table = node.registrations().table;
    Owner {
        registrations: table.registrations,
        found: table.hits,
        evictions: table.evictions,
        registered_bytes: table.pinned,
        registered_peak_bytes: table.pinned_peak,
        pinned_bytes: pinned_bytes(&std::fs::read_to_string("/proc/self/status").unwrap_or_default()),
    }
}

/// The amount of pinned memory in a process's status.
fn pinned_bytes(status: &str) -> u64 {
    let kib = status.lines().find_map(|line| line.strip_prefix("VmPin:")?.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Owns memory, for as long as rank 0 wants it.
fn own(node: &Node, wire: Option<&mut bare::Wire>, bytes: u64, heard: &Heard) -> Result<()> {
    let place = memory(bytes)?.as_ptr().expose_provenance() as u64;
    node.directory().publish(PLACE, &place.to_ne_bytes())?;
    let ended = || heard.ended.load(Ordering::Acquire) || !node.lost_peers().is_empty();
    let Some(wire) = wire else { return Ok(node.within(FOREVER).wait_until(ended)?) };
    node.directory().publish(WIRE, &wire.card())?;
    std::thread::scope(|scope| {
        let served = scope.spawn(|| wire.serve(ended));
        let waited = node.within(FOREVER).wait_until(ended);
        heard.ended.store(true, Ordering::Release);
        served.join().expect("it does not panic")?;
        Ok(waited?)
    })
}

/// Words of memory that begin where a put of the longest kind may begin, and that are never given back:
/// whatever a peer does at whatever time, they stay words.
fn memory(bytes: u64) -> Result<&'static [AtomicU64]> {
    let words = usize::try_from(bytes + ALIGNED)? / WORD;
    // Not zero, so that all pages are there.
    let memory: &'static [AtomicU64] = (0..words).map(|_| AtomicU64::new(1)).collect::<Vec<_>>().leak();
    Ok(&memory[to_aligned(memory.as_ptr().addr())..])
}

/// Words from an address on to where a put of the longest kind may begin.
fn to_aligned(addr: usize) -> usize {
    (addr.next_multiple_of(ALIGNED as usize) - addr) / WORD
}

/// Rank 0.
struct Initiator<'a> {
    node: &'a Node,
    heard: &'a Heard,
    wire: Option<bare::Wire>,
    /// Where the owner's memory lies.
    place: u64,
    /// Memory that puts come from, from this word on.
    source: Vec<u64>,
    begins: usize,
    /// Puts so far, the last one included: what the next one carries.
    puts: u64,
}

impl<'a> Initiator<'a> {
    fn join(node: &'a Node, mut wire: Option<bare::Wire>, bytes: u64, heard: &'a Heard) -> Result<Self> {
        if let Some(wire) = &mut wire {
            wire.meet(&node.directory().wait(WIRE, PATIENCE)?)?;
        }
        let place = node.directory().wait(PLACE, PATIENCE)?;
        let place = bytemuck::try_pod_read_unaligned(&place).ok().context("where the owner's memory lies")?;
        let source = vec![1; usize::try_from(bytes + 2 * ALIGNED)? / WORD];
        let begins = to_aligned(source.as_ptr().addr());
        Ok(Self { node, heard, wire, place, source, begins, puts: 0 })
    }

    /// Does what comes on standard input, line by line.
    fn serve(&mut self) -> Result<()> {
        for line in io::stdin().lines() {
            let line = line.context("standard input")?;
            let case = decode(&line).with_context(|| format!("no case: {line}"))?;
            tell(&self.answer(&case)?)?;
        }
        Ok(self.node.request(1, self.handler("end"), [0; 4])?)
    }

    fn answer(&mut self, case: &Case) -> Result<Answer> {
        Ok(match *case {
            Case::Random { len, working_set, puts, seed } => {
                Answer::Puts(self.random(len, working_set, puts, seed)?)
            }
            Case::Mixture { len, hits, places, puts } => Answer::Puts(self.mixture(len, hits, places, puts)?),
            Case::RoundTrips { payload, times } => Answer::Took(self.round_trips(payload, times)?),
            Case::Writes { len, times } => {
                Answer::Took(self.wire()?.write(len, times)?.as_nanos() as f64 / f64::from(times))
            }
            Case::Registrations { pages, times } => {
                let wire = self.wire()?;
                let (register, deregister) = wire.register(pages, times)?;
                Answer::Registered {
                    register_ns: median_ns(register),
                    deregister_ns: median_ns(deregister),
                    locally_free: wire.is_locally_free(),
                }
            }
        })
    }

    fn random(&mut self, len: u64, working_set: u64, puts: u64, seed: u64) -> Result<Puts> {
        ensure!(
            (8..=ALIGNED).contains(&len) && len.is_multiple_of(8) && puts > 0,
            "{puts} puts of {len} bytes"
        );
        let stride = len.max(PAGE_BYTES);
        let places = working_set / stride;
        for place in 0..places {
            self.put(0, place * stride, len)?;
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        self.timed(puts, |initiator| {
            let to = rng.random_range(0..places) * stride;
            initiator.put(0, to, len)?;
            Ok(to)
        })
    }

    fn mixture(&mut self, len: u64, hits: u64, places: u64, puts: u64) -> Result<Puts> {
        ensure!(len.is_multiple_of(WORD as u64), "puts of {len} bytes");
        ensure!(hits <= 100 && places > 0 && puts > 0, "{puts} puts, of which {hits} % hit, {places} places");
        let mut next = 0;
        let mut place = |index: u64| {
            let hit = (index + 1) * hits / 100 > index * hits / 100;
            next += u64::from(!hit);
            if hit { 0 } else { (1 + (next - 1) % places) * len }
        };
        for index in 0..(places * 100).checked_div(100 - hits).unwrap_or(1) {
            let at = place(index);
            self.put(at, at, len)?;
        }
        let mut index = 0;
        self.timed(puts, |initiator| {
            let at = place(index);
            index += 1;
            initiator.put(at, at, len)?;
            Ok(at)
        })
    }

    /// Times puts, each of which says where it went.
    fn timed(&mut self, puts: u64, mut put: impl FnMut(&mut Self) -> Result<u64>) -> Result<Puts> {
        let (mine, before) = (self.node.registrations(), self.count()?);
        let (begun, mut last) = (Instant::now(), 0);
        for _ in 0..puts {
            last = put(self)?;
        }
        let mean_ns = begun.elapsed().as_nanos() as f64 / puts as f64;
        let (after, owner) = (self.node.registrations(), self.count()?.since(before));
        self.check(last)?;
        Ok(Puts { mean_ns, puts, misses: after.misses - mine.misses, owner })
    }

    /// Puts from so many bytes into this process's memory to as many into the owner's.
    fn put(&mut self, from: u64, to: u64, len: u64) -> Result<()> {
        self.puts += 1;
        let first = self.begins + from as usize / WORD;
        self.source[first] = self.puts;
        let source = &self.source[first..first + len as usize / WORD];
        Ok(self.node.put_bytes(theirs(self.place + to), bytemuck::cast_slice(source))?)
    }

    /// Sees that the last put arrived there.
    fn check(&self, to: u64) -> Result<()> {
        let mut found = [0; WORD];
        self.node.get_bytes(theirs(self.place + to), &mut found)?;
        let found = u64::from_ne_bytes(found);
        ensure!(found == self.puts, "put {} left {found} at its target", self.puts);
        Ok(())
    }

    fn round_trips(&self, payload: usize, times: u32) -> Result<f64> {
        let (ping, payload) = (self.handler("ping"), vec![7; payload]);
        let pongs = || self.heard.pongs.load(Ordering::Acquire);
        let begun = Instant::now();
        for _ in 0..times {
            let wanted = pongs() + 1;
            match payload.len() {
                0 => self.node.request(1, ping, [0; 4])?,
                _ => self.node.request_medium(1, ping, [0; 4], &payload)?,
            }
            self.node.wait_until(|| pongs() >= wanted)?;
        }
        Ok(begun.elapsed().as_nanos() as f64 / f64::from(times))
    }

    fn wire(&mut self) -> Result<&mut bare::Wire> {
        self.wire.as_mut().context("this job has no endpoint for bare libfabric")
    }

    /// What the owner has counted.
    fn count(&self) -> Result<Owner> {
        let counted = || self.heard.counted.lock().unwrap_or_else(PoisonError::into_inner);
        self.node.request(1, self.handler("count"), [0; 4])?;
        self.node.wait_until(|| counted().is_some())?;
        counted().take().context("the owner's counters")
    }

    fn handler(&self, name: &str) -> HandlerId {
        self.node.handler(name).expect("registered at open")
    }
}

/// Memory of the owner's.
fn theirs(addr: u64) -> Remote {
    // SAFETY: it lies in the owner's memory, atomic words that stay until that process ends, and mean
    // nothing.
    unsafe { Remote::raw(1, addr) }
}

fn median_ns(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_nanos() as f64)
}

const PAGE_BYTES: u64 = 4096;
const WORD: usize = size_of::<u64>();
/// The longest put to a place at random, and where arrays begin.
const ALIGNED: u64 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than any study.
const FOREVER: Duration = Duration::from_secs(24 * 3600);
const PLACE: &str = "study: memory";
const WIRE: &str = "study: wire";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_memory_is_found_in_a_status() {
        assert_eq!(pinned_bytes("VmLck:\t 3 kB\nVmPin:\t     12 kB\nVmHWM: 9 kB\n"), 12 << 10);
        assert_eq!(pinned_bytes("VmLck:\t 3 kB\n"), 0);
    }

    #[test]
    fn memory_begins_where_a_long_put_may() {
        let words = memory(256 << 10).expect("memory");
        assert!(words.len() >= 32 << 10 && (words.as_ptr().addr() as u64).is_multiple_of(ALIGNED));
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median_ns([9, 1, 5].map(Duration::from_nanos).to_vec()), 5.0);
    }
}
