use std::collections::BTreeMap;

use proptest::prelude::*;

use super::active_message::{AmBody, AmSend};
use super::*;
use crate::node::core::Core;
use crate::node::lanes::{self, Lanes};
use crate::{OpError, SendError};

/// A message that can be told from others, with nothing in it.
const fn numbered(stamp: u64) -> Message {
    Message::AmDone { stamp }
}

const fn request(peer: Rank) -> AmSend<'static> {
    AmSend { peer, lane: Lane::Request, handler: 1, args: [0; 4], body: AmBody::Short }
}

/// The numbers of what has gone by that way.
fn gone(lanes: &Lanes, way: (Rank, Lane)) -> Vec<u64> {
    let numbers = |(peer, lane, message): &(Rank, Lane, Message)| match message {
        Message::AmDone { stamp } if (*peer, *lane) == way => Some(*stamp),
        _ => None,
    };
    lanes.sent.iter().filter_map(numbers).collect()
}

#[test]
fn what_waits_for_a_lane_goes_before_what_comes_later() {
    let (mut mail, mut core) = (Mail::new(2), lanes::core());
    let way = (1, Lane::Request);
    core.transport.room.insert(way, 0);
    mail.send_soon(&mut core, 1, Lane::Request, numbered(1)).expect("it waits");
    core.transport.room.insert(way, 9);
    assert_eq!(mail.send_am(&mut core, &request(1), (0, 0)), Err(SendError::Busy), "another is first");
    assert!(!mail.may_send(&mut core, 1, Lane::Request) && mail.may_send(&mut core, 2, Lane::Request));
    mail.send_soon(&mut core, 1, Lane::Request, numbered(2)).expect("it waits");
    assert!(mail.waits() && core.transport.sent.is_empty());
    assert!(mail.drain_outbox(&mut core, &mut Vec::new()));
    assert_eq!((gone(&core.transport, way), mail.waits()), (vec![1, 2], false));
    assert_eq!(mail.send_am(&mut core, &request(1), (0, 0)), Ok(()));
}

#[test]
fn nothing_goes_that_is_held_back_but_what_ends_that() {
    let (mut mail, mut core) = (Mail::new(0), lanes::core());
    mail.hold_back(true);
    assert_eq!(mail.send_am(&mut core, &request(1), (0, 0)), Err(SendError::Busy));
    mail.send_soon(&mut core, 1, Lane::Request, numbered(1)).expect("it waits");
    mail.answer(&mut core, 1, numbered(2), 0);
    assert!(mail.hold_arrival() && mail.let_go().is_none());
    assert!(!mail.drain_outbox(&mut core, &mut Vec::new()) && !mail.send_deferred(&mut core));
    assert_eq!((core.transport.take_sent(), mail.audit()), (vec![], Ok(())));
    mail.post(&mut core, 2, Lane::Request, numbered(3), &[]);
    assert!(mail.send_deferred(&mut core), "a poll sends it");
    assert_eq!(core.transport.take_sent(), [(2, Lane::Request, numbered(3))]);
    mail.hold_back(false);
    assert!(mail.send_deferred(&mut core) && mail.drain_outbox(&mut core, &mut Vec::new()));
    assert_eq!(core.transport.take_sent(), [(1, Lane::Reply, numbered(2)), (1, Lane::Request, numbered(1))]);
    assert!(mail.let_go().is_some_and(|held| held.arrival) && !mail.holds_arrival());
}

#[test]
fn an_answer_goes_after_those_that_waited_for_the_same_peer() {
    let (mut mail, mut core) = (Mail::new(0), lanes::core());
    mail.hold_back(true);
    mail.answer(&mut core, 1, numbered(1), 0);
    mail.answer(&mut core, 2, numbered(2), 0);
    mail.hold_back(false);
    mail.answer(&mut core, 1, numbered(3), 0);
    assert_eq!(gone(&core.transport, (1, Lane::Reply)), [1, 3]);
    assert_eq!(gone(&core.transport, (2, Lane::Reply)), [], "its turn comes with a poll");
}

#[test]
fn what_cannot_be_sent_in_the_end_is_told_once() {
    let (mut mail, mut core) = (Mail::new(0), lanes::core());
    core.transport.room.insert((1, Lane::Request), 0);
    mail.send_soon(&mut core, 1, Lane::Request, numbered(1)).expect("it waits");
    core.transport.cut_off.insert(1);
    let mut unsent = Vec::new();
    assert!(mail.drain_outbox(&mut core, &mut unsent));
    let told: Vec<_> = unsent.iter().map(|unsent| (unsent.peer, unsent.message, unsent.error)).collect();
    assert_eq!(told, [(1, numbered(1), OpError::PeerLost { peer: 1 })]);
    assert_eq!(mail.outbox_len(), 0);
    core.lose(2);
    let lost = mail.send_soon(&mut core, 2, Lane::Request, numbered(2));
    assert_eq!(lost, Err(OpError::PeerLost { peer: 2 }));
}

#[test]
fn a_peer_that_is_gone_leaves_nothing_behind() {
    let (mut mail, mut core) = (Mail::new(0), lanes::core());
    mail.hold_back(true);
    for peer in [1, 2] {
        mail.answer(&mut core, peer, numbered(1), 0);
        mail.send_soon(&mut core, peer, Lane::Request, numbered(2)).expect("it waits");
    }
    mail.forget(1);
    assert_eq!(
        (mail.audit(), mail.unsent_to(1).count(), mail.deferred(1, Lane::Reply).count()),
        (Ok(()), 0, 0)
    );
    assert_eq!((mail.unsent_to(2).count(), mail.deferred(2, Lane::Reply).count()), (1, 1));
}

/// What a test does with mail to two peers, by both lanes.
#[derive(Clone, Copy, Debug)]
enum Act {
    Soon(Rank, Lane),
    Post(Rank, Lane),
    Answer(Rank),
    HoldBack(bool),
    Room(Rank, Lane, usize),
    Poll,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let lane = || prop_oneof![Just(Lane::Request), Just(Lane::Reply)];
    let act = prop_oneof![
        4 => (1..3_u32, lane()).prop_map(|(peer, lane)| Act::Soon(peer, lane)),
        4 => (1..3_u32, lane()).prop_map(|(peer, lane)| Act::Post(peer, lane)),
        4 => (1..3_u32).prop_map(Act::Answer),
        2 => any::<bool>().prop_map(Act::HoldBack),
        3 => (1..3_u32, lane(), 0..3_usize).prop_map(|(peer, lane, room)| Act::Room(peer, lane, room)),
        3 => Just(Act::Poll),
    ];
    proptest::collection::vec(act, 0..80)
}

proptest! {
    /// Whatever lanes do: each message goes once, those of one kind in the order in which they were given.
    #[test]
    fn every_message_goes_once_and_in_turn(acts in acts()) {
        let (mut mail, mut core) = (Mail::new(0), lanes::core());
        let mut given: BTreeMap<(Rank, Lane, usize), Vec<u64>> = BTreeMap::new();
        let poll = |mail: &mut Mail, core: &mut Core<Lanes>| {
            mail.drain_outbox(core, &mut Vec::new());
            mail.send_deferred(core);
        };
        for (number, act) in (1..).zip(acts) {
            // Three kinds of messages, told apart by their numbers.
            let mut give = |peer, lane, kind| {
                let number = 3 * number + kind as u64;
                given.entry((peer, lane, kind)).or_default().push(number);
                numbered(number)
            };
            match act {
                Act::Soon(peer, lane) => {
                    let message = give(peer, lane, 0);
                    mail.send_soon(&mut core, peer, lane, message).expect("nobody is cut off");
                }
                Act::Post(peer, lane) => mail.post(&mut core, peer, lane, give(peer, lane, 1), &[]),
                Act::Answer(peer) => {
                    // The request that it answers has left room for it.
                    core.transport.room.entry((peer, Lane::Reply)).and_modify(|room| *room += 1);
                    mail.answer(&mut core, peer, give(peer, Lane::Reply, 2), 0);
                }
                Act::HoldBack(so) => mail.hold_back(so),
                Act::Room(peer, lane, room) => _ = core.transport.room.insert((peer, lane), room),
                Act::Poll => poll(&mut mail, &mut core),
            }
            prop_assert_eq!(mail.audit(), Ok(()));
        }
        core.transport.room.clear();
        mail.hold_back(false);
        poll(&mut mail, &mut core);
        prop_assert!(!mail.waits() && !mail.has_deferred());
        for ((peer, lane, kind), given) in given {
            let of_kind = |number: &u64| number % 3 == kind as u64;
            let gone: Vec<u64> = gone(&core.transport, (peer, lane)).into_iter().filter(of_kind).collect();
            prop_assert_eq!(gone, given);
        }
    }
}
