//! Taking messages from the network, and running their handlers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::assembly::Step;
use super::body::Body;
use super::endpoint::Fm;
use super::incoming::{Beginning, Done};
use super::notices::Notice;
use super::runner::{Ran, Runner};
use super::shared::{Arrival, Arrived, Counters};
use super::stream::Stream;
use super::wire::{self, Packet};

/// How deep calls of extract may be within handlers that such a call runs. Deeper ones run none.
pub const NESTING_MAX: u32 = 16;

/// Steps of the node's that may move something else before one brings a packet.
const OTHER_STEPS: u32 = 64;

/// So many calls that find nothing come before one that looks whether nodes are lost.
const LOOK_EVERY: u32 = 256;

/// Steps in which what a lost node had sent is taken.
const LAST_STEPS: u32 = 100_000;

impl Fm {
    /// Takes packets in the order in which they came, and runs the handlers of their messages, until packets
    /// of `most` bytes have been taken: the last one may go beyond it. A packet counts as one byte at least;
    /// with 0 none is taken. What waits at the call, and what comes meanwhile, is taken up to as many packets
    /// as could have waited. Ends early where a handler says [`Done::Quit`]. Never waits.
    ///
    /// Handlers run on this thread, and may call this. While another thread extracts, and within
    /// [`NESTING_MAX`] handlers, it runs none. Returns how many bytes of messages it has taken.
    pub fn extract(&self, most: u64) -> u64 {
        Runner::with(|runner| self.extract_on(runner, most)).unwrap_or(0)
    }

    fn extract_on(&self, runner: &Runner, most: u64) -> u64 {
        let turn = self.shared.turn(runner.token).filter(|_| runner.depth() < NESTING_MAX);
        let (Some(_turn), true) = (turn, most > 0) else {
            self.node.progress();
            return 0;
        };
        let (mut taken, mut bytes) = (0, 0);
        let mut packets = u64::from(self.window()) * u64::from(self.nodes());
        let mut goes_on = self.go_on_with_ready(runner);
        while goes_on && taken < most && packets > 0 {
            if !runner.has_stack(&self.shared.counters) {
                self.shared.notices.add(Notice::NoStack);
                break;
            }
            let Some(arrival) = self.next_arrival() else { break };
            let (from, len) = (arrival.from, arrival.bytes());
            goes_on = self.take(runner, arrival) == Done::Continue;
            self.return_credits(from);
            packets -= 1;
            taken = taken.saturating_add(len.max(1));
            bytes += len;
        }
        self.after(taken > 0);
        bytes
    }

    /// What is due now and then.
    fn after(&self, has_taken: bool) {
        if self.shared.cuts_due.load(Ordering::Relaxed) > 0 {
            self.tell_of_cuts();
        }
        if has_taken {
            return self.idle.store(0, Ordering::Relaxed);
        }
        if self.shared.has_stuck_credits.load(Ordering::Relaxed) {
            self.return_all_credits();
        }
        if self.idle.fetch_add(1, Ordering::Relaxed) % LOOK_EVERY == LOOK_EVERY - 1 {
            self.look_for_lost();
        }
    }

    #[inline]
    fn next_arrival(&self) -> Option<Arrival> {
        for _ in 0..OTHER_STEPS {
            let arrival = self.shared.pop();
            if arrival.is_some() || !self.node.progress() {
                return arrival;
            }
        }
        self.shared.pop()
    }

    fn take(&self, runner: &Runner, arrival: Arrival) -> Done {
        let from = arrival.from;
        match arrival.what {
            Arrived::Packet(packet, body) => self.take_packet(runner, from, packet, body),
            Arrived::Cut => {
                self.shared.peer(from).credits.consumed();
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
        let mut incoming = super::lock::lock(&self.shared.peer(from).incoming);
        let step = incoming.assembly.accept(&packet, body.bytes().len() as u64);
        let rest = match step {
            Step::First => {
                let stream = Arc::new(Stream::new(self.shared.next_run(), runner.token));
                incoming.stream = Some(Arc::clone(&stream));
                Some(stream)
            }
            Step::Later => incoming.stream.clone(),
            Step::Last => incoming.stream.take(),
            Step::Whole | Step::Refused => None,
        };
        drop(incoming);
        match (step, rest) {
            (Step::Whole | Step::First, rest) => {
                let run = rest.as_ref().map_or_else(|| self.shared.next_run(), |stream| stream.run);
                let handler = packet.first.unwrap_or_default();
                let begins = Beginning { from, handler, announced: packet.position, body, rest };
                let ran = runner.start(&self.shared, &self.dispatch, begins, run);
                self.ran(runner, ran, (from, handler))
            }
            (Step::Later | Step::Last, Some(stream)) => {
                self.feed(runner, from, &stream, body, step == Step::Last)
            }
            (Step::Later | Step::Last, None) | (Step::Refused, _) => {
                self.shared.peer(from).credits.consumed();
                self.refuse(from);
                Done::Continue
            }
        }
    }

    /// Gives a packet to the handler that waits for it.
    fn feed(&self, runner: &Runner, from: u32, stream: &Stream, body: Body, is_last: bool) -> Done {
        if !stream.push(body, is_last) {
            self.shared.peer(from).credits.consumed();
        } else if let Some(suspended) = runner.take(&self.shared, stream.run) {
            let ran = runner.go_on(suspended);
            return self.ran(runner, ran, (from, 0));
        } else if stream.thread != runner.token {
            self.shared.add_ready(stream.thread, stream.run);
        }
        // Otherwise it runs, in the middle of which this call was made, and will find it.
        Done::Continue
    }

    /// Goes on with this thread's handlers for which other threads have found something.
    fn go_on_with_ready(&self, runner: &Runner) -> bool {
        for run in self.shared.take_ready(runner.token) {
            if let Some(suspended) = runner.take(&self.shared, run) {
                let ran = runner.go_on(suspended);
                if self.ran(runner, ran, (0, 0)) == Done::Quit {
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
                Counters::add(&self.shared.counters.unhandled, 1);
                self.shared.notices.add(Notice::NoHandler { handler, from });
                Done::Continue
            }
            Ran::Waits(suspended) => {
                if suspended.stream.is_cut() {
                    suspended.set_aside();
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
        let mut incoming = super::lock::lock(&self.shared.peer(from).incoming);
        let (is_cut, stream) = (incoming.assembly.cut(), incoming.stream.take());
        drop(incoming);
        if let Some(stream) = stream {
            stream.cut();
            match runner.take(&self.shared, stream.run) {
                Some(suspended) => suspended.set_aside(),
                None if stream.thread != runner.token => self.shared.add_ready(stream.thread, stream.run),
                None => {}
            }
        }
        is_cut
    }

    #[cold]
    fn refuse(&self, from: u32) {
        Counters::add(&self.shared.counters.refused, 1);
        self.shared.notices.add(Notice::Refused { from });
    }

    /// Gives a node its credits back, if enough have come together.
    #[inline]
    pub(crate) fn return_credits(&self, to: u32) {
        let peer = self.shared.peer(to);
        if !peer.credits.are_due() || peer.is_lost.load(Ordering::Relaxed) {
            return;
        }
        let owed = peer.credits.take_owed();
        match self.node.try_request(to, self.packets, wire::credits_args(owed)) {
            Ok(true) => {}
            Ok(false) => {
                peer.credits.still_owed(owed);
                self.shared.has_stuck_credits.store(true, Ordering::Relaxed);
            }
            Err(_) => self.lose(to),
        }
    }

    #[cold]
    pub(crate) fn return_all_credits(&self) {
        self.shared.has_stuck_credits.store(false, Ordering::Relaxed);
        (0..self.nodes()).for_each(|node| self.return_credits(node));
    }

    /// Throws away what waits to be extracted.
    pub(crate) fn throw_away_queued(&self) {
        while let Some(arrival) = self.shared.pop() {
            if !matches!(arrival.what, Arrived::Lost) {
                self.shared.peer(arrival.from).credits.consumed();
            }
        }
    }

    /// Notes which nodes are lost.
    #[cold]
    pub(crate) fn look_for_lost(&self) {
        let lost = self.node.lost_peers();
        lost.into_iter().filter(|node| *node < self.nodes()).for_each(|node| self.lose(node));
    }

    /// Notes that a node is lost. What it has sent is taken first.
    #[cold]
    pub(crate) fn lose(&self, node: u32) {
        let peer = self.shared.peer(node);
        if peer.is_lost.load(Ordering::Relaxed) {
            return;
        }
        let _ = (0..LAST_STEPS).find(|_| !self.node.progress());
        if peer.is_lost.swap(true, Ordering::Relaxed) || self.shared.is_closing.load(Ordering::Relaxed) {
            return;
        }
        self.shared.push(Arrival { from: node, what: Arrived::Lost });
        self.shared.notices.add(Notice::Lost { node });
    }
}

impl Arrival {
    fn bytes(&self) -> u64 {
        match &self.what {
            Arrived::Packet(_, body) => body.bytes().len() as u64,
            Arrived::Cut | Arrived::Lost => 0,
        }
    }
}
