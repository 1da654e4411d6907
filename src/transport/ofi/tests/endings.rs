//! Peers that die, hang or are given up, and sleeping until something comes.

use std::time::{Duration, Instant};

use conformance::Cluster;
use engine::registration::Settings;
use engine::{
    AmBody, AmSend, Atomic, Direction, Inbox, Lane, MemId, OpError, OpId, Outcome, Piece, Place, Rank,
    Transport,
};
use fabric::Provider;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::cluster::{LIMIT, OfiCluster, Setting, providers};
use super::suite::firehose;
use crate::transport::contract::{NodeTransport as _, Rest};
use crate::transport::ofi::landings::Landing;
use crate::transport::ofi::link::Pause;

pub(super) const LEN: usize = 200_000;
pub(super) const BOTH: [Direction; 2] = [Direction::Put, Direction::Get];

pub(super) fn setting(provider: &Provider, registration: Option<Settings>) -> Setting<'_> {
    Setting {
        provider,
        registration,
        confirms: false,
        registers_local: false,
        pins: false,
        send_timeout: LIMIT,
    }
}

/// Enough for all that a test touches.
pub(super) fn ample() -> Option<Settings> {
    Some(firehose(4096, 4096))
}

/// Over each provider.
pub(super) fn over_each(test: impl Fn(&Provider)) {
    for provider in providers() {
        eprintln!("over {}", provider.description().provider);
        test(&provider);
    }
}

/// Lets these ranks make progress until `done`.
pub(super) fn until(cluster: &mut OfiCluster, awake: &[Rank], mut done: impl FnMut(&mut OfiCluster) -> bool) {
    let (start, mut inbox) = (Instant::now(), Inbox::default());
    while !done(cluster) {
        assert!(start.elapsed() < LIMIT, "it does not end");
        for rank in awake {
            cluster.node(*rank).poll(&mut inbox);
        }
        cluster.step();
    }
}

pub(super) fn outcome(cluster: &mut OfiCluster, awake: &[Rank], rank: Rank, id: OpId) -> Outcome {
    let mut outcome = None;
    until(cluster, awake, |cluster| {
        outcome = cluster.node(rank).outcome(id);
        outcome.is_some()
    });
    outcome.expect("until returned")
}

pub(super) fn start(
    cluster: &mut OfiCluster,
    peer: Rank,
    direction: Direction,
    here: Place,
    there: Place,
) -> OpId {
    let piece = Piece::new(there, here, LEN as u64).expect("it does not wrap");
    cluster.node(0).transfer(peer, direction, &[piece], None)
}

/// Memory of rank 0 and of a peer, whose registration rank 0 holds by now, and to which long puts go from
/// callers' memory. The auxiliary endpoint has been used for both directions.
pub(super) fn held(cluster: &mut OfiCluster, peer: Rank) -> (Place, Place) {
    let (here, there) = (cluster.private(0, LEN), cluster.private(peer, LEN));
    let id = start(cluster, peer, Direction::Put, here, there);
    assert_eq!(outcome(cluster, &[0, peer], 0, id), Ok(0));
    land(cluster, peer);
    for direction in BOTH {
        let id = start(cluster, peer, direction, here, there);
        assert_eq!(outcome(cluster, &[0, peer], 0, id), Ok(0));
    }
    (here, there)
}

/// The directions in which long copies go from or to callers' memory. Over `net` puts do not.
pub(super) fn lent(provider: &Provider) -> &'static [Direction] {
    if provider.description().provider == "net" { &[Direction::Get] } else { &BOTH }
}

/// Waits for a landing at a peer.
pub(super) fn land(cluster: &mut OfiCluster, peer: Rank) {
    until(cluster, &[0, peer], |cluster| {
        let transport = cluster.transport(0);
        let is_refused =
            matches!(transport.links.get(peer).expect("they talk").copying.landing, Landing::Refused(_));
        !transport.copies.delivers || is_refused || transport.landing(peer).is_some()
    });
}

fn note(peer: Rank) -> AmSend<'static> {
    AmSend { peer, lane: Lane::Request, handler: 0, args: [0; 4], body: AmBody::Short }
}

#[test]
fn copies_to_what_is_held_ask_nobody() {
    over_each(|provider| {
        let mut cluster = OfiCluster::new(2, setting(provider, ample()));
        let (here, there) = held(&mut cluster, 1);
        let before = cluster.node(0).registration_counters();
        for direction in BOTH {
            let id = start(&mut cluster, 1, direction, here, there);
            // The target's engine does nothing; its provider needs somebody to call it.
            let ended = |cluster: &mut OfiCluster| {
                cluster.transport(1).progress();
                cluster.node(0).is_done(id)
            };
            until(&mut cluster, &[0], ended);
            assert_eq!(cluster.node(0).outcome(id), Some(Ok(0)));
        }
        let after = cluster.node(0).registration_counters();
        assert!(after.hits > before.hits);
        assert_eq!((after.moves, after.bounced), (before.moves, before.bounced));
    });
}

#[test]
fn a_peer_that_dies_is_lost_and_nobody_else() {
    over_each(|provider| {
        for registration in [None, ample()] {
            let mut cluster = OfiCluster::new(3, setting(provider, registration));
            let memory = [1, 2].map(|peer| held(&mut cluster, peer));
            let word = cluster.heap(2, 8);
            let living = BOTH.map(|direction| start(&mut cluster, 1, direction, memory[0].0, memory[0].1));
            let mut dying =
                BOTH.map(|direction| start(&mut cluster, 2, direction, memory[1].0, memory[1].1)).to_vec();
            dying.extend((0..40).map(|_| cluster.node(0).atomic(2, word, Atomic::fetch_add(1), None)));
            cluster.crash(2);
            let since = Instant::now();
            until(&mut cluster, &[0, 1], |cluster| cluster.node(0).is_lost(2));
            eprintln!("found after {:?}", since.elapsed());
            for id in dying {
                let outcome = outcome(&mut cluster, &[0, 1], 0, id);
                assert!(matches!(outcome, Ok(_) | Err(OpError::PeerLost { peer: 2 })), "{outcome:?}");
            }
            for id in living {
                assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
            }
            until(&mut cluster, &[0, 1], |cluster| cluster.node(0).references() == (0, 0));
            assert!(!cluster.node(0).is_lost(1));
        }
    });
}

#[test]
fn a_peer_that_dies_in_silence_is_lost() {
    over_each(|provider| {
        let mut cluster = OfiCluster::new(3, setting(provider, None));
        cluster.crash(2);
        until(&mut cluster, &[0, 1], |cluster| cluster.node(0).is_lost(2) && cluster.node(1).is_lost(2));
        assert!(!cluster.node(0).is_lost(1) && !cluster.node(1).is_lost(0));
    });
}

#[test]
fn a_peer_that_was_never_there_is_lost_when_patience_ends() {
    over_each(|provider| {
        let send_timeout = Duration::from_millis(200);
        let mut cluster = OfiCluster::strangers(2, Setting { send_timeout, ..setting(provider, None) });
        cluster.crash(1);
        let since = Instant::now();
        assert_eq!(cluster.node(0).send_am(&note(1)), Ok(()));
        until(&mut cluster, &[0], |cluster| cluster.node(0).is_lost(1));
        eprintln!("found after {:?}", since.elapsed());
        assert!(cluster.node(0).send_am(&note(1)).is_err());
    });
}

/// The provider says of a network that is away for a while what it says of a process that has ended.
#[test]
fn a_peer_that_lives_is_not_lost_while_the_provider_reconnects() {
    if !testbed::has_time_for("a network that is away until patience ends") {
        return;
    }
    over_each(|provider| {
        let silences = [None, Some(Duration::from_secs(60))];
        for (silence, is_met) in silences.into_iter().flat_map(|silence| [(silence, true), (silence, false)])
        {
            let mut cluster = match is_met {
                true => OfiCluster::new(2, setting(provider, None)),
                false => OfiCluster::strangers(2, setting(provider, None)),
            };
            cluster.transport(0).silence = Box::new(move |_| silence);
            cluster.transport(0).links.iter_mut().for_each(|(_, link)| link.life.silence_max = silence);
            cluster.transport(0).endpoint.script.connects = true;
            let word = cluster.heap(1, 8);
            let id = cluster.node(0).atomic(1, word, Atomic::fetch_add(1), None);
            let since = Instant::now();
            until(&mut cluster, &[0, 1], |_| since.elapsed() > Duration::from_secs(3));
            assert!(!cluster.node(0).is_lost(1), "met before: {is_met}, silence: {silence:?}");
            cluster.transport(0).endpoint.script.connects = false;
            assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
        }
    });
}

#[test]
fn who_is_given_up_is_told() {
    over_each(|provider| {
        let mut cluster = OfiCluster::new(2, setting(provider, None));
        assert_eq!(cluster.node(1).send_am(&note(0)), Ok(()));
        cluster.node(0).lose(1);
        until(&mut cluster, &[0, 1], |cluster| cluster.node(1).is_lost(0));
        assert_eq!(cluster.transport(0).take_lost(), [], "the engine knows whom it has lost");
    });
}

#[test]
fn who_is_lost_and_lives_is_told_when_it_goes_on_talking() {
    over_each(|provider| {
        let mut cluster = OfiCluster::new(2, setting(provider, None));
        // A connection broke, and only rank 0 had something under way: the other hears nothing of it.
        cluster.transport(0).lose(1);
        let word = cluster.heap(0, 8);
        let id = cluster.node(1).atomic(0, word, Atomic::fetch_add(1), None);
        assert_eq!(outcome(&mut cluster, &[0, 1], 1, id), Err(OpError::PeerLost { peer: 0 }));
        assert_eq!(cluster.transport(0).strangers, 0, "it is known who talks");
    });
}

#[test]
fn a_copy_that_was_given_up_touches_no_buffer() {
    over_each(|provider| {
        for direction in BOTH {
            let mut cluster = OfiCluster::new(2, setting(provider, ample()));
            let (here, there) = held(&mut cluster, 1);
            cluster.poke(0, here, &[1; LEN]);
            cluster.poke(1, there, &[2; LEN]);
            let id = start(&mut cluster, 1, direction, here, there);
            // The provider has some of it, or all.
            for _ in 0..20 {
                cluster.node(0).poll(&mut Inbox::default());
            }
            assert!(!cluster.node(0).is_done(id), "the peer's provider is not called");
            cluster.node(0).cancel(id);
            cluster.poke(0, here, &[3; LEN]);
            until(&mut cluster, &[0, 1], |cluster| cluster.node(0).references() == (0, 0));
            let (mut found, mut left) = (vec![0; LEN], vec![0; LEN]);
            cluster.peek(1, there, &mut found);
            cluster.peek(0, here, &mut left);
            assert!(left.iter().all(|byte| *byte == 3), "a buffer given back was written");
            assert!(found.iter().all(|byte| [1, 2].contains(byte)), "a buffer given back was sent");
            let id = start(&mut cluster, 1, Direction::Put, here, there);
            assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
        }
    });
}

/// Fills memory of a rank.
pub(super) fn fill(cluster: &mut OfiCluster, rank: Rank, place: Place, byte: u8) {
    cluster.poke(rank, place, &[byte; LEN]);
}

/// Whether memory of a rank holds only this.
pub(super) fn holds(cluster: &mut OfiCluster, rank: Rank, place: Place, byte: u8) -> bool {
    let mut found = vec![0; LEN];
    cluster.peek(rank, place, &mut found);
    found.iter().all(|at| *at == byte)
}

/// Lets rank 0 try for a while, until its provider has all that it takes.
fn try_alone(cluster: &mut OfiCluster) {
    for _ in 0..200 {
        cluster.node(0).poll(&mut Inbox::default());
    }
}

#[test]
fn a_copy_that_is_given_up_is_noticed_by_no_other() {
    over_each(|provider| {
        let mut cluster = OfiCluster::new(3, setting(provider, ample()));
        let mut copies = Vec::new();
        for (number, peer) in [1, 1, 1, 1, 2, 2, 2, 2].into_iter().enumerate() {
            let (here, there) = held(&mut cluster, peer);
            fill(&mut cluster, 0, here, number as u8);
            fill(&mut cluster, peer, there, 100 + number as u8);
            copies.push((number as u8, peer, BOTH[number % 2], here, there));
        }
        let ids: Vec<OpId> = copies
            .iter()
            .map(|(_, peer, direction, here, there)| start(&mut cluster, *peer, *direction, *here, *there))
            .collect();
        try_alone(&mut cluster);
        assert_eq!(cluster.transport(0).endpoint_pool.closed, 0);
        // A put and a get with the peer that hangs: the first costs its auxiliary endpoint.
        for at in [0, 1] {
            cluster.node(0).cancel(ids[at]);
            fill(&mut cluster, 0, copies[at].3, 99);
        }
        assert_eq!(cluster.transport(0).endpoint_pool.closed, 1);
        for (at, (number, peer, direction, here, there)) in copies.iter().enumerate().rev() {
            let awake: &[Rank] = if *peer == 2 { &[0, 2] } else { &[0, 1, 2] };
            if at > 1 {
                assert_eq!(outcome(&mut cluster, awake, 0, ids[at]), Ok(0), "copy {number}");
                let wanted = if *direction == Direction::Put { *number } else { 100 + number };
                assert!(holds(&mut cluster, 0, *here, wanted) && holds(&mut cluster, *peer, *there, wanted));
            }
        }
        until(&mut cluster, &[0, 1, 2], |cluster| cluster.node(0).references() == (0, 0));
        for (_, _, _, here, _) in &copies[..2] {
            assert!(holds(&mut cluster, 0, *here, 99), "a buffer given back was written");
        }
        assert!(!holds(&mut cluster, 1, copies[0].4, 99), "a buffer given back was sent");
        assert!(!cluster.node(0).is_lost(1) && !cluster.node(0).is_lost(2));
    });
}

#[test]
fn who_hangs_costs_one_outlet_until_it_is_heard_from() {
    over_each(|provider| {
        let mut cluster = OfiCluster::new(2, setting(provider, ample()));
        let (here, there) = held(&mut cluster, 1);
        for _ in 0..5 {
            for direction in BOTH {
                let id = start(&mut cluster, 1, direction, here, there);
                try_alone(&mut cluster);
                cluster.node(0).cancel(id);
            }
        }
        assert_eq!(cluster.transport(0).endpoint_pool.closed, 1, "it was not heard from since");
        assert!(cluster.transport(0).links.get(1).expect("they talk").copying.suspect);
        until(&mut cluster, &[0, 1], |cluster| cluster.node(0).references() == (0, 0));
        assert!(!cluster.transport(0).links.get(1).expect("they talk").copying.suspect);
        // It is trusted again; the new auxiliary endpoint connects.
        let id = start(&mut cluster, 1, Direction::Get, here, there);
        assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
        let id = start(&mut cluster, 1, Direction::Get, here, there);
        try_alone(&mut cluster);
        cluster.node(0).cancel(id);
        assert_eq!(cluster.transport(0).endpoint_pool.closed, 2);
    });
}

/// Its connection is not the one that the peer is talked to by, which may well be there.
#[test]
fn an_outlet_that_does_not_reach_a_peer_is_given_up_and_the_peer_is_not() {
    over_each(|provider| {
        let mut cluster = OfiCluster::new(2, setting(provider, ample()));
        let (here, there) = held(&mut cluster, 1);
        cluster.transport(0).endpoint.script.refuse_aux_endpoints = true;
        fill(&mut cluster, 1, there, 9);
        let id = start(&mut cluster, 1, Direction::Get, here, there);
        try_alone(&mut cluster);
        assert_eq!((cluster.transport(0).endpoint_pool.closed, cluster.node(0).is_done(id)), (0, false));
        assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
        assert!(holds(&mut cluster, 0, here, 9));
        assert_eq!(cluster.transport(0).endpoint_pool.closed, 1);
        // The peer has been heard from since; but that it has been all the while.
        let pause = |cluster: &mut OfiCluster| {
            let link = cluster.transport(0).links.get_mut(1).expect("they talk");
            assert!(!link.copying.suspect);
            format!("{:?}", link.copying.aux_endpoint_pause)
        };
        let none = format!("{:?}", Pause::default());
        let before = pause(&mut cluster);
        assert_ne!(before, none);
        let id = start(&mut cluster, 1, Direction::Put, here, there);
        assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
        assert_eq!((cluster.transport(0).endpoint_pool.closed, pause(&mut cluster)), (1, before));
        // A while later one is tried again, and has room.
        cluster.transport(0).links.get_mut(1).expect("they talk").copying.aux_endpoint_pause.be_over();
        cluster.transport(0).endpoint.script.refuse_aux_endpoints = false;
        let id = start(&mut cluster, 1, Direction::Get, here, there);
        assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
        assert_eq!((pause(&mut cluster), cluster.node(0).is_lost(1)), (none, false));
    });
}

#[test]
fn where_no_outlet_can_be_had_copies_go_through_buffers() {
    over_each(|provider| {
        let mut cluster = OfiCluster::new(2, setting(provider, ample()));
        let (here, there) = held(&mut cluster, 1);
        let id = start(&mut cluster, 1, Direction::Get, here, there);
        try_alone(&mut cluster);
        cluster.transport(0).endpoint_pool.refuses = true;
        cluster.node(0).cancel(id);
        for (byte, direction) in [(7, Direction::Put), (8, Direction::Get)] {
            let (from, rank) = if direction == Direction::Put { (here, 0) } else { (there, 1) };
            fill(&mut cluster, rank, from, byte);
            let id = start(&mut cluster, 1, direction, here, there);
            assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
            assert!(holds(&mut cluster, 0, here, byte) && holds(&mut cluster, 1, there, byte));
        }
        assert!(!cluster.node(0).is_lost(1));
    });
}

#[test]
fn a_peer_that_hangs_keeps_no_other_waiting() {
    over_each(|provider| {
        let mut cluster = OfiCluster::new(3, setting(provider, ample()));
        let memory = [1, 2].map(|peer| held(&mut cluster, peer));
        let word = cluster.heap(1, 8);
        for direction in [BOTH; 30].into_iter().flatten() {
            start(&mut cluster, 1, direction, memory[0].0, memory[0].1);
            cluster.node(0).atomic(1, word, Atomic::fetch_add(1), None);
        }
        while cluster.node(0).send_am(&note(1)).is_ok() {}
        for direction in BOTH {
            let id = start(&mut cluster, 2, direction, memory[1].0, memory[1].1);
            assert_eq!(outcome(&mut cluster, &[0, 2], 0, id), Ok(0));
        }
        let since = Instant::now();
        until(&mut cluster, &[0, 2], |_| since.elapsed() > Duration::from_secs(4));
        assert!(!cluster.node(0).is_lost(1), "who hangs is not dead");
        until(&mut cluster, &[0, 1, 2], |cluster| cluster.node(0).in_flight() == 0);
    });
}

#[test]
fn who_sleeps_is_woken_by_a_message() {
    over_each(|provider| {
        let mut cluster = OfiCluster::new(2, setting(provider, None));
        let mut inbox = Inbox::default();
        let start = Instant::now();
        while {
            let idle = cluster.transport(1).poll(&mut inbox).is_none();
            !(idle && cluster.transport(1).prepare_sleep() == Rest::Sleep)
        } {
            if start.elapsed() > Duration::from_secs(5) {
                return testbed::skip("this provider never lets anybody sleep");
            }
        }
        assert_eq!(cluster.node(0).send_am(&note(1)), Ok(()));
        cluster.node(0).poll(&mut inbox);
        let fd = cluster.transport(1).wait_fd().expect("the endpoint was opened for it");
        let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
        let woken = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).expect("a descriptor");
        assert_eq!(woken, 1, "nobody wakes who sleeps");
        until(&mut cluster, &[0, 1], |cluster| {
            let event = cluster.transport(1).poll(&mut inbox);
            matches!(event, Some(engine::Event::Message { peer: 0, .. }))
        });
    });
}

/// Whether there is something to wake up for, once rank 0 has seen to all that there was.
fn is_kept_awake(cluster: &mut OfiCluster) -> bool {
    let (since, mut inbox) = (Instant::now(), Inbox::default());
    loop {
        let idle = cluster.transport(0).poll(&mut inbox).is_none()
            && cluster.transport(0).prepare_sleep() == Rest::Sleep;
        let fd = cluster.transport(0).wait_fd().expect("the endpoint was opened for it");
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&at_once)).expect("a descriptor");
        if (idle && ready == 0) || since.elapsed() > Duration::from_secs(2) {
            return ready > 0;
        }
    }
}

#[test]
fn an_answer_that_nobody_wants_any_more_keeps_nobody_awake() {
    over_each(|provider| {
        // More than sockets hold.
        const LONG: usize = 12 << 20;
        let mut cluster = OfiCluster::new(2, setting(provider, ample()));
        let (here, there) = (cluster.private(0, LONG), cluster.private(1, LONG));
        let get = |cluster: &mut OfiCluster| {
            let piece = Piece::new(there, here, LONG as u64).expect("it does not wrap");
            cluster.node(0).transfer(1, Direction::Get, &[piece], None)
        };
        let id = get(&mut cluster);
        assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
        if is_kept_awake(&mut cluster) {
            return testbed::skip("this provider never lets anybody sleep");
        }
        let id = get(&mut cluster);
        try_alone(&mut cluster);
        cluster.transport(1).progress();
        cluster.node(0).cancel(id);
        assert_eq!(cluster.transport(0).endpoint_pool.closed, 1, "some of the answer is still to come");
        let since = Instant::now();
        until(&mut cluster, &[1], |_| since.elapsed() > Duration::from_millis(50));
        assert!(!is_kept_awake(&mut cluster), "the rest of the answer wakes who sleeps, again and again");
    });
}

#[test]
fn memory_that_is_not_there_is_not_registered() {
    over_each(|provider| {
        let mut cluster = OfiCluster::strangers(1, setting(provider, None));
        let here = cluster.private(0, 4096);
        let reg = |index| engine::RegId { index, generation: 0 };
        let transport = cluster.transport(0);
        let keys: Vec<_> = (0..2).map(|index| transport.register(reg(index), here.offset, 64)).collect();
        assert_ne!(keys[0], keys[1], "keys are drawn at random");
        assert!(keys.iter().all(|key| matches!(key, engine::Registering::Done(_))));
        assert_eq!(transport.deregister(reg(0)), engine::Deregistering::Done);
        for bad in [4096, 1 << 46, u64::MAX - 4095] {
            let refused = transport.register(reg(7), bad, 4096);
            assert_eq!(refused, engine::Registering::Failed(engine::registration::RegisterError::Fault));
        }
        assert_eq!(here.mem, MemId::Space);
    });
}

#[test]
fn what_the_provider_does_not_close_is_not_said_to_be_gone() {
    over_each(|provider| {
        let mut cluster = OfiCluster::strangers(1, setting(provider, None));
        let here = cluster.private(0, 4096);
        let (reg, mut inbox) = (engine::RegId { index: 0, generation: 0 }, Inbox::default());
        let transport = cluster.transport(0);
        assert!(matches!(transport.register(reg, here.offset, 64), engine::Registering::Done(_)));
        transport.endpoint.script.keep_regions = true;
        assert_eq!(transport.deregister(reg), engine::Deregistering::Refused);
        transport.close_again();
        assert_eq!(transport.poll(&mut inbox), None, "it is there still");
        transport.endpoint.script.keep_regions = false;
        transport.close_again();
        assert_eq!(transport.poll(&mut inbox), Some(engine::Event::Deregistered { reg }));
        assert_eq!(transport.deferred_closes.len(), 0);
    });
}

#[test]
fn that_no_more_can_be_registered_is_said_once() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tracing::span::{Attributes, Id, Record};

    /// Counts warnings.
    #[derive(Clone, Default)]
    struct Warnings(Arc<AtomicU32>);

    impl tracing::Subscriber for Warnings {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            *metadata.level() == tracing::Level::WARN
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    over_each(|provider| {
        let mut cluster = OfiCluster::strangers(1, setting(provider, None));
        let here = cluster.private(0, 4096);
        let transport = cluster.transport(0);
        transport.endpoint.script.refuse_regions = true;
        let warnings = Warnings::default();
        tracing::subscriber::with_default(warnings.clone(), || {
            for index in 0..3 {
                let reg = engine::RegId { index, generation: 0 };
                let refused = engine::registration::RegisterError::Limit;
                assert_eq!(transport.register(reg, here.offset, 64), engine::Registering::Failed(refused));
            }
        });
        assert_eq!(warnings.0.load(Ordering::SeqCst), 1);
    });
}

/// A queue may have one for whoever asks, again and again.
#[test]
fn failures_of_nothing_that_is_known_keep_nobody() {
    over_each(|provider| {
        let mut cluster = OfiCluster::new(2, setting(provider, None));
        let transport = cluster.transport(0);
        (transport.listened, transport.endpoint.script.fails_namelessly) = (false, true);
        transport.progress_while(|_| true);
        assert!(!transport.listened, "there may be more");
        transport.endpoint.script.fails_namelessly = false;
        transport.progress_while(|_| true);
        assert!(transport.listened);
    });
}
