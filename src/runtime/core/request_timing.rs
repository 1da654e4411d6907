//! Taking the time of what goes on after its call: operations that nobody waits for in the call, and
//! requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::wire::STAMP_BITS;
use engine::{Delivery, Inbox, Lane, OpId};

use super::{FOLLOWED, HANDLERS, Handler, NodeCore};
use crate::base::lock::lock;
use crate::counters::latency::Timed;
use crate::runtime::handlers::{Runnable, Snapshot};

/// Operations that are followed at a time, at most: each is looked at whenever something has moved.
const FOLLOWED_MAX: usize = 4;

/// The bits of a stamp: of nanoseconds, those of 18 minutes.
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;

impl NodeCore {
    /// The stamp of a request that begins now: the time, if it is one whose time is taken, and 0 otherwise.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        if self.counted.latencies.is_turn(Timed::Request) { self.stamp_now() } else { 0 }
    }

    #[cold]
    fn stamp_now(&self) -> u64 {
        (self.nanos(Instant::now()) & STAMP_MASK).max(1)
    }

    /// A stamp has come back. Any peer may have made it up; then it is some time of that length.
    #[cold]
    pub(super) fn on_stamp(&self, stamp: u64) {
        let ns = self.stamp_now().wrapping_sub(stamp) & STAMP_MASK;
        self.counted.latencies.record(Timed::Request, Duration::from_nanos(ns));
    }

    /// Runs a message's handler.
    #[inline(always)]
    pub(super) fn handle(
        self: &Arc<Self>,
        runnable: &Runnable<Handler>,
        inbox: &mut Inbox,
        delivery: Delivery,
    ) {
        let Runnable { handler, client } = runnable;
        match inbox.stamp() {
            0 => _ = handler(self, inbox, delivery.peer, delivery.lane, *client),
            stamp => self.handle_stamped(runnable, inbox, delivery, stamp),
        }
    }

    /// Runs the handler of a message that is newer than what is known of them here, or has gone since.
    #[cold]
    #[inline(never)]
    pub(super) fn handle_new(
        self: &Arc<Self>,
        handlers: &mut Snapshot<Handler>,
        inbox: &mut Inbox,
        delivery: Delivery,
    ) {
        if let Some(old) = self.handlers.renew(handlers) {
            // The inbox is held: what may be the last of a handler is dropped later.
            self.handlers.keep_old(old);
            self.due.flags.fetch_or(HANDLERS, Ordering::AcqRel);
        }
        match handlers.get(delivery.handler) {
            Some(runnable) => self.handle(runnable, inbox, delivery),
            None => self.engine().refuse_delivered(delivery, inbox),
        }
    }

    #[cold]
    fn handle_stamped(
        self: &Arc<Self>,
        runnable: &Runnable<Handler>,
        inbox: &mut Inbox,
        delivery: Delivery,
        stamp: u64,
    ) {
        let Delivery { peer, lane, .. } = delivery;
        if lane == Lane::Reply {
            self.on_stamp(stamp);
        }
        let replied = (runnable.handler)(self, inbox, peer, lane, runnable.client);
        if lane == Lane::Request && !replied {
            self.engine().acknowledge(peer, stamp);
        }
    }

    /// When an operation begins whose time is to be taken; `None` for the others.
    #[inline]
    pub(crate) fn begin(&self, what: Timed) -> Option<Instant> {
        self.counted.latencies.is_turn(what).then(Instant::now)
    }

    /// Takes the time of an operation that goes on, unless it is one of too many.
    #[cold]
    pub(crate) fn follow(&self, what: Timed, begun: Instant, op: OpId) {
        let is_over = self.engine().is_over(op);
        if is_over {
            return self.counted.latencies.record(what, begun.elapsed());
        }
        let mut followed = lock(&self.due.followed);
        if followed.len() < FOLLOWED_MAX {
            followed.push((op, what, begun));
            self.due.flags.fetch_or(FOLLOWED, Ordering::AcqRel);
        }
    }

    /// An operation was given up, by whoever waited for it: others may wait for it, too, or for what has
    /// ended with it.
    pub(crate) fn after_cancel(&self) {
        if self.due.flags.load(Ordering::Acquire) & FOLLOWED != 0 {
            self.look_after_followed();
        }
        self.wake_for_ended();
    }

    /// Enters what those took that have ended.
    pub(super) fn look_after_followed(&self) {
        let engine = self.engine();
        let mut followed = lock(&self.due.followed);
        followed.retain(|(op, what, begun)| {
            let is_over = engine.is_over(*op);
            if is_over {
                self.counted.latencies.record(*what, begun.elapsed());
            }
            !is_over
        });
        if followed.is_empty() {
            self.due.flags.fetch_and(!FOLLOWED, Ordering::AcqRel);
        }
    }
}
