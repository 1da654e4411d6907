//! Each kind of fault, and what it does.

use engine::node::AmBody;
use engine::registration::RegisterError;
use engine::{
    AmSend, Deregistering, Direction, Event, Inbox, Lane, OpError, Place, Rank, RegId, Registering, Transport,
};
use sim::{Access, Cluster, Costs, Faults, Plan, Step};

use crate::drive::{piece, wait};

const PAGE: u64 = 4096;

fn cluster(size: u32, faults: &str, seed: u64) -> Cluster {
    let faults: Faults = faults.parse().expect("the tests name real faults");
    Cluster::new(Plan { handlers: 1, faults, seed, ..Plan::new(size, Costs::myrinet_gm_2003()) })
}

fn reg(generation: u32) -> RegId {
    RegId { index: 0, generation }
}

/// Ranks 1 and 2 send rank 0 ten messages each, in turn. Who sent those that arrived, and which of its own it
/// was.
fn arrivals(faults: &str, seed: u64) -> Vec<(Rank, u64)> {
    let mut cluster = cluster(3, faults, seed);
    for tag in 0..10 {
        for rank in [1, 2] {
            let args = [tag, 0, 0, 0];
            let note = AmSend { peer: 0, lane: Lane::Request, handler: 0, args, body: AmBody::Short };
            cluster.node(rank).send_am(&note).expect("the lane has room for ten");
        }
    }
    let mut seen = Vec::new();
    while let Some(step) = cluster.step() {
        if let Step::Deliver(0, delivery) = step {
            seen.push((delivery.peer, cluster.inbox().args()[0]));
        }
    }
    seen
}

#[test]
fn delays_reorder_pairs_and_never_the_messages_of_one() {
    let in_turn: Vec<_> = (0..10).flat_map(|tag| [(1, tag), (2, tag)]).collect();
    assert_eq!(arrivals("", 1), in_turn);
    for faults in ["delay=0.2", "reorder"] {
        let mut reordered = 0;
        for seed in 0..20 {
            let seen = arrivals(faults, seed);
            for rank in [1, 2] {
                let own: Vec<u64> =
                    seen.iter().filter(|(from, _)| *from == rank).map(|(_, tag)| *tag).collect();
                assert_eq!(own, (0..10).collect::<Vec<_>>(), "rank {rank} was reordered by seed {seed}");
            }
            reordered += usize::from(seen != in_turn);
        }
        assert!(reordered > 10, "{faults} reordered {reordered} of 20");
    }
}

#[test]
fn registrations_fail_as_often_as_they_should() {
    let mut cluster = cluster(1, "register-fail=0.3", 7);
    let at = cluster.map(0, PAGE, Access::Full).offset;
    let (mut failed, mut generation) = (0, 0);
    for _ in 0..1000 {
        let nic = cluster.node(0).transport();
        match nic.register(reg(generation), at, PAGE) {
            Registering::Done(_) => _ = nic.deregister(reg(generation)),
            Registering::Failed(RegisterError::Limit) => failed += 1,
            other => panic!("{other:?} with no such fault"),
        }
        generation += 1;
        assert_eq!(cluster.pinned(0), 0);
    }
    assert!((250..350).contains(&failed), "{failed} of 1000");
}

/// Lets things happen until rank 0's card tells something.
fn told(cluster: &mut Cluster) -> Event {
    let mut inbox = Inbox::default();
    loop {
        if let Some(event) = cluster.node(0).transport().poll(&mut inbox) {
            return event;
        }
        cluster.pass().expect("a slow registration ends");
    }
}

#[test]
fn a_slow_registration_is_told_later_and_pins_meanwhile() {
    let mut cluster = cluster(1, "register-slow=1,register-fail=0.5", 1);
    let at = cluster.map(0, PAGE, Access::Full).offset;
    let mut failed = 0;
    for generation in 0..20 {
        let reg = reg(generation);
        assert_eq!(cluster.node(0).transport().register(reg, at, PAGE), Registering::Pending);
        assert_eq!(cluster.pinned(0), PAGE);
        match told(&mut cluster) {
            Event::Registered { reg: told, result: Ok(_) } if told == reg => {
                let before = cluster.time_of(0);
                assert_eq!(cluster.node(0).transport().deregister(reg), Deregistering::Pending);
                assert_eq!(cluster.pinned(0), PAGE, "it is pinned until it is said to be no more");
                assert_eq!(told_deregistered(&mut cluster), reg);
                assert!(cluster.now() >= before + 6_000_000);
            }
            Event::Registered { reg: told, result: Err(RegisterError::Limit) } if told == reg => failed += 1,
            other => panic!("{other:?} about a registration"),
        }
        assert_eq!(cluster.pinned(0), 0);
    }
    assert!((5..=15).contains(&failed), "{failed} of 20");
}

fn told_deregistered(cluster: &mut Cluster) -> RegId {
    match told(cluster) {
        Event::Deregistered { reg } => reg,
        other => panic!("{other:?} about a deregistration"),
    }
}

/// Has rank 0 compute, so that time passes, and returns what else happened.
fn pass_time(cluster: &mut Cluster, milliseconds: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..milliseconds * 100 {
        // Time passes as long as anybody lives.
        (0..cluster.size()).for_each(|rank| cluster.compute(rank, 10_000));
        while let Some(step) = cluster.step() {
            if !matches!(step, Step::Network | Step::Polled(_)) {
                steps.push(step);
            }
        }
    }
    steps
}

#[test]
fn limits_shrink_and_come_back() {
    let mut cluster = cluster(1, "shrink=1", 3);
    let at = cluster.map(0, 64 * PAGE, Access::Full).offset;
    let mut outcomes = Vec::new();
    for generation in 0..100 {
        pass_time(&mut cluster, 3);
        let nic = cluster.node(0).transport();
        let done = matches!(nic.register(reg(generation), at, 64 * PAGE), Registering::Done(_));
        if done {
            nic.deregister(reg(generation));
        }
        outcomes.push(done);
    }
    let done = outcomes.iter().filter(|done| **done).count();
    assert!((5..80).contains(&done), "{done} of 100 were within the limit");
    let back = outcomes.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    assert!(back > 2, "a limit came back {back} times only");
}

#[test]
fn unmapped_pages_are_zero_when_they_are_back_and_stale_where_registered() {
    let mut cluster = cluster(1, "unmap=1", 4);
    let at = cluster.map(0, 8 * PAGE, Access::Full);
    cluster.poke(0, at, &[9; 8 * PAGE as usize]).expect("it is mapped");
    let (mut holes, mut at_once, mut later) = (0, 0, 0);
    let mut unmapped_at = None;
    for _ in 0..2000 {
        cluster.compute(0, 10_000);
        while let Some(step) = cluster.step() {
            match step {
                Step::Unmapped { rank: 0, offset, len } => {
                    assert!(at.offset <= offset && offset + len <= at.offset + 8 * PAGE);
                    let byte = cluster.peek(0, Place::new(at.mem, offset), &mut [0]);
                    assert_eq!(byte, Err(offset));
                    unmapped_at = Some(cluster.now());
                    holes += 1;
                }
                Step::Remapped { rank: 0, offset, .. } => {
                    let mut byte = [1];
                    assert_eq!(cluster.peek(0, Place::new(at.mem, offset), &mut byte), Ok(()));
                    assert_eq!(byte, [0]);
                    let again = unmapped_at == Some(cluster.now());
                    (at_once, later) = (at_once + u32::from(again), later + u32::from(!again));
                }
                _ => {}
            }
        }
    }
    assert!(holes > 10 && at_once > 3 && later > 3, "{holes} holes, {at_once} at once, {later} later");
}

#[test]
fn a_rank_that_stops_is_lost_to_all_others() {
    let mut cluster = cluster(4, "stop=0.5", 5);
    let places: Vec<Place> = (0..4).map(|rank| cluster.map(rank, PAGE, Access::Full)).collect();
    let steps = pass_time(&mut cluster, 60);
    let stopped: Vec<Rank> = steps
        .iter()
        .filter_map(|step| if let Step::Stopped(rank) = step { Some(*rank) } else { None })
        .collect();
    assert_eq!(stopped.len(), 2, "two of four go on: {steps:?}");
    let living: Vec<Rank> = (0..4).filter(|rank| !stopped.contains(rank)).collect();
    for rank in &living {
        for lost in &stopped {
            assert!(steps.contains(&Step::Lost { rank: *rank, lost: *lost }), "{steps:?}");
            let piece = piece(places[*lost as usize], places[*rank as usize], 8);
            let id = cluster.node(*rank).transfer(*lost, Direction::Put, &[piece], None);
            assert_eq!(wait(&mut cluster, *rank, id), Err(OpError::PeerLost { peer: *lost }));
        }
    }
    let piece = piece(places[living[1] as usize], places[living[0] as usize], 8);
    let id = cluster.node(living[0]).transfer(living[1], Direction::Put, &[piece], None);
    assert_eq!(wait(&mut cluster, living[0], id), Ok(0));
}

#[test]
fn a_rank_that_restarts_is_lost_and_then_met_by_all_others() {
    let mut cluster = cluster(3, "restart=0.5", 5);
    let steps = pass_time(&mut cluster, 60);
    cluster.calm();
    while cluster.step().is_some() {}
    let all = 0..cluster.size();
    let restarts = |rank| steps.iter().filter(|step| **step == Step::Restarted(rank)).count() as u32;
    assert!(all.clone().map(restarts).sum::<u32>() > 10, "{steps:?}");
    for (rank, peer) in all.clone().flat_map(|rank| (0..3).map(move |peer| (rank, peer))) {
        assert!(cluster.incarnation(rank) >= restarts(rank));
        assert_eq!(cluster.met(rank, peer), cluster.incarnation(peer), "rank {rank} of rank {peer}");
        assert!(!cluster.view(rank).is_lost(peer), "rank {rank} of rank {peer}");
    }
    let places: Vec<Place> = all.map(|rank| cluster.map(rank, PAGE, Access::Full)).collect();
    for (rank, peer) in [(0, 1), (1, 2), (2, 0)] {
        let piece = piece(places[peer as usize], places[rank as usize], 8);
        let id = cluster.node(rank).transfer(peer, Direction::Put, &[piece], None);
        assert_eq!(wait(&mut cluster, rank, id), Ok(0));
    }
}

#[test]
fn the_dead_are_reached_by_nothing() {
    let mut cluster = cluster(2, "", 6);
    let [here, there] = [0, 1].map(|rank| cluster.map(rank, PAGE, Access::Full));
    let pieces = [piece(there, here, 8)];
    let before = cluster.node(1).transfer(0, Direction::Put, &[piece(here, there, 8)], None);
    cluster.poke(0, here, b"to rank1").expect("it is mapped");
    cluster.kill(1);
    let ids = [Direction::Put, Direction::Get].map(|way| cluster.node(0).transfer(1, way, &pieces, None));
    for id in ids {
        assert_eq!(wait(&mut cluster, 0, id), Err(OpError::PeerLost { peer: 1 }));
    }
    while cluster.step().is_some() {}
    assert!(!cluster.node(1).is_done(before), "a dead rank learnt something");
    for (rank, place, wanted) in [(0, here, b"to rank1"), (1, there, &[0; 8])] {
        let mut bytes = [1; 8];
        cluster.peek(rank, place, &mut bytes).expect("it is mapped");
        assert_eq!(&bytes, wanted);
    }
}

#[test]
fn a_mute_rank_answers_nothing_until_it_speaks_again() {
    let mut cluster = cluster(2, "", 6);
    let [here, there] = [0, 1].map(|rank| cluster.map(rank, PAGE, Access::Full));
    cluster.mute(1);
    let note = AmSend { peer: 1, lane: Lane::Request, handler: 0, args: [0; 4], body: AmBody::Short };
    cluster.node(0).send_am(&note).expect("the lane is empty");
    let id = cluster.node(0).transfer(1, Direction::Put, &[piece(there, here, 8)], None);
    assert_eq!(wait(&mut cluster, 0, id), Ok(0), "its card still works");
    while let Some(step) = cluster.step() {
        assert!(!matches!(step, Step::Deliver(..)), "a mute rank took a message");
    }
    assert_eq!(cluster.unmute(1), Step::Unmuted(1));
    let delivered = std::iter::from_fn(|| cluster.step()).any(|step| matches!(step, Step::Deliver(1, _)));
    assert!(delivered, "the message was lost");
}

/// A put's bytes are its caller's again when it is given up; those that are on the wire come nonetheless, as
/// they were, and its node is not quiet before.
#[test]
fn what_was_given_up_lands_late_and_as_it_was() {
    let landed = |faults: &str| {
        let mut cluster = cluster(2, faults, 1);
        let here = cluster.map(0, PAGE, Access::Full);
        let there = cluster.map(1, PAGE, Access::Full);
        cluster.poke(0, here, &[7; 100]).expect("mapped");
        let put = cluster.node(0).transfer(1, Direction::Put, &[piece(there, here, 100)], None);
        cluster.node(0).cancel(put);
        assert_eq!(cluster.node(0).outcome(put), Some(Err(OpError::Timeout { peer: 1 })));
        cluster.poke(0, here, &[8; 100]).expect("mapped");
        assert!(!cluster.view(0).is_quiet() && cluster.view(0).in_flight() == 0);
        while !cluster.view(0).is_quiet() {
            cluster.step().expect("it settles by itself");
        }
        let mut found = [0; 100];
        cluster.peek(1, there, &mut found).expect("mapped");
        assert_eq!((found, cluster.view(0).settling()), ([7; 100], 0));
        cluster.now()
    };
    assert!(landed("late=1") > landed("") + Costs::myrinet_gm_2003().latency_ns);
}
