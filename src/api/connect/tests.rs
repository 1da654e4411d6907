//! What a node that comes over the network may say of itself, and what not.

use engine::Transport;

use super::*;
use crate::api::config::Config;
use crate::base::handler_id::HandlerId;
use crate::transport::peers::PLACES_MAX;
use crate::transport::protocol::NetProtocol;
use crate::transport::shm::control::{Control, HANDLERS_MAX};

fn node() -> Node {
    Node::open_in(Config::new().heap_bytes(1 << 20), None).expect("a node")
}

/// What the node tells far peers; `None`, said aloud, where there is no network.
fn card_of(node: &Node) -> Option<Card> {
    let plan = NetworkPlan {
        transport: crate::api::config::Transport::Ofi { provider: Some("tcp".to_owned()) },
        strategy: None,
        pin_bytes: None,
        silence: None,
        attends: true,
        listen: Listen::Auto,
    };
    bring_up_network::introduce(&node.core, &plan).inspect_err(|error| testbed::skip(error)).ok()
}

fn comes(node: &Node, number: Rank, place: (u32, u32), card: Vec<u8>) -> Result<(), Error> {
    let secret = crate::job::plumbing::Secret::random().expect("random");
    let met = "127.0.0.1:1".parse().ok();
    admit_far(&node.core, number, place, Introduction { card, secret, called: true, met }, None)
}

fn written(card: &Card) -> Vec<u8> {
    postcard::to_stdvec(card).expect("plain values can be written")
}

#[test]
fn cards_that_no_node_gives_are_refused_and_take_no_number() {
    let (here, there) = (node(), node());
    let own = HandlerId::of("tests", "own").0;
    here.register("tests", "own", |_| {}).expect("a name of its own");
    let (Some(_), Some(card)) = (card_of(&here), card_of(&there)) else { return };
    assert!(here.provider().is_some_and(|name| name.starts_with("tcp")), "{:?}", here.provider());
    let whole = written(&card);
    let bad = [
        Card { endpoint: Vec::new(), ..card.clone() },
        Card { endpoint: vec![0xff; card.endpoint.len()], ..card.clone() },
        Card { endpoint: vec![0; card.endpoint.len() + 1], ..card.clone() },
        Card { endpoint: card.endpoint.repeat(40), ..card.clone() },
        Card { directory: card.directory + 1, ..card.clone() },
        Card { handlers: vec![(own.number, own.check + 1)], ..card.clone() },
        Card { handlers: (0..=HANDLERS_MAX as u32).map(|number| (number, 0)).collect(), ..card.clone() },
        Card {
            protocol: NetProtocol { provider: "x".repeat(5000), ..card.protocol.clone() },
            ..card.clone()
        },
    ];
    let cut = [whole[..whole.len() - 1].to_vec(), [&whole[..], &[0]].concat(), Vec::new()];
    for bytes in bad.iter().map(written).chain(cut) {
        let error = comes(&here, 1, (1, 2), bytes.clone()).expect_err("no node gives it");
        assert!(
            matches!(
                error,
                Error::Protocol { peer: 1, .. }
                    | Error::HandlersDiffer { peer: 1, .. }
                    | Error::Connect { peer: 1, .. }
            ),
            "{error} for {bytes:?}"
        );
    }
    let ours = &card.protocol;
    for other in [
        NetProtocol { provider: "verbs;ofi_rxm".into(), library: "9.9".into(), ..ours.clone() },
        NetProtocol { number: ours.number + 1, ..ours.clone() },
        NetProtocol { version: ours.version + 1, ..ours.clone() },
    ] {
        let other = Card { protocol: other, ..card.clone() };
        let error = comes(&here, 1, (1, 2), written(&other)).expect_err("another protocol").to_string();
        let is_named =
            |it: &NetProtocol| error.contains(&format!("{:?} of libfabric {}", it.provider, it.library));
        assert!(is_named(ours) && is_named(&other.protocol), "{error}");
    }
    let newer = Card { messages: card.messages + 1, ..card.clone() };
    let error = comes(&here, 1, (1, 2), written(&newer)).expect_err("another version");
    let (ours, theirs) = (u32::from(card.messages), u32::from(newer.messages));
    assert_eq!(error, Error::Versions { peer: 1, what: "the engine's messages", ours, theirs });
    for place in [(2, 2), (0, 0), (1, PLACES_MAX + 1), (u32::MAX, u32::MAX)] {
        assert!(comes(&here, 1, place, whole.clone()).is_err(), "{place:?}");
    }
    assert!(here.peers().is_empty());
    comes(&here, 1, (1, 2), whole.clone()).expect("it is as it should be");
    assert_eq!(here.peers(), [1]);
    assert!(comes(&here, 1, (1, 2), whole).is_err(), "the number has been given");
}

/// Whichever of the two calls, it hears of both versions.
#[test]
fn near_nodes_of_two_versions_refuse_each_other() {
    let (messages, layout) = Control::VERSIONS;
    for (other, what, ours, theirs) in [
        ((messages + 1, layout), "the engine's messages", messages, messages + 1),
        ((messages, layout + 1), "the control segment", layout, layout + 1),
    ] {
        let both = format!("version {theirs} of {what}, and this process version {ours}: use the same");
        for is_newer_called in [true, false] {
            let (here, newer) = (node(), node());
            newer.core.peers.own().control.mark_as(other);
            let (caller, called) = if is_newer_called { (&here, &newer) } else { (&newer, &here) };
            let error =
                caller.connect_to(called.address().expect("it listens")).expect_err("another version");
            assert!(error.to_string().contains(&both), "{error}");
            assert!(here.peers().is_empty());
        }
    }
}

#[test]
fn a_node_gets_a_network_once() {
    let node = node();
    assert_eq!(node.provider(), None);
    let Some(card) = card_of(&node) else { return };
    assert_eq!(card_of(&node), Some(card));
}

#[test]
fn a_peer_that_lives_is_lost_by_no_word_and_one_that_is_given_up_to_every_call() {
    let (here, there) = (node(), node());
    let word = there.heap().alloc_zeroed::<u64>(1).expect("room");
    let peer = here.connect_to(there.address().expect("a node that listens")).expect("it is there");
    let to = word.ptr(0).at(peer);
    // As a member of a team has it done that says the peer is lost.
    here.core.engine().transport().suspect(peer);
    assert_eq!((here.put(to, 1), here.lost_peers()), (Ok(()), vec![]));
    // As the engine does with one that does not answer in time.
    here.core.engine().give_up_peer(peer);
    assert_eq!(here.lost_peers(), [peer]);
    assert_eq!((here.put(to, 2), word.read(0)), (Err(Error::PeerLost { peer }), 1));
    // The other hears of it, and is another when it is called again.
    let patient = there.within(Duration::from_secs(20));
    patient.wait_until(|| there.lost_peers() == [1]).expect("it is told");
    assert_eq!((here.peers(), there.peers()), (vec![], vec![]));
    assert_eq!(
        here.connect_to(there.address().expect("a node that listens")).expect("it is there"),
        peer + 1
    );
}

/// Its process sleeps meanwhile, and nothing that it has exposed has started a thread.
#[test]
fn nodes_that_have_met_answer_while_their_processes_sleep() {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    let answered = Arc::new(AtomicU64::new(0));
    let answers = Arc::clone(&answered);
    let config = || Config::new().heap_bytes(1 << 20).exposure(crate::api::config::Exposure::Everything);
    let server = config().handler("ask", |call| {
        let answer = call.node().handler("answer").expect("registered");
        call.reply(answer, [7; 4]).expect("it lives");
    });
    let server = Node::open_in(server.handler("answer", |_| {}), None).expect("a node");
    let client =
        config().handler("ask", |_| {}).handler("answer", move |call| answers.store(call.args()[0], SeqCst));
    let client = Node::open_in(client, None).expect("a node");
    let peer = client.connect_to(server.address().expect("it listens")).expect("it is there");
    client.request(peer, client.handler("ask").expect("registered"), [0; 4]).expect("sent");
    // As a task that awaits a channel, which its handler sends to: no call of this library waits.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while answered.load(SeqCst) != 7 {
        assert!(std::time::Instant::now() < until, "the reply's handler has not run");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
