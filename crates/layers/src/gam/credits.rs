//! How many requests to a process may be without their reply, and which replies of the library's own it owes.
//!
//! A requester takes a credit for each request. A reply of the program's gives back one. The library's empty
//! replies give back several at once: a receiver counts the requests whose handlers sent no reply, and tells
//! their sender at the half of the window. A request that leaves while no other is out says so. The receiver
//! replies to it at once: where requests are few, all credits are back before it goes on to compute.
//!
//! Nobody waits for a credit that is kept back. A requester waits while 30 are out. Its receiver keeps back
//! 14 at most, or more for as long as the lane to it is full. The others belong to requests whose handlers
//! have yet to run, and to gets. A process that leaves waits for all of its credits, and asks for them: from
//! then on each is given back at once.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Requests to a process that may be without their reply: as many slots as the shared-memory original had for
/// a pair.
pub const CREDITS: u32 = 30;

/// So many empty replies are owed before they are sent.
const BATCH: u32 = CREDITS / 2;

const _: () = assert!(BATCH - 1 < CREDITS, "a requester that waits has requests that are not handled");

/// The state of this process and one other towards each other, counted on from 0. Each count has one writer
/// at a time, which needs no atomic operation of two steps; `given` alone has two.
#[derive(Debug, Default)]
pub(super) struct Credits {
    /// Requests sent there: the thread that calls the layer counts them.
    taken: AtomicU32,
    /// Of these, those that it has replied to: counted by the thread that runs handlers.
    replied: AtomicU32,
    /// Requests from there that had no reply of the program's: counted by the thread that runs handlers.
    unanswered: AtomicU32,
    /// Of these, those that were given back: from a handler, and by the thread that calls the layer.
    given: AtomicU32,
    /// Whether that process leaves, and waits for all that is its own.
    is_leaving: AtomicBool,
}

/// An empty reply that gives back what was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unasked {
    /// How many replies it stands for; 1 where it names a number that no library of ours sends.
    pub(super) replies: u32,
}

impl Credits {
    /// Requests without a reply. None, where a request that failed was replied to all the same.
    #[inline]
    pub(super) fn are_out(&self) -> u32 {
        let out = self.taken.load(Ordering::Relaxed).wrapping_sub(self.replied.load(Ordering::Relaxed));
        out.cast_signed().max(0).cast_unsigned()
    }

    #[inline]
    pub(super) fn has_one(&self) -> bool {
        self.are_out() < CREDITS
    }

    /// Whether the reply to the request that the last one was taken for may be kept back.
    #[inline]
    pub(super) fn may_wait(&self) -> bool {
        self.are_out() > 1
    }

    /// Takes one for a request, if there is one.
    #[inline]
    pub(super) fn take(&self) -> bool {
        let has_one = self.has_one();
        if has_one {
            let taken = self.taken.load(Ordering::Relaxed);
            self.taken.store(taken.wrapping_add(1), Ordering::Relaxed);
        }
        has_one
    }

    /// Gives back what the calling thread has taken for a request that it then did not send: `false` where
    /// its reply has come all the same.
    pub(super) fn untake(&self) -> bool {
        let was_out = self.are_out() > 0;
        if was_out {
            let taken = self.taken.load(Ordering::Relaxed);
            self.taken.store(taken.wrapping_sub(1), Ordering::Relaxed);
        }
        was_out
    }

    /// Notes that the other one has replied to so many requests. Nothing changes where it was not asked for
    /// as many: only a peer that no library of ours is says so.
    #[inline]
    pub(super) fn returned(&self, count: u64) -> Result<(), Unasked> {
        let Some(count) = u32::try_from(count).ok().filter(|count| (1..=CREDITS).contains(count)) else {
            return Err(Unasked { replies: 1 });
        };
        if count > self.are_out() {
            return Err(Unasked { replies: count });
        }
        let replied = self.replied.load(Ordering::Relaxed);
        self.replied.store(replied.wrapping_add(count), Ordering::Relaxed);
        Ok(())
    }

    /// Notes that the other one leaves: it waits for each reply from now on.
    pub(super) fn leaves(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Notes a request from there whose handler has sent no reply: how many empty replies are to be sent now.
    /// `may_wait`: its sender can do without this one for a while.
    #[inline]
    pub(super) fn note_unanswered(&self, may_wait: bool) -> u32 {
        let unanswered = self.unanswered.load(Ordering::Relaxed).wrapping_add(1);
        self.unanswered.store(unanswered, Ordering::Relaxed);
        let owed = unanswered.wrapping_sub(self.given.load(Ordering::Relaxed));
        let is_kept = may_wait && owed < BATCH && !self.is_leaving.load(Ordering::Relaxed);
        if is_kept { 0 } else { self.take_owed() }
    }

    /// All that are owed, which the caller gives back.
    pub(super) fn take_owed(&self) -> u32 {
        // Acquire: a thread that sees what another has given sees the requests that those replies are for.
        let mut given = self.given.load(Ordering::Acquire);
        loop {
            let owed = self.unanswered.load(Ordering::Relaxed).wrapping_sub(given);
            // A message names no more than one library of ours can have taken.
            let owed = owed.cast_signed().max(0).cast_unsigned().min(CREDITS);
            if owed == 0 {
                return 0;
            }
            let next = given.wrapping_add(owed);
            match self.given.compare_exchange_weak(given, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return owed,
                Err(other) => given = other,
            }
        }
    }

    /// Notes that what was taken to be given back could not be sent yet.
    pub(super) fn still_owed(&self, count: u32) {
        self.given.fetch_sub(count, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_may_be_out() {
        let credits = Credits::default();
        assert!((0..CREDITS).all(|_| credits.take()) && !credits.take() && !credits.has_one());
        assert_eq!((credits.returned(15), credits.are_out(), credits.has_one()), (Ok(()), 15, true));
        assert_eq!(credits.returned(15), Ok(()));
        assert_eq!((credits.are_out(), credits.has_one()), (0, true));
    }

    #[test]
    fn no_more_is_taken_back_than_was_given_out() {
        let credits = Credits::default();
        assert_eq!(credits.returned(1), Err(Unasked { replies: 1 }));
        assert!((0..3).all(|_| credits.take()));
        assert_eq!(credits.returned(4), Err(Unasked { replies: 4 }));
        for nonsense in [0, u64::from(CREDITS) + 1, 1 << 32, (1 << 32) + 1, u64::MAX] {
            assert_eq!(credits.returned(nonsense), Err(Unasked { replies: 1 }));
        }
        assert_eq!(credits.are_out(), 3);
        assert_eq!((credits.returned(2), credits.are_out()), (Ok(()), 1));
        assert!(credits.untake() && !credits.untake());
        assert_eq!((credits.returned(1), credits.are_out()), (Err(Unasked { replies: 1 }), 0));
    }

    #[test]
    fn empty_replies_leave_by_halves_of_the_window() {
        let credits = Credits::default();
        for _ in 0..3 {
            assert!((1..BATCH).all(|_| credits.note_unanswered(true) == 0));
            assert_eq!(credits.note_unanswered(true), BATCH);
        }
        assert_eq!(credits.take_owed(), 0);
    }

    #[test]
    fn a_lone_request_is_replied_to_at_once_with_all_others() {
        let (there, here) = (Credits::default(), Credits::default());
        assert!(there.take() && !there.may_wait() && there.take() && there.may_wait());
        assert_eq!((here.note_unanswered(true), here.note_unanswered(false)), (0, 2));
        assert_eq!(here.note_unanswered(false), 1);
    }

    #[test]
    fn a_process_that_leaves_gets_each_at_once() {
        let credits = Credits::default();
        assert!((0..4).all(|_| credits.note_unanswered(true) == 0));
        credits.leaves();
        assert_eq!(credits.take_owed(), 4);
        assert_eq!((credits.note_unanswered(true), credits.note_unanswered(true)), (1, 1));
    }

    #[test]
    fn what_could_not_be_given_back_stays_owed() {
        let credits = Credits::default();
        assert!((0..4).all(|_| credits.note_unanswered(true) == 0));
        assert_eq!(credits.take_owed(), 4);
        assert!((0..2).all(|_| credits.note_unanswered(true) == 0));
        credits.still_owed(4);
        assert_eq!((credits.take_owed(), credits.take_owed()), (6, 0));
    }

    #[test]
    fn a_message_gives_back_no_more_than_can_have_been_taken() {
        let credits = Credits::default();
        // As of a peer that floods beyond its credits, while nothing can be sent to it.
        credits.unanswered.store(100, Ordering::Relaxed);
        assert_eq!([(); 5].map(|()| credits.take_owed()), [30, 30, 30, 10, 0]);
    }

    #[test]
    fn counts_go_on_beyond_their_width() {
        let credits = Credits::default();
        for count in [&credits.taken, &credits.replied, &credits.unanswered, &credits.given] {
            count.store(u32::MAX - 3, Ordering::Relaxed);
        }
        assert!((0..CREDITS).all(|_| credits.take()) && !credits.take());
        assert_eq!((credits.returned(30), credits.are_out()), (Ok(()), 0));
        assert!((1..BATCH).all(|_| credits.note_unanswered(true) == 0));
        assert_eq!(credits.note_unanswered(true), BATCH);
    }
}
