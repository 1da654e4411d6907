//! Taking messages from the network, and running their handlers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::arrival::{Arrival, Arrived};
use super::assembly::Step;
use super::body::Body;
use super::incoming::{Beginning, Dispatch, Done};
use super::notices::Notice;
use super::port::Port;
use super::runner::{Ran, Runner, Suspended};
use super::shared::Counters;
use super::stream::Stream;
use super::wire::Packet;

/// How deep calls of extract may be within handlers that such a call runs. Deeper ones run none.
pub const NESTING_MAX: u32 = 16;

/// Steps of the node's that may move something else before one brings a packet.
const OTHER_STEPS: u32 = 64;

/// After so many calls in a row that found no packet behind the first one, calls stop looking for one.
const SINGLES: u32 = 4;

/// So many calls that find nothing come before one that looks whether nodes are lost.
const LOOK_EVERY: u32 = 256;

/// Handlers of a node's that are set aside, as it gives their messages up, before it is refused.
const CUT_OFF_MAX: u32 = 256;

/// Takes what has come, and runs handlers.
pub(crate) struct Extractor {
    pub(crate) port: Port,
    dispatch: Arc<Dispatch>,
    /// Calls in a row that found nothing.
    idle: AtomicU32,
    /// Calls in a row that found no packet behind the first one.
    singles: AtomicU32,
}

impl Extractor {
    pub(crate) fn new(port: Port, dispatch: Arc<Dispatch>) -> Extractor {
        Extractor { port, dispatch, idle: AtomicU32::new(0), singles: AtomicU32::new(0) }
    }

    /// As [`Fm::extract`](super::Fm::extract).
    pub(crate) fn extract(&self, most: u64) -> u64 {
        Runner::with(|runner| self.extract_on(runner, most)).unwrap_or(0)
    }

    fn extract_on(&self, runner: &Runner, most: u64) -> u64 {
        let turn = self.port.shared.turn(runner.token).filter(|_| runner.depth() < NESTING_MAX);
        let (Some(_turn), true) = (turn, most > 0) else {
            self.port.node.progress();
            self.port.return_credits_due();
            return 0;
        };
        let (mut taken, mut bytes, looks_on) = (0, 0, self.looks_on());
        let most_packets = u64::from(self.port.window()) * u64::from(self.port.nodes());
        let (mut packets, mut goes_on) = (0, self.go_on_with_ready(runner));
        while goes_on && taken < most && packets < most_packets {
            let may_look = packets == 0 || looks_on;
            let arrival = if may_look { self.next_arrival() } else { self.port.shared.pop() };
            let Some(arrival) = arrival else {
                self.note_end(packets, looks_on);
                break;
            };
            if arrival.needs_stack(runner) && !runner.has_stack(&self.port.shared.counters) {
                self.port.shared.notices.add(Notice::NoStack);
                self.port.shared.put_back(arrival);
                break;
            }
            let (from, len) = (arrival.from, arrival.bytes());
            goes_on = self.take(runner, arrival) == Done::Continue;
            self.port.return_credits(from);
            packets += 1;
            taken = taken.saturating_add(len.max(1));
            bytes += len;
        }
        self.after(taken > 0);
        bytes
    }

    /// What is due now and then.
    fn after(&self, has_taken: bool) {
        // Of packets that were consumed elsewhere than where they arrive.
        self.port.return_credits_due();
        if self.port.shared.cuts_due.load(Ordering::Relaxed) > 0 {
            self.port.tell_of_cuts();
        }
        let idle = self.idle.load(Ordering::Relaxed);
        // The thread that extracts counts alone.
        self.idle.store(if has_taken { 0 } else { idle.wrapping_add(1) }, Ordering::Relaxed);
        if !has_taken && idle % LOOK_EVERY == LOOK_EVERY - 1 {
            self.port.look_for_lost();
        }
    }

    /// Whether a call looks for more behind the first packet. A look that finds nothing takes longer than all
    /// the rest, and the last ones found nothing; but a packet in each of two calls says that one was left.
    fn looks_on(&self) -> bool {
        self.singles.load(Ordering::Relaxed) < SINGLES || self.idle.load(Ordering::Relaxed) == 0
    }

    /// Notes how a call ended that took what there was.
    fn note_end(&self, packets: u64, has_looked: bool) {
        let singles = self.singles.load(Ordering::Relaxed);
        let is_single = packets == 1 && self.idle.load(Ordering::Relaxed) > 0;
        match packets {
            0 => {}
            _ if !is_single => self.singles.store(0, Ordering::Relaxed),
            _ if has_looked => self.singles.store(singles.saturating_add(1), Ordering::Relaxed),
            _ => {}
        }
    }

    #[inline]
    fn next_arrival(&self) -> Option<Arrival> {
        for _ in 0..OTHER_STEPS {
            let arrival = self.port.shared.pop();
            if arrival.is_some() || !self.port.node.progress() {
                return arrival;
            }
        }
        self.port.shared.pop()
    }

    fn take(&self, runner: &Runner, arrival: Arrival) -> Done {
        let from = arrival.from;
        match arrival.what {
            Arrived::Packet(packet, body) => self.take_packet(runner, from, packet, body),
            Arrived::Cut => {
                self.port.shared.consumed(from);
                if !self.cut(runner, from) {
                    self.refuse(from);
                }
                Done::Continue
            }
            Arrived::Lost => {
                self.cut(runner, from);
                Done::Continue
            }
        }
    }

    fn take_packet(&self, runner: &Runner, from: u32, packet: Packet, body: Body) -> Done {
        let peer = self.port.shared.peer(from);
        if packet.is_whole() && !peer.is_within_message.load(Ordering::Relaxed) {
            let run = self.port.shared.next_run();
            return self.start(runner, &packet, (from, run), body, None);
        }
        let mut incoming = super::lock::lock(&peer.incoming);
        let step = incoming.assembly.accept(&packet, body.bytes().len() as u64);
        let rest = match step {
            Step::First => {
                let stream = Arc::new(Stream::new(self.port.shared.next_run(), runner.token, from));
                incoming.stream = Some(Arc::clone(&stream));
                Some(stream)
            }
            Step::Later => incoming.stream.clone(),
            Step::Last => incoming.stream.take(),
            Step::Whole | Step::Refused => None,
        };
        peer.is_within_message.store(incoming.assembly.is_open(), Ordering::Relaxed);
        drop(incoming);
        match (step, rest) {
            (Step::Whole | Step::First, rest) => {
                let run = rest.as_ref().map_or_else(|| self.port.shared.next_run(), |stream| stream.run);
                self.start(runner, &packet, (from, run), body, rest)
            }
            (Step::Later | Step::Last, Some(stream)) => {
                self.feed(runner, from, &stream, body, step == Step::Last)
            }
            (Step::Later | Step::Last, None) | (Step::Refused, _) => {
                self.port.shared.consumed(from);
                self.refuse(from);
                Done::Continue
            }
        }
    }

    /// Runs a message's handler.
    #[inline]
    fn start(
        &self,
        runner: &Runner,
        packet: &Packet,
        (from, run): (u32, u64),
        body: Body,
        rest: Option<Arc<Stream>>,
    ) -> Done {
        let handler = packet.first.unwrap_or_default();
        let begins = Beginning { from, handler, announced: packet.position, body, rest };
        let ran = if begins.needs_stack(runner) {
            runner.start(&self.port.shared, &self.dispatch, begins, run)
        } else {
            runner.start_here(&self.port.shared, &*self.dispatch, begins, run)
        };
        self.ran(runner, ran, (from, handler))
    }

    /// Gives a packet to the handler that waits for it.
    fn feed(&self, runner: &Runner, from: u32, stream: &Arc<Stream>, body: Body, is_last: bool) -> Done {
        if !stream.push(body, is_last) {
            self.port.shared.consumed(from);
        } else if let Some(suspended) = runner.take(&self.port.shared, stream.run) {
            let ran = runner.go_on(suspended);
            return self.ran(runner, ran, (from, 0));
        } else if stream.thread != runner.token {
            self.port.shared.add_ready(stream);
        }
        // Otherwise it runs, in the middle of which this call was made, and will find it.
        Done::Continue
    }

    /// Goes on with this thread's handlers for which other threads have found something.
    fn go_on_with_ready(&self, runner: &Runner) -> bool {
        while let Some(stream) = self.port.shared.take_ready(runner.token) {
            if let Some(suspended) = runner.take(&self.port.shared, stream.run) {
                let ran = runner.go_on(suspended);
                self.port.return_credits(stream.from);
                if self.ran(runner, ran, (stream.from, 0)) == Done::Quit {
                    return false;
                }
            }
        }
        true
    }

    /// What a handler's end, or its waiting, means.
    fn ran(&self, runner: &Runner, ran: Ran, (from, handler): (u32, u32)) -> Done {
        match ran {
            Ran::Returned(Some(done)) => done,
            Ran::Returned(None) => {
                Counters::add(&self.port.shared.counters.unhandled, 1);
                self.port.shared.notices.add(Notice::NoHandler { handler, from });
                Done::Continue
            }
            Ran::Waits(suspended) => {
                if suspended.stream.is_cut() {
                    self.set_aside(suspended);
                } else {
                    runner.keep(suspended);
                }
                Done::Continue
            }
        }
    }

    /// Cuts the message off that a node is at: whether there was one.
    #[cold]
    fn cut(&self, runner: &Runner, from: u32) -> bool {
        let peer = self.port.shared.peer(from);
        let mut incoming = super::lock::lock(&peer.incoming);
        let (is_cut, stream) = (incoming.assembly.cut(), incoming.stream.take());
        peer.is_within_message.store(false, Ordering::Relaxed);
        drop(incoming);
        if let Some(stream) = stream {
            stream.cut();
            match runner.take(&self.port.shared, stream.run) {
                Some(suspended) => self.set_aside(suspended),
                None if stream.thread != runner.token => self.port.shared.add_ready(&stream),
                None => {}
            }
        }
        is_cut
    }

    /// Sets a handler aside whose message is cut off. Each leaves its stack behind: a node that does nothing
    /// else is refused.
    #[cold]
    fn set_aside(&self, suspended: Suspended) {
        let from = suspended.stream.from;
        suspended.set_aside();
        let cut_off = &self.port.shared.peer(from).cut_off;
        if cut_off.fetch_add(1, Ordering::Relaxed) + 1 == CUT_OFF_MAX {
            self.refuse(from);
            self.port.lose(from);
        }
    }

    #[cold]
    fn refuse(&self, from: u32) {
        Counters::add(&self.port.shared.counters.refused, 1);
        self.port.shared.notices.add(Notice::Refused { from });
    }
}

impl Beginning {
    /// Whether its handler needs a stack of its own: it may wait, or runs in the middle of another one, which
    /// has so much of its stack and no more. Any other one runs on the stack of the call that extracts.
    fn needs_stack(&self, runner: &Runner) -> bool {
        self.rest.is_some() || runner.depth() > 0
    }
}

impl Arrival {
    /// Whether it may begin a message for whose handler a stack is needed.
    fn needs_stack(&self, runner: &Runner) -> bool {
        let Arrived::Packet(packet, _) = &self.what else { return false };
        packet.first.is_some() && (!packet.is_last || runner.depth() > 0)
    }

    fn bytes(&self) -> u64 {
        match &self.what {
            Arrived::Packet(_, body) => body.bytes().len() as u64,
            Arrived::Cut | Arrived::Lost => 0,
        }
    }
}
