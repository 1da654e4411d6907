use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::node::lanes;

const PEER: Rank = 1;

fn one_sided() -> OpKind {
    OpKind::OneSided { peer: PEER, on_complete: None }
}

#[test]
fn the_first_outcome_counts_and_is_taken_once() {
    let mut ops = Operations::default();
    let key = ops.insert(one_sided(), None);
    assert_eq!((ops.in_flight(), ops.take(key).is_none()), (1, true));
    ops.finish(key, Ok(7));
    ops.finish(key, Err(OpError::PeerLost { peer: PEER }));
    assert_eq!((ops.in_flight(), ops.take(key).map(|(outcome, _)| outcome)), (0, Some(Ok(7))));
    assert!(ops.take(key).is_none() && ops.next_end().is_none());
}

#[test]
fn a_part_is_told_of_by_its_end_and_its_parent_is_named() {
    let mut ops = Operations::default();
    let whole = ops.insert(one_sided(), None);
    let part = ops.insert_child(one_sided(), whole);
    assert_eq!(ops.in_flight(), 1, "a part is not counted");
    ops.finish(part, Ok(0));
    let end = ops.next_end().expect("it has ended");
    assert_eq!((end.key, end.parent, end.outcome), (part, Some(whole), Ok(0)));
    assert!(ops.get(part).is_none() && ops.next_end().is_none() && ops.in_flight() == 1);
}

#[test]
fn failures_of_what_nobody_asks_about_are_their_clients() {
    let mut ops = Operations::default();
    let lost = OpError::PeerLost { peer: PEER };
    ops.act_for(3);
    let (before, after) = (ops.insert(one_sided(), None), ops.insert(one_sided(), None));
    ops.detach(before);
    [before, after].into_iter().for_each(|key| ops.finish(key, Err(lost)));
    ops.detach(after);
    ops.act_for(0);
    assert_eq!((ops.has_failure(), ops.take_failure()), (false, None));
    ops.act_for(3);
    assert_eq!(
        (ops.take_failure_with(PEER), ops.take_failure()),
        (Some(lost), None),
        "the first of each peer"
    );
    assert_eq!(ops.in_flight_of_all(), 0);
}

#[test]
fn nobody_need_look_before_the_earliest_deadline() {
    let mut ops = Operations::default();
    assert_eq!(ops.none_due_before(), None);
    let keys = [Some(9), None, Some(5)].map(|deadline| ops.insert(OpKind::BarrierWait, deadline));
    assert_eq!(ops.none_due_before(), Some(5));
    keys.into_iter().for_each(|key| _ = ops.remove(key));
    assert_eq!(ops.none_due_before(), None);
    ops.insert(OpKind::BarrierWait, None);
    assert_eq!(ops.none_due_before(), None, "what is gone is never due");
}

#[test]
fn what_was_given_up_settles_by_news_of_its_own_peer_alone() {
    let (mut ops, mut core) = (Operations::default(), lanes::core());
    let key = ops.insert(one_sided(), None);
    let op = OpId::of(key);
    let awaited = [Awaited::Report(op), Awaited::Chunk(key, 2)];
    ops.finish(key, Err(OpError::Timeout { peer: PEER }));
    ops.begin_to_settle(&mut core, (op, 0), PEER, &awaited);
    assert_eq!((ops.in_flight(), ops.is_quiet(), ops.settles(op)), (0, false, true));
    assert!(!ops.has_settled(awaited[1], Some(PEER + 1)) && ops.has_settled(awaited[1], Some(PEER)));
    assert!(!ops.has_settled(awaited[1], Some(PEER)), "an answer is believed once");
    assert!(ops.has_settled(awaited[0], None) && ops.is_quiet() && ops.settling().len() == 0);
    core.lose(PEER);
    ops.begin_to_settle(&mut core, (op, 0), PEER, &awaited);
    assert!(ops.is_quiet() && core.counters.given_up == 1, "of a lost peer nothing more is heard");
}

/// What is done with the operation of a number, if that is there.
#[derive(Clone, Copy, Debug)]
enum Act {
    Insert(u8),
    InsertPart(usize),
    Finish(usize, bool),
    Take(usize),
    Detach(usize),
    Watch(usize),
}

/// What a test knows of an operation.
#[derive(Default)]
struct Known {
    client: u8,
    is_part: bool,
    detached: bool,
    watched: bool,
    ended: bool,
}

proptest! {
    /// Whatever is done with operations: each end is told once, to whoever cares, and the counts are right.
    #[test]
    fn each_end_is_told_once(acts in proptest::collection::vec(prop_oneof![
        3 => (0..3_u8).prop_map(Act::Insert),
        2 => (0..20_usize).prop_map(Act::InsertPart),
        4 => (0..20_usize, any::<bool>()).prop_map(|(at, well)| Act::Finish(at, well)),
        2 => (0..20_usize).prop_map(Act::Take),
        2 => (0..20_usize).prop_map(Act::Detach),
        2 => (0..20_usize).prop_map(Act::Watch),
    ], 0..60)) {
        let (mut ops, mut keys) = (Operations::default(), Vec::new());
        let mut all: BTreeMap<OpKey, Known> = BTreeMap::new();
        for act in acts {
            match act {
                Act::Insert(client) => {
                    ops.act_for(client);
                    let key = ops.insert(one_sided(), None);
                    all.insert(key, Known { client, ..Known::default() });
                    keys.push(key);
                }
                Act::InsertPart(of) => {
                    let Some(&parent) = keys.get(of).filter(|of| !all[of].ended) else { continue };
                    ops.act_for(all[&parent].client);
                    let key = ops.insert_child(one_sided(), parent);
                    all.insert(key, Known { client: all[&parent].client, is_part: true, ..Known::default() });
                    keys.push(key);
                }
                Act::Finish(at, well) => {
                    let Some(key) = keys.get(at) else { continue };
                    let known = all.get_mut(key).expect("inserted above");
                    let outcome = if well { Ok(0) } else { Err(OpError::PeerLost { peer: PEER }) };
                    ops.finish(*key, outcome);
                    let told = ops.next_end().map(|end| (end.key, end.outcome));
                    let is_told = !known.ended && (known.is_part || known.detached);
                    prop_assert_eq!(told, is_told.then_some((*key, outcome)));
                    let mut named = Vec::new();
                    ops.take_watched(&mut named);
                    prop_assert_eq!(named.len(), usize::from(!known.ended && !is_told && known.watched));
                    known.ended = true;
                }
                Act::Take(at) => {
                    let Some(key) = keys.get(at) else { continue };
                    let known = &all[key];
                    let is_there = known.ended && !known.is_part && !known.detached;
                    prop_assert_eq!(ops.take(*key).is_some(), is_there);
                    all.get_mut(key).expect("inserted above").detached |= is_there;
                }
                Act::Detach(at) => {
                    let Some(key) = keys.get(at).filter(|key| !all[key].is_part) else { continue };
                    let known = all.get_mut(key).expect("inserted above");
                    ops.detach(*key);
                    prop_assert_eq!(ops.next_end().is_some(), known.ended && !known.detached);
                    known.detached = true;
                }
                Act::Watch(at) => {
                    let Some(key) = keys.get(at).filter(|key| !all[key].is_part) else { continue };
                    let known = all.get_mut(key).expect("inserted above");
                    let may = !known.ended && !known.detached;
                    prop_assert!(!may || ops.watch(*key));
                    known.watched |= may;
                }
            }
            let open = |client: Option<u8>| all.values().filter(|known| {
                !known.ended && !known.is_part && client.is_none_or(|client| client == known.client)
            }).count();
            prop_assert_eq!(ops.in_flight_of_all(), open(None));
            for client in 0..3 {
                ops.act_for(client);
                prop_assert_eq!(ops.in_flight(), open(Some(client)));
            }
        }
    }
}
