//! Messages that one process sends as fast as it can, or both do, until the other has run the last handler.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use standpipe::{Config, GlobalPtr, HandlerId, Node, host};

use super::case::{Case, Samples};
use super::flow::{Flow, Ways};
use super::memory::{LINES_NOTE, PATIENCE, Shared, Theirs, slot_bytes};
use super::timing::each;
use crate::bare::{self, Due, Frames, Lines, Slots, Wire};

/// Rounds, each a flood of ours and one of the limit's; and where several threads send.
const ROUNDS: u64 = 40;
/// See [`ROUNDS`].
const ROUNDS_OF_THREADS: u64 = 8;

/// Bytes of the messages of a round, headers included, and how many these are at least and at most.
const ROUND_BYTES: usize = 8 << 20;
const LEAST: usize = 64;
const MOST: usize = 20_000;

/// Times as many where several threads send. The system lets them run in turns of milliseconds: each is to
/// have many, or the fastest thread would be the one whose turn came first.
const THREADS_TIMES: usize = 100;

/// Notes that say whether the slots are full.
const FLAGS: [usize; 2] = [8, 9];

/// Counts of the messages that have come here, and of this side's that the other has acknowledged.
#[derive(Debug, Default)]
pub(super) struct Counts {
    arrived: AtomicU64,
    acknowledged: AtomicU64,
    /// Cores for threads that send: all but the receiver's.
    cores: Vec<usize>,
}

thread_local! {
    /// Where handlers copy payloads to.
    static TAKEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Counts {
    /// Nothing yet; made before this process is bound to a core.
    pub(super) fn new(case: &Case) -> Counts {
        let mut cores = host::core_numbers();
        let receiver = case.pair().map(|[_, receiver]| receiver);
        cores.retain(|core| Some(*core) != receiver);
        Counts { cores, ..Counts::default() }
    }

    /// Adds the handlers of a flood.
    pub(super) fn handle(self: &Arc<Counts>, config: Config, case: &Case) -> Config {
        let (at_receiver, at_sender) = (Arc::clone(self), Arc::clone(self));
        let copies = case.flow.is_some_and(|flow| flow.copies);
        let told = OnceLock::new();
        config
            .handler("flood", move |call| {
                let [last, once_in, ..] = call.args();
                if copies {
                    TAKEN.with_borrow_mut(|taken| {
                        taken.resize(call.payload_len(), 0);
                        call.read_payload(0, taken).expect("as long as the payload");
                        std::hint::black_box(taken);
                    });
                }
                let arrived = at_receiver.arrived.load(Ordering::Relaxed) + 1;
                at_receiver.arrived.store(arrived, Ordering::Release);
                if arrived == last || once_in > 0 && arrived.is_multiple_of(once_in) {
                    let told =
                        *told.get_or_init(|| call.node().handler("flooded").expect("registered below"));
                    call.reply(told, [arrived, 0, 0, 0]).expect("the sender waits for it");
                }
            })
            .handler("flooded", move |call| {
                at_sender.acknowledged.store(call.args()[0], Ordering::Release);
            })
    }
}

/// A flood beside the machine's own.
///
/// # Errors
/// The library's errors.
pub(super) fn measure(node: &Node, case: &Case, counts: &Arc<Counts>) -> Result<Option<Samples>> {
    ensure!(node.size() == 2, "floods are measured between two processes");
    let flow = case.flow.context("a flood has a flow")?;
    let (shared, first) = (Shared::new(node, case)?, node.rank() == 0);
    node.connect(1 - node.rank())?;
    let (times, rounds) = if flow.threads > 1 { (THREADS_TIMES, ROUNDS_OF_THREADS) } else { (1, ROUNDS) };
    let messages = times * (ROUND_BYTES / (case.size + 64)).clamp(LEAST, MOST);
    let messages = u32::try_from(messages.next_multiple_of(flow.threads))?;
    let ours = Ours::new(node, case, flow, counts, messages)?;
    let mut limit = Limit::new(node, case, flow, &shared)?;
    let (mut mine, mut bare) = (Vec::new(), Vec::new());
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        node.barrier()?;
        let (took, threads) = ours.round(round)?;
        node.barrier()?;
        let limit_took = limit.round(node, messages)?;
        if round > 0 {
            mine.push(each(took, messages));
            bare.push(each(limit_took, messages));
            for (rates, took) in rates.iter_mut().zip(threads) {
                rates.push(each(took, messages / flow.threads as u32));
            }
        }
    }
    let samples = Samples::new(limit.name, messages, mine, bare);
    let samples = if flow.threads > 1 { samples.of_threads(rates) } else { samples };
    Ok(first.then_some(samples))
}

/// A flood of ours.
struct Ours<'a> {
    node: &'a Node,
    flow: Flow,
    counts: &'a Counts,
    handler: HandlerId,
    payload: Vec<u8>,
    messages: u32,
}

impl Ours<'_> {
    fn new<'a>(
        node: &'a Node,
        case: &Case,
        flow: Flow,
        counts: &'a Counts,
        messages: u32,
    ) -> Result<Ours<'a>> {
        let handler = node.handler("flood").context("registered at open")?;
        Ok(Ours { node, flow, counts, handler, payload: vec![5; case.size], messages })
    }

    /// Times of the whole and of its fastest and slowest threads.
    fn round(&self, round: u64) -> Result<(Duration, [Duration; 2])> {
        let last = (round + 1) * u64::from(self.messages);
        let sends = self.node.rank() == 0 || self.flow.ways == Ways::Both;
        let receives = self.node.rank() == 1 || self.flow.ways == Ways::Both;
        let begun = Instant::now();
        let mut threads = [Duration::ZERO; 2];
        if sends {
            threads = self.send(round)?;
            self.node.wait_until(|| self.counts.acknowledged.load(Ordering::Acquire) >= last)?;
        }
        if receives {
            self.node.wait_until(|| self.counts.arrived.load(Ordering::Acquire) >= last)?;
        }
        Ok((begun.elapsed(), threads))
    }

    fn send(&self, round: u64) -> Result<[Duration; 2]> {
        let before = round * u64::from(self.messages);
        let ticket = AtomicU64::new(before);
        let threads = self.flow.threads;
        if threads == 1 {
            return self.send_part(self.messages, before, &ticket).map(|took| [took; 2]);
        }
        let start = Barrier::new(threads);
        let cores = &self.counts.cores;
        let send = |thread: usize| {
            let bound =
                cores.get(thread % cores.len().max(1)).map_or(Ok(()), |core| host::bind_to_core(*core));
            start.wait();
            bound?;
            self.send_part(self.messages / threads as u32, before, &ticket)
        };
        let times = std::thread::scope(|scope| {
            let send = &send;
            let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || send(thread))).collect();
            let ended = running.into_iter().map(|thread| thread.join().expect("no panic"));
            ended.collect::<Result<Vec<Duration>>>()
        })?;
        let least = times.iter().min().copied().unwrap_or_default();
        Ok([least, times.iter().max().copied().unwrap_or_default()])
    }

    /// One thread's part.
    fn send_part(&self, messages: u32, before: u64, ticket: &AtomicU64) -> Result<Duration> {
        let last = before + u64::from(self.messages);
        let once_in = match self.flow.window {
            _ if self.flow.reply => 1,
            Some(window) => window.div_ceil(2),
            None => 0,
        };
        let args = [last, once_in, 0, 0];
        let begun = Instant::now();
        for _ in 0..messages {
            if let Some(window) = self.flow.window {
                let mine = ticket.fetch_add(1, Ordering::Relaxed);
                self.node.wait_until(|| mine < self.counts.acknowledged.load(Ordering::Acquire) + window)?;
            }
            match self.payload.len() {
                0 => self.node.request(1 - self.node.rank(), self.handler, args)?,
                _ => self.node.request_medium(1 - self.node.rank(), self.handler, args, &self.payload)?,
            }
        }
        Ok(begun.elapsed())
    }
}

/// The machine's own flood.
struct Limit {
    name: &'static str,
    way: Way,
    flow: Flow,
    payload: Vec<u8>,
}

enum Way {
    /// Short messages in one process's heap.
    Lines(Lines),
    /// Payloads in each process's heap: those that this one fills, and those that it empties.
    Slots { out: Box<Slots>, incoming: Box<Slots> },
    /// Frames of so many messages and bytes.
    Frames { wire: Box<Wire>, messages: u32, bytes: usize },
}

impl Limit {
    fn new(node: &Node, case: &Case, flow: Flow, shared: &Shared) -> Result<Limit> {
        let (rank, other) = (node.rank(), 1 - node.rank());
        let theirs = Theirs::find(node, other)?;
        let made = |name, way| Ok(Limit { name, way, flow, payload: vec![3; case.size] });
        if let Some(provider) = node.provider() {
            let (messages, bytes) = flow.frame(case.size);
            let mut wire = Wire::open(&provider, Frames::memory(bytes))?;
            node.directory().publish(&format!("perf wire {rank}"), &wire.card())?;
            wire.meet(&node.directory().wait(&format!("perf wire {other}"), PATIENCE)?)?;
            return made("frames sent by libfabric", Way::Frames { wire: Box::new(wire), messages, bytes });
        }
        let note = |index: usize| shared.words.ptr(8 * index);
        if case.size == 0 {
            let at = if rank == 0 { theirs.note(LINES_NOTE) } else { note(LINES_NOTE) };
            return made("a ring of cache lines between two processes", Way::Lines(Lines::new(node, at)?));
        }
        let apart = slot_bytes(case.size);
        let slots = |flags: [GlobalPtr<u64>; 2], heap: GlobalPtr<u8>| {
            Slots::new(node, flags, [heap, heap.add(apart)], case.size)
        };
        let out = Box::new(slots(FLAGS.map(|index| theirs.note(index)), theirs.heap)?);
        let incoming = Box::new(slots(FLAGS.map(note), shared.heap.ptr(0))?);
        made("memcpy in and out of two slots, by two processes", Way::Slots { out, incoming })
    }

    /// The time of so many messages.
    fn round(&mut self, node: &Node, messages: u32) -> Result<Duration> {
        let both = self.flow.ways == Ways::Both;
        let (sends, receives) = (node.rank() == 0 || both, node.rank() == 1 || both);
        let count = |does: bool| if does { messages } else { 0 };
        let begun = Instant::now();
        let stop = || begun.elapsed() > PATIENCE || !node.lost_peers().is_empty();
        let took = match &mut self.way {
            Way::Lines(lines) if sends => lines.send(messages, stop),
            Way::Lines(lines) => {
                lines.take(messages, stop);
                begun.elapsed()
            }
            Way::Slots { out, incoming } => {
                let (mut to_send, mut to_take) = (count(sends), count(receives));
                let mut taken = vec![0; self.payload.len()];
                bare::spin(&stop, || {
                    to_send -= u32::from(to_send > 0 && out.put(&self.payload));
                    to_take -= u32::from(to_take > 0 && incoming.take(&mut taken));
                    std::hint::black_box(&mut taken);
                    to_send == 0 && to_take == 0 && out.are_empty()
                });
                begun.elapsed()
            }
            Way::Frames { wire, messages: in_frame, bytes } => {
                let frames = messages.div_ceil(*in_frame);
                let answers = if self.flow.reply { frames } else { 1 };
                let due = if self.flow.reply { Due::OneForOne } else { Due::AfterAll };
                let exchange = match (both, sends) {
                    (true, _) => Frames { bytes: *bytes, out: frames, incoming: frames, due: Due::AtOnce },
                    (_, true) => Frames { bytes: *bytes, out: frames, incoming: answers, due: Due::AtOnce },
                    _ => Frames { bytes: *bytes, out: answers, incoming: frames, due },
                };
                wire.exchange(exchange, stop)?
            }
        };
        ensure!(!stop(), "the limit's flood took {} s, or its peer is lost", PATIENCE.as_secs());
        Ok(took)
    }
}
