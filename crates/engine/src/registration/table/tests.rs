use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;

use super::entry::PinId;
use super::pins::Pinning;
use super::*;
use crate::registration::{Keep, Order, Quota};
use crate::span::BucketSize;

const PAGE: u64 = 4096;

fn settings(peers: u64, victims: u64) -> Settings {
    Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 4,
        peers_bytes: peers * PAGE,
        victims_bytes: victims * PAGE,
        victims_borrow: false,
        quota: Quota::Leases { guaranteed: 0 },
        order: Order::Fifo,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: 0,
    }
}

fn run_of(first: u64, count: u32) -> Run {
    Run { first, count }
}

/// Does at once what the table wants, and returns what else it said.
fn serve(table: &mut Table) -> Vec<Action> {
    let mut said = Vec::new();
    while let Some(action) = table.next_action() {
        match action {
            Action::Register(reg, run) => table.registered(reg, Ok(Key(run.first))),
            Action::Deregister(reg) => table.deregistered(reg),
            other => said.push(other),
        }
        table.audit().expect("sound after every step");
    }
    said
}

fn attach(table: &mut Table, peer: Rank, run: Run) -> Result<Vec<HolderId>, NoRoom> {
    let mut got = Vec::new();
    table.attach(peer, run, &mut got).map(|()| got)
}

#[test]
fn adjacent_misses_are_one_registration_and_no_longer_than_the_cap() {
    let mut table = Table::new(settings(16, 0), 2);
    let got = attach(&mut table, 1, run_of(10, 6)).expect("room");
    let runs: Vec<Run> = got.iter().map(|holder| table.held(*holder).1).collect();
    assert_eq!(runs, [run_of(10, 4), run_of(14, 2)]);
    serve(&mut table);
    assert_eq!((table.counters().registrations, table.counters().pinned), (2, 6 * PAGE));
}

#[test]
fn a_victim_is_rescued_without_registering_again() {
    let mut table = Table::new(settings(4, 4), 2);
    let got = attach(&mut table, 1, run_of(0, 2)).expect("room");
    serve(&mut table);
    assert!(table.detach(1, got[0]));
    assert!(!table.detach(1, got[0]), "a firehose is given back once");
    attach(&mut table, 1, run_of(1, 1)).expect("room");
    serve(&mut table);
    let counters = table.counters();
    assert_eq!((counters.registrations, counters.rescues, counters.evictions), (1, 1, 0));
}

#[test]
fn what_a_peer_gives_back_is_not_kept_where_nothing_is_and_own_memory_is() {
    let mut table = Table::new(Settings { keep: Keep::Nothing, ..settings(4, 4) }, 2);
    let got = attach(&mut table, 1, run_of(0, 2)).expect("room");
    serve(&mut table);
    assert!(table.detach(1, got[0]));
    let unpins = |action: Option<Action>| matches!(action, Some(Action::Deregister(_)));
    let action = table.next_action();
    assert!(unpins(action), "{action:?}");
    let mut pinned = Vec::new();
    table.pin(run_of(8, 2), &mut pinned).expect("room");
    serve(&mut table);
    table.release(pinned[0]);
    assert_eq!(table.next_action(), None, "own memory stays");
    let (reg, _) = table.acquire(9).expect("it is there");
    let got = attach(&mut table, 1, run_of(8, 2)).expect("room");
    assert!(table.detach(1, got[0]));
    assert_eq!(table.next_action(), None, "it is in use");
    table.release(reg);
    let counters = table.counters();
    assert_eq!((counters.registrations, counters.evictions, counters.pinned), (2, 1, 4 * PAGE));
}

#[test]
fn a_scan_of_local_memory_does_not_drive_out_what_is_used_again() {
    let mut table = Table::new(Settings { order: Order::default(), ..settings(0, 3) }, 2);
    // As a transfer does it: what is not there is pinned first, and then referred to by each part.
    let mut used = |bucket| {
        let mut pins = Vec::new();
        let part = table.acquire(bucket).or_else(|| {
            table.pin(run_of(bucket, 1), &mut pins).expect("room");
            serve(&mut table);
            table.acquire(bucket)
        });
        pins.iter().chain(part.iter().map(|(reg, _)| reg)).for_each(|reg| table.release(*reg));
        serve(&mut table);
        table.counters().registrations
    };
    assert_eq!([0, 1, 0, 1].map(&mut used), [1, 2, 2, 2]);
    for scanned in 100..200 {
        let registered = scanned - 97;
        assert_eq!([scanned, 0, 1].map(&mut used), [registered; 3], "only what is scanned is registered");
    }
}

#[test]
fn a_run_waits_until_what_makes_room_for_it_is_really_gone() {
    let mut table = Table::new(settings(2, 2), 2);
    let got = attach(&mut table, 1, run_of(0, 2)).expect("room");
    serve(&mut table);
    table.detach(1, got[0]);
    let mut local = Vec::new();
    table.pin(run_of(8, 2), &mut local).expect("room");
    attach(&mut table, 1, run_of(4, 2)).expect("room in M");
    let mut begun = Vec::new();
    let mut leaving = None;
    while let Some(action) = table.next_action() {
        match action {
            Action::Register(reg, run) => begun.push((reg, run)),
            Action::Deregister(reg) => leaving = Some(reg),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(begun.iter().map(|(_, run)| run.first).collect::<Vec<_>>(), [8], "the other one must wait");
    table.deregistered(leaving.expect("the victim goes"));
    assert!(matches!(table.next_action(), Some(Action::Register(_, Run { first: 4, .. }))));
}

#[test]
fn what_the_system_does_not_take_back_counts_as_pinned_and_is_waited_for_by_nobody() {
    let mut table = Table::new(settings(0, 2), 2);
    let pin = |table: &mut Table, bucket| {
        let mut pins = Vec::new();
        table.pin(run_of(bucket, 1), &mut pins).expect("room");
        let mut done = Vec::new();
        while let Some(action) = table.next_action() {
            match action {
                Action::Register(reg, _) => table.registered(reg, Ok(Key(1))),
                Action::Deregister(reg) => table.not_deregistered(reg),
                other => done.push(other),
            }
        }
        let is_there = table.key(pins[0]).is_some();
        table.release(pins[0]);
        table.audit().expect("it adds up");
        is_there
    };
    assert_eq!([0, 1, 2, 3].map(|bucket| pin(&mut table, bucket)), [true, true, false, false]);
    let counters = table.counters();
    assert_eq!((counters.stuck, counters.pinned, counters.evictions), (2, 2 * PAGE, 2));
    // One goes after all.
    table.deregistered(RegId { index: 0, generation: 0 });
    assert_eq!(table.counters().pinned, PAGE);
    assert!(pin(&mut table, 4), "there is room again");
}

#[test]
fn an_even_share_is_kept_and_a_lease_is_not_bounded_by_it() {
    let even = Settings { quota: Quota::Even, ..settings(8, 0) };
    let mut table = Table::new(even, 5);
    assert!(attach(&mut table, 1, run_of(0, 2)).is_ok());
    assert_eq!(attach(&mut table, 1, run_of(10, 1)), Err(NoRoom::Now));
    assert_eq!(attach(&mut table, 2, run_of(20, 3)), Err(NoRoom::Never));
    let mut table = Table::new(settings(8, 0), 5);
    assert!(attach(&mut table, 1, run_of(0, 8)).is_ok());
}

#[test]
fn who_idles_is_asked_to_give_back_but_not_what_is_guaranteed() {
    let leases = Settings { quota: Quota::Leases { guaranteed: 2 * PAGE }, ..settings(8, 0) };
    let mut table = Table::new(leases, 3);
    let got = attach(&mut table, 1, run_of(0, 8)).expect("nobody else wants any");
    assert_eq!(got.len(), 2);
    serve(&mut table);
    assert_eq!(attach(&mut table, 2, run_of(20, 7)), Err(NoRoom::Never), "two buckets are the other's");
    assert_eq!(attach(&mut table, 2, run_of(20, 3)), Err(NoRoom::Now));
    assert_eq!(serve(&mut table), [Action::Recall(1, 3 * PAGE)]);
    table.detach(1, got[0]);
    assert!(attach(&mut table, 2, run_of(20, 3)).is_ok());
}

#[test]
fn changed_memory_is_registered_anew_and_its_old_key_revoked() {
    let mut table = Table::new(settings(8, 8), 3);
    let old = attach(&mut table, 1, run_of(0, 4)).expect("room");
    serve(&mut table);
    table.invalidate(2, 3);
    assert_eq!(serve(&mut table), [Action::Revoke(1, old[0])]);
    assert_eq!(table.key(table.held(old[0]).0), None);
    assert_eq!(table.acquire(0), None, "not by the old registration");
    attach(&mut table, 2, run_of(2, 1)).expect("room");
    serve(&mut table);
    assert_eq!(table.counters().registrations, 2);
    table.detach(1, old[0]);
    assert_eq!(serve(&mut table), []);
    assert_eq!(table.counters().pinned, PAGE, "the old one is gone as soon as nobody holds it");
}

/// Of memory that may change untold: whoever waits for it has it, nobody after that, and no peer.
#[test]
fn what_is_registered_once_is_for_those_who_wait() {
    let mut table = Table::new(settings(8, 8), 2);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    table.pin(run_of(0, 4), &mut first).expect("room");
    let given = attach(&mut table, 1, run_of(0, 4)).expect("room")[0];
    let Some(Action::Register(reg, _)) = table.next_action() else { panic!("it is begun") };
    table.registered_once(reg, Key(7));
    table.audit().expect("sound though nobody finds it");
    assert_eq!(table.next_action(), Some(Action::Settled(reg)));
    assert_eq!((table.acquire(0), table.key(table.held(given).0)), (None, None));
    assert_eq!(table.acquire_once(reg, 3), Some((reg, run_of(0, 4))));
    assert_eq!(table.acquire_once(reg, 4), None);
    // A transfer that begins now registers the memory anew.
    table.pin(run_of(0, 4), &mut second).expect("room");
    assert!(second[0] != reg && table.is_pending(second[0]));
    table.detach(1, given);
    table.release(reg);
    assert_eq!(table.acquire_once(reg, 0).map(|(reg, _)| table.release(reg)), Some(()), "it is still in use");
    table.release(first[0]);
    assert_eq!(table.acquire_once(reg, 0), None);
    serve(&mut table);
    assert_eq!((table.counters().once, table.counters().registrations), (1, 2));
    assert_eq!(table.counters().pinned, 4 * PAGE, "the first one is gone");
    table.invalidate(0, u64::MAX);
    serve(&mut table);
}

#[test]
fn what_the_system_refuses_shrinks_the_budget_and_is_told() {
    let mut table = Table::new(settings(8, 8), 2);
    let first = attach(&mut table, 1, run_of(0, 4)).expect("room");
    serve(&mut table);
    let second = attach(&mut table, 1, run_of(8, 4)).expect("room");
    let Some(Action::Register(reg, _)) = table.next_action() else { panic!("it is begun") };
    table.registered(reg, Err(RegisterError::Limit));
    assert_eq!(table.next_action(), Some(Action::Settled(reg)));
    assert_eq!((table.key(reg), table.counters().budget), (None, 4 * PAGE));
    table.detach(1, second[0]);
    table.detach(1, first[0]);
    attach(&mut table, 1, run_of(16, 2)).expect("room, if the victim goes");
    assert_eq!(serve(&mut table).len(), 1);
    assert_eq!((table.counters().evictions, table.counters().pinned), (1, 2 * PAGE));
}

#[test]
fn what_the_system_has_refused_is_asked_of_it_again_now_and_then() {
    let mut table = Table::new(settings(8, 8), 2);
    let refused = |table: &mut Table| {
        let holder = attach(table, 1, run_of(0, 2)).expect("room")[0];
        let asked = match table.next_action() {
            Some(Action::Register(reg, _)) => {
                table.registered(reg, Err(RegisterError::Limit));
                true
            }
            _ => false,
        };
        serve(table);
        assert_eq!(table.key(table.held(holder).0), None);
        table.detach(1, holder);
        asked
    };
    assert!(refused(&mut table));
    assert_eq!(table.counters().budget, 0, "as if nothing could be registered at all");
    let asked = (0..127).filter(|_| refused(&mut table)).count();
    assert_eq!((asked, table.counters().budget), (1, 0));
    let given = attach(&mut table, 1, run_of(0, 2)).expect("room")[0];
    serve(&mut table);
    assert!(table.key(table.held(given).0).is_some(), "it is allowed by now");
    assert_eq!((table.counters().budget, table.counters().pinned), (2 * PAGE, 2 * PAGE));
}

#[test]
fn what_the_system_does_not_take_back_never_makes_more_of_the_budget() {
    let mut table = Table::new(settings(8, 8), 2);
    let budget = table.counters().budget;
    for round in 0..1000 {
        let Ok(held) = attach(&mut table, 1, run_of(round * 8, 4)) else { panic!("round {round}") };
        while let Some(action) = table.next_action() {
            match action {
                Action::Register(reg, _) => table.registered(reg, Ok(Key(round))),
                Action::Deregister(reg) => table.not_deregistered(reg),
                _ => {}
            }
        }
        assert!(held.into_iter().all(|holder| table.detach(1, holder)));
        assert_eq!(table.audit(), Ok(()), "round {round}");
        let TableCounters { pinned, pinned_peak, .. } = table.counters();
        assert!(pinned <= budget && pinned_peak <= budget, "round {round}: {pinned}, {pinned_peak}");
    }
    assert!(table.counters().stuck > 0 && table.counters().pinned_peak == budget);
}

#[test]
fn what_was_refused_was_never_pinned() {
    let mut table = Table::new(settings(8, 8), 2);
    attach(&mut table, 1, run_of(0, 4)).expect("room");
    let Some(Action::Register(reg, _)) = table.next_action() else { panic!("it is begun") };
    table.registered(reg, Err(RegisterError::Limit));
    assert_eq!((table.counters().pinned, table.counters().pinned_peak), (0, 0));
}

/// What may happen to a table.
#[derive(Clone, Debug)]
enum Step {
    Attach(Rank, u64, u32),
    Detach(usize),
    Pin(u64, u32),
    Release(usize),
    Keep(u64, u32),
    Unpin(usize),
    Acquire(u64),
    Invalidate(u64, u32),
    /// The transport ends what it began so long ago, well or not.
    Finish(usize, bool),
    Drop(Rank),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u32..4, 0u64..24, 1u32..6).prop_map(|(peer, first, count)| Step::Attach(peer, first, count)),
        4 => any::<usize>().prop_map(Step::Detach),
        2 => (0u64..24, 1u32..6).prop_map(|(first, count)| Step::Pin(first, count)),
        3 => any::<usize>().prop_map(Step::Release),
        2 => (0u64..24, 1u32..9).prop_map(|(first, count)| Step::Keep(first, count)),
        1 => any::<usize>().prop_map(Step::Unpin),
        2 => (0u64..24).prop_map(Step::Acquire),
        1 => (0u64..24, 1u32..4).prop_map(|(first, count)| Step::Invalidate(first, count)),
        8 => (any::<usize>(), proptest::bool::weighted(0.9)).prop_map(|(which, well)| Step::Finish(which, well)),
        1 => (1u32..4).prop_map(Step::Drop),
    ]
}

/// A plain record of who refers to what, and what the transport has under way.
#[derive(Default)]
struct Model {
    holders: Vec<(Rank, HolderId)>,
    locals: Vec<RegId>,
    /// Pins, and their buckets.
    pins: Vec<(PinId, Range<u64>)>,
    begun: Vec<(RegId, Run)>,
    leaving: Vec<RegId>,
    /// What is registered, by the transport's books.
    pinned: BTreeMap<RegId, Run>,
}

impl Model {
    fn step(&mut self, table: &mut Table, step: Step) {
        match step {
            Step::Attach(peer, first, count) => {
                if let Ok(got) = attach(table, peer, run_of(first, count)) {
                    let runs: Vec<Run> = got.iter().map(|holder| table.held(*holder).1).collect();
                    let covered = (first..first + u64::from(count))
                        .all(|b| runs.iter().any(|r| r.first <= b && b < end_of(*r)));
                    assert!(covered, "{runs:?} for {count} from {first}");
                    self.holders.extend(got.into_iter().map(|holder| (peer, holder)));
                }
            }
            Step::Detach(which) if !self.holders.is_empty() => {
                let (peer, holder) = self.holders.swap_remove(which % self.holders.len());
                assert!(!table.detach(peer + 10, holder), "another peer cannot give it back");
                assert!(table.detach(peer, holder));
            }
            Step::Pin(first, count) => _ = table.pin(run_of(first, count), &mut self.locals),
            Step::Release(which) if !self.locals.is_empty() => {
                table.release(self.locals.swap_remove(which % self.locals.len()));
            }
            Step::Keep(first, count) => self.keep(table, first, count),
            Step::Unpin(which) if !self.pins.is_empty() => {
                table.unpin(self.pins.swap_remove(which % self.pins.len()).0);
            }
            Step::Acquire(bucket) => {
                if let Some((reg, run)) = table.acquire(bucket) {
                    assert!(self.pinned.contains_key(&reg) && !self.leaving.contains(&reg));
                    assert!(run.first <= bucket && bucket < end_of(run));
                    self.locals.push(reg);
                }
            }
            Step::Invalidate(first, count) => {
                let changed = first..first + u64::from(count);
                let held = |table: &Table, pin| table.pinning(pin) == Pinning::Held;
                let before: Vec<bool> = self.pins.iter().map(|(pin, _)| held(table, *pin)).collect();
                table.invalidate(changed.start, changed.end);
                table.pin_anew(changed.clone());
                for ((pin, buckets), before) in self.pins.iter().zip(before) {
                    let touched = buckets.start < changed.end && changed.start < buckets.end;
                    let now = table.pinning(*pin);
                    assert!(!before || !touched || now == Pinning::Gone, "{now:?} of {buckets:?}");
                    assert!(
                        !before || touched || now != Pinning::Failed(RegisterError::Fault),
                        "{buckets:?}"
                    );
                }
            }
            Step::Finish(which, well) => self.finish(table, which, well),
            Step::Drop(peer) => {
                table.drop_peer(peer);
                self.holders.retain(|(rank, _)| *rank != peer);
            }
            Step::Detach(_) | Step::Release(_) | Step::Unpin(_) => {}
        }
        self.listen(table);
    }

    /// Pins some buckets: all of them, or nothing is touched.
    fn keep(&mut self, table: &mut Table, first: u64, count: u32) {
        let buckets = first..first + u64::from(count);
        let before = (table.counters(), table.references());
        match table.begin_pin(buckets.clone()) {
            Ok(pin) => {
                table.pin_part(pin, run_of(first, count)).expect("there was room for it just now");
                self.pins.push((pin, buckets));
            }
            Err(wanted) => {
                assert!(wanted >= u64::from(count) * PAGE);
                let refused = TableCounters { refusals: before.0.refusals + 1, ..before.0 };
                assert_eq!((table.counters(), table.references()), (refused, before.1));
            }
        }
    }

    fn finish(&mut self, table: &mut Table, which: usize, well: bool) {
        let pending = self.begun.len() + self.leaving.len();
        if pending == 0 {
            return;
        }
        let which = which % pending;
        if which < self.begun.len() {
            let (reg, run) = self.begun.swap_remove(which);
            if well {
                self.pinned.insert(reg, run);
            }
            table.registered(reg, if well { Ok(Key(7)) } else { Err(RegisterError::Fault) });
        } else {
            let reg = self.leaving.swap_remove(which - self.begun.len());
            self.pinned.remove(&reg);
            table.deregistered(reg);
        }
    }

    fn listen(&mut self, table: &mut Table) {
        while let Some(action) = table.next_action() {
            match action {
                Action::Register(reg, run) => self.begun.push((reg, run)),
                Action::Deregister(reg) => {
                    assert!(!self.locals.contains(&reg), "an operation still uses it");
                    let held = self.holders.iter().any(|(_, holder)| table.held(*holder).0 == reg);
                    assert!(!held, "a peer still holds it");
                    self.leaving.push(reg);
                }
                _ => {}
            }
        }
        let runs = self.pinned.values().chain(self.begun.iter().map(|(_, run)| run));
        let bytes: u64 = runs.map(|run| u64::from(run.count) * PAGE).sum();
        assert_eq!(bytes, table.counters().pinned, "the transport's books and the table's");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    #[cfg_attr(miri, ignore = "minutes for a few histories")]
    fn any_history_keeps_the_law_and_what_is_referred_to(
        steps in proptest::collection::vec(step(), 1..120),
        peers in 1u64..16, victims in 0u64..12, order in 0usize..3, quota in 0u8..3, borrow: bool,
    ) {
        let order = [Order::Fifo, Order::Lru, Order::Sieve][order];
        let quota = match quota {
            0 => Quota::Even,
            1 => Quota::Leases { guaranteed: 0 },
            _ => Quota::Leases { guaranteed: 2 * PAGE },
        };
        let mut table = Table::new(Settings { order, quota, victims_borrow: borrow, ..settings(peers, victims) }, 4);
        let mut model = Model::default();
        for step in steps {
            model.step(&mut table, step);
            table.audit().map_err(TestCaseError::fail)?;
        }
        // Once everybody has let go and the transport has caught up, nothing but victims is left.
        for peer in 1..4 {
            table.drop_peer(peer);
        }
        model.holders.clear();
        for (pin, _) in std::mem::take(&mut model.pins) {
            table.unpin(pin);
        }
        for reg in std::mem::take(&mut model.locals) {
            table.release(reg);
        }
        model.listen(&mut table);
        while !(model.begun.is_empty() && model.leaving.is_empty()) {
            model.finish(&mut table, 0, true);
            model.listen(&mut table);
        }
        table.audit().map_err(TestCaseError::fail)?;
        prop_assert_eq!((table.used.peers, table.used.local, table.line.len()), (0, 0, 0));
        prop_assert!(table.pins.all.is_empty() && table.pins.runs.is_empty() && table.pins.ended.is_empty());
        prop_assert_eq!(table.used.victims, table.counters.pinned);
    }
}
