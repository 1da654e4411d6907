//! What a node that comes over the network may say of itself, and what not.

use super::*;
use crate::config::Config;
use crate::transport::shm::PLACES_MAX;

fn node() -> Node {
    Node::open_in(Config::new().heap_bytes(1 << 20), None).expect("a node")
}

/// What the node tells far peers; `None`, said aloud, where there is no network.
fn card_of(node: &Node) -> Option<Card> {
    let provider = Some("tcp".to_owned());
    let plan = Plan { provider, near: true, strategy: None, pin_bytes: None, silence: None, attends: true };
    far::introduce(&node.inner, &plan).inspect_err(|error| eprintln!("skipped: {error}")).ok()
}

fn comes(node: &Node, number: Rank, place: (u32, u32), card: Vec<u8>) -> Result<(), Error> {
    let secret = crate::bootstrap::Secret::random().expect("random");
    admit_far(&node.inner, number, place, Introduction { card, secret, called: true }, None)
}

fn written(card: &Card) -> Vec<u8> {
    postcard::to_stdvec(card).expect("plain values can be written")
}

#[test]
fn cards_that_no_node_gives_are_refused_and_take_no_number() {
    let (here, there) = (node(), node());
    let (Some(_), Some(card)) = (card_of(&here), card_of(&there)) else { return };
    assert!(here.provider().is_some_and(|name| name.starts_with("tcp")), "{:?}", here.provider());
    let whole = written(&card);
    let bad = [
        Card { endpoint: Vec::new(), ..card.clone() },
        Card { endpoint: vec![0xff; card.endpoint.len()], ..card.clone() },
        Card { endpoint: vec![0; card.endpoint.len() + 1], ..card.clone() },
        Card { endpoint: card.endpoint.repeat(40), ..card.clone() },
        Card { directory: card.directory + 1, ..card.clone() },
        Card { names: b"another\0".to_vec(), ..card.clone() },
    ];
    let cut = [whole[..whole.len() - 1].to_vec(), [&whole[..], &[0]].concat(), Vec::new()];
    for bytes in bad.iter().map(written).chain(cut) {
        let error = comes(&here, 1, (1, 2), bytes.clone()).expect_err("no node gives it");
        assert!(
            matches!(error, Error::Protocol { peer: 1, .. } | Error::HandlersDiffer { peer: 1, .. }),
            "{error} for {bytes:?}"
        );
    }
    for place in [(2, 2), (0, 0), (1, PLACES_MAX + 1), (u32::MAX, u32::MAX)] {
        assert!(comes(&here, 1, place, whole.clone()).is_err(), "{place:?}");
    }
    assert!(here.peers().is_empty());
    comes(&here, 1, (1, 2), whole.clone()).expect("it is as it should be");
    assert_eq!(here.peers(), [1]);
    assert!(comes(&here, 1, (1, 2), whole).is_err(), "the number has been given");
}

#[test]
fn a_node_gets_a_network_once() {
    let node = node();
    assert_eq!(node.provider(), None);
    let Some(card) = card_of(&node) else { return };
    assert_eq!(card_of(&node), Some(card));
}
