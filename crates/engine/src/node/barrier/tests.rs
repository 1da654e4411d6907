use proptest::prelude::*;

use super::*;
use crate::node::core::Core;
use crate::node::lanes::{self, Lanes};
use crate::node::mail::Mail;

/// One rank, with what its barrier is lent.
struct Alone {
    core: Core<Lanes>,
    mail: Mail,
    ops: Operations,
    barrier: Barrier,
}

impl Alone {
    fn new(rank: Rank, size: u32) -> Alone {
        let core = lanes::core_of(rank, size);
        Alone { core, mail: Mail::new(0), ops: Operations::default(), barrier: Barrier::default() }
    }

    /// Has the barrier do something.
    fn with<R>(&mut self, what: impl FnOnce(&mut Barrier, &mut Lent<'_, Lanes>) -> R) -> R {
        let Alone { core, mail, ops, barrier } = self;
        what(barrier, &mut Lent { core, mail, ops })
    }

    fn wait(&mut self) -> OpKey {
        self.with(|barrier, lent| barrier.wait(lent, None)).key()
    }

    fn outcome(&mut self, key: OpKey) -> Option<Outcome> {
        self.ops.take(key).map(|(outcome, _)| outcome)
    }

    /// Does the oldest atomic that the transport was given.
    fn count(&mut self, counter: &mut u64) -> bool {
        let Some((op, atomic)) = self.core.transport.atomics.pop_front() else { return false };
        let before = *counter;
        *counter += u64::from(atomic == Atomic::fetch_add(1));
        self.with(|barrier, lent| barrier.on_report(lent, (op.key(), Ok(before))));
        true
    }
}

#[test]
fn the_last_to_come_opens_it_and_tells_all() {
    let (mut last, mut counter) = (Alone::new(2, 3), 2);
    let wait = last.wait();
    assert_eq!(last.outcome(wait), None, "nobody has counted yet");
    assert!(last.count(&mut counter));
    assert_eq!(last.outcome(wait), Some(Ok(0)));
    let open = Message::BarrierOpen { epoch: 1 };
    assert_eq!(last.core.transport.take_sent(), [0, 1].map(|peer| (peer, Lane::Request, open)));
}

#[test]
fn a_notice_opens_the_barrier_that_it_is_of_and_no_other() {
    let mut first = Alone::new(0, 2);
    let mut counter = 0;
    first.with(|barrier, lent| barrier.on_open(lent, 1));
    assert_eq!(first.core.counters.malformed, 1, "nobody opens what this rank has not come to");
    let wait = first.wait();
    first.count(&mut counter);
    first.with(|barrier, lent| barrier.on_open(lent, 1));
    assert_eq!(first.outcome(wait), Some(Ok(0)));
    let next = first.wait();
    first.with(|barrier, lent| barrier.on_open(lent, 1));
    assert_eq!((first.outcome(next), first.core.counters.malformed), (None, 1), "that one is open already");
}

#[test]
fn a_wait_that_ended_early_is_gone_on_with() {
    let mut first = Alone::new(0, 2);
    let mut counter = 0;
    let late = first.wait();
    first.ops.finish(late, Err(OpError::Timeout { peer: KEEPER }));
    first.count(&mut counter);
    first.with(|barrier, lent| barrier.on_open(lent, 1));
    let again = first.wait();
    assert_eq!((first.outcome(again), counter), (Some(Ok(0)), 1), "it has arrived once");
}

#[test]
fn the_counter_says_what_a_lost_rank_has_done() {
    for (counted, outcome) in [(3, Ok(0)), (2, Err(OpError::PeerLost { peer: 1 }))] {
        let (mut first, mut counter) = (Alone::new(0, 3), 0);
        let wait = first.wait();
        assert!(first.count(&mut counter));
        counter = counted;
        first.barrier.forget(1, true);
        first.with(|barrier, lent| barrier.recount(lent));
        assert!(first.count(&mut counter) && first.outcome(wait) == Some(outcome));
        let next = first.wait();
        let lost = Some(Err(OpError::PeerLost { peer: 1 }));
        assert_eq!((first.outcome(next), counter), (lost, counted), "there is no other barrier");
    }
}

/// As at the end of a job: two ranks leave at once, and one is lost here while the other's word is unheard.
#[test]
fn a_keeper_that_has_just_gone_may_have_said_that_it_is_open() {
    for is_open in [true, false] {
        let (mut last, mut counter) = (Alone::new(2, 3), 0);
        let wait = last.wait();
        assert!(last.count(&mut counter));
        last.barrier.forget(1, true);
        last.with(|barrier, lent| barrier.recount(lent));
        let (asked, _) = last.core.transport.atomics.pop_front().expect("it asks the keeper");
        let gone = Err(OpError::PeerLost { peer: KEEPER });
        last.with(|barrier, lent| barrier.on_report(lent, (asked.key(), gone)));
        assert_eq!(last.outcome(wait), None, "the keeper's loss has not been told");
        if is_open {
            last.with(|barrier, lent| barrier.on_open(lent, 1));
        }
        last.barrier.forget(KEEPER, true);
        last.with(|barrier, lent| barrier.recount(lent));
        assert_eq!(last.outcome(wait), Some(if is_open { Ok(0) } else { gone }));
    }
}

#[test]
fn who_cannot_be_told_is_told_at_a_later_poll() {
    let (mut last, mut counter) = (Alone::new(1, 2), 1);
    let wait = last.wait();
    last.core.transport.cut_off.insert(0);
    last.count(&mut counter);
    assert!(last.outcome(wait) == Some(Ok(0)) && last.barrier.has_unsent());
    assert!(!last.barrier.retry_notices(&mut last.core));
    last.core.transport.cut_off.clear();
    let told = (0..4).filter(|_| last.barrier.retry_notices(&mut last.core)).count();
    assert_eq!((told, last.barrier.has_unsent(), last.core.transport.sent.len()), (1, false, 1));
}

const RANKS: usize = 3;

proptest! {
    /// Whatever comes first, of counters and notices: nobody passes a barrier that some rank has not come to,
    /// and everybody passes each.
    #[test]
    fn all_pass_together(acts in proptest::collection::vec((0..RANKS, 0..3_u8), 0..120)) {
        let mut ranks: Vec<Alone> = (0..RANKS).map(|rank| Alone::new(rank as Rank, RANKS as u32)).collect();
        let (mut waits, mut passed) = ([None; RANKS], [0_u64; RANKS]);
        let mut counter = 0;
        let mut act = |ranks: &mut Vec<Alone>, rank: usize, what: u8, may_wait: bool| -> Result<(), TestCaseError> {
            match what {
                0 if waits[rank].is_none() && may_wait => waits[rank] = Some(ranks[rank].wait()),
                1 => _ = ranks[rank].count(&mut counter),
                2 if !ranks[rank].core.transport.sent.is_empty() => {
                    let (to, _, message) = ranks[rank].core.transport.sent.remove(0);
                    let Message::BarrierOpen { epoch } = message else { unreachable!("nobody is lost") };
                    ranks[to as usize].with(|barrier, lent| barrier.on_open(lent, epoch));
                }
                _ => {}
            }
            for rank in 0..RANKS {
                let Some(outcome) = waits[rank].and_then(|wait| ranks[rank].outcome(wait)) else { continue };
                prop_assert_eq!(outcome, Ok(0));
                (waits[rank], passed[rank]) = (None, passed[rank] + 1);
            }
            let arrived = ranks.iter().map(|rank| rank.barrier.arrived).min();
            prop_assert!(passed.iter().max() <= arrived.as_ref(), "{:?} of {:?}", passed, arrived);
            Ok(())
        };
        for (rank, what) in acts {
            act(&mut ranks, rank, what, true)?;
        }
        // Those who are behind come, and all that is on its way does.
        let most = ranks.iter().map(|rank| rank.barrier.arrived).max().unwrap_or(0);
        for _ in 0..2 * RANKS as u64 * (most + 1) {
            for rank in 0..RANKS {
                let behind = ranks[rank].barrier.arrived < most;
                (0..3).try_for_each(|what| act(&mut ranks, rank, what, behind))?;
            }
        }
        prop_assert!(ranks.iter().all(|rank| rank.barrier.passed == most && rank.core.counters.malformed == 0));
    }
}
