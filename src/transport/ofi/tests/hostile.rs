//! Messages that no member of the job sends, and messages of members that no correct one sends.

use engine::{Event, Header, Inbox, Lane, Rank, Transport};
use fabric::Provider;
use proptest::prelude::*;

use super::cluster::{LIMIT, OfiCluster, SECRET, Setting, providers};
use crate::base::limits::{ANSWERS, CREDITS};
use crate::transport::contract::Party;
use crate::transport::ofi::buffers::{PAYLOAD_MAX, Purpose, Size};
use crate::transport::ofi::endpoint::{Ended, NetEndpoint};
use crate::transport::ofi::envelope::{Envelope, HEAD_BYTES, Kind};
use crate::transport::ofi::token::Token;
use crate::transport::ofi::transport::OfiTransport;

fn setting(provider: &Provider) -> Setting<'_> {
    Setting {
        provider,
        registration: None,
        confirms: false,
        registers_local: false,
        pins: false,
        send_timeout: LIMIT,
    }
}

fn party(rank: Rank, incarnation: u32) -> Party {
    Party { rank, incarnation }
}

/// What rank 1 could send to rank 0.
fn envelope(kind: Kind, sequence: u32) -> Envelope {
    let token = *Token::new(SECRET, party(1, 0), party(0, 0)).bytes();
    // The engine knows no message of this kind, and does nothing about it.
    Envelope { token, sender: 1, kind, credits: [0; 2], sequence, words: [0xff; Header::WORDS] }
}

const REQUEST: Kind = Kind::Engine(Lane::Request);

/// Has a transport take a message in, as if it had come.
fn arrive(transport: &mut OfiTransport, head: &[u8; HEAD_BYTES], len: usize) {
    let buffer = transport.endpoint.take(Size::Message).expect("there is memory");
    transport.endpoint.buffers.put(&buffer, 0, head);
    transport.on_arrival(&buffer, len);
    transport.endpoint.buffers.put_back(buffer);
}

fn length(kind: Kind) -> usize {
    kind.bytes(PAYLOAD_MAX).0
}

/// Whether rank 1 is cut off by messages of its own, and how many of them reached the engine before.
fn cut_off(provider: &Provider, messages: &[Envelope]) -> (bool, usize) {
    let mut cluster = OfiCluster::strangers(2, setting(provider));
    let transport = cluster.transport(0);
    for envelope in messages {
        arrive(transport, &envelope.encode(), length(envelope.kind));
    }
    let (mut inbox, mut handed_on) = (Inbox::default(), 0);
    while let Some(event) = transport.poll(&mut inbox) {
        match event {
            Event::Garbled { peer: 1 } => return (true, handed_on),
            Event::Message { peer: 1, .. } => handed_on += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(transport.strangers, 0, "it has the right token");
    (false, handed_on)
}

#[test]
fn what_bears_no_members_token_is_dropped_and_counted() {
    let Some(provider) = providers().pop() else { return };
    let mut cluster = OfiCluster::strangers(3, setting(&provider));
    let transport = cluster.transport(0);
    let good = envelope(REQUEST, 0);
    let token = |from, to| *Token::new(SECRET, from, to).bytes();
    let bad = [
        Envelope { token: [0; 16], ..good },
        Envelope { token: *Token::new(b"guessed", party(1, 0), party(0, 0)).bytes(), ..good },
        Envelope { token: token(party(0, 0), party(1, 0)), ..good },
        Envelope { token: token(party(1, 1), party(0, 0)), ..good },
        Envelope { token: token(party(1, 0), party(0, 1)), ..good },
        Envelope { sender: 2, ..good },
        Envelope { sender: 3, token: token(party(3, 0), party(0, 0)), ..good },
        Envelope { sender: 0, token: token(party(0, 0), party(0, 0)), ..good },
        Envelope { sender: u32::MAX, ..good },
    ];
    for (count, envelope) in bad.iter().enumerate() {
        arrive(transport, &envelope.encode(), HEAD_BYTES);
        assert_eq!(transport.strangers, count as u64 + 1, "{envelope:?}");
    }
    assert!(transport.links.ranks().next().is_none(), "nothing is kept for strangers");
    assert_eq!(transport.poll(&mut Inbox::default()), None);
    arrive(transport, &good.encode(), HEAD_BYTES);
    assert_eq!(transport.poll(&mut Inbox::default()), Some(Event::Message { peer: 1, lane: Lane::Request }));
}

#[test]
fn a_stranger_with_an_endpoint_disturbs_nobody() {
    for provider in providers() {
        let mut cluster = OfiCluster::new(2, setting(&provider));
        let mut stranger = NetEndpoint::open(&provider, false).expect("the provider was offered");
        let address: Box<[u8]> = cluster.transport(0).endpoint.address().into();
        let victim = stranger.add_peer(&address, None).expect("its own address");
        let start = std::time::Instant::now();
        // More than there are buffers, some longer than any message.
        let mut sent = 0;
        while cluster.transport(0).strangers < 200 {
            assert!(start.elapsed() < LIMIT, "its messages do not arrive");
            let buffer = stranger.take(Size::Message).expect("there is memory");
            stranger.buffers.put(&buffer, 0, &[sent as u8; 100]);
            let len = if sent % 3 == 0 { Size::Message.bytes() } else { sent % 100 };
            let purpose = Purpose::Send { rank: 0, answers: false };
            match stranger.send(victim, (buffer, len), purpose) {
                Ok(()) => sent += 1,
                Err(kept) => stranger.buffers.put_back(kept.buffer),
            }
            while let Some(ended) = stranger.poll() {
                if let Ended::Buffer { buffer, .. } = ended {
                    stranger.buffers.put_back(buffer);
                }
            }
            assert_eq!(cluster.transport(0).poll(&mut Inbox::default()), None);
        }
        let [request, reply] = [Lane::Request, Lane::Reply];
        assert_eq!(cluster.transport(1).send(0, request, &[0xff; 7], b"good"), Ok(()));
        let mut inbox = Inbox::default();
        while cluster.transport(0).poll(&mut inbox).is_none() {
            cluster.transport(1).progress();
            assert!(start.elapsed() < LIMIT, "a member's message does not arrive");
        }
        assert_eq!(inbox.payload, b"good");
        assert_eq!(cluster.transport(0).send(1, reply, &[0xff; 7], b""), Ok(()));
    }
}

#[test]
fn a_member_that_breaks_the_rules_is_cut_off() {
    let Some(provider) = providers().pop() else { return };
    let request = |sequence| envelope(REQUEST, sequence);
    let all: Vec<Envelope> = (0..u32::from(CREDITS)).map(request).collect();
    assert_eq!(cut_off(&provider, &all), (false, usize::from(CREDITS)), "as many as it has credits for");
    let ask = |words| Envelope { words, ..envelope(Kind::Ask, 0) };
    let answer = Envelope { words: [0; 7], ..envelope(Kind::Answer, 0) };
    for (what, bad) in [
        ("a message beyond its credits", vec![request(u32::from(CREDITS))]),
        ("the same number twice", vec![request(3), request(3)]),
        ("a number from before", vec![request(u32::MAX)]),
        ("credits that it never had", vec![Envelope { credits: [1, 0], ..request(0) }]),
        ("more credits than can be counted", vec![Envelope { credits: [0, u16::MAX], ..request(0) }]),
        ("an answer to nothing", vec![answer]),
        ("an atomic of no kind", vec![ask([0, 1, 0, 9, 0, 0, 0])]),
        ("an atomic on no memory", vec![ask([0, 77, 0, 0, 0, 0, 0])]),
        // Nobody takes the answers: rank 1 is not polled, and not even connected.
        ("too many atomics at once", vec![ask([0, 1, 0, 0, 0, 0, 0]); ANSWERS + 1]),
    ] {
        assert_eq!(cut_off(&provider, &bad), (true, 0), "{what}");
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => Just(REQUEST),
        2 => Just(Kind::Engine(Lane::Reply)),
        1 => Just(Kind::Credits),
        1 => Just(Kind::Ask),
        1 => Just(Kind::Answer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever a member sends, its messages are handed on in order, and none that it had no right to send.
    #[test]
    fn whatever_a_member_sends_is_in_order_or_the_end_of_it(
        messages in proptest::collection::vec((kinds(), 0_u32..20, 0_u16..2, any::<[u64; 7]>()), 1..60),
    ) {
        let Some(provider) = providers().pop() else { return Ok(()) };
        let mut cluster = OfiCluster::strangers(2, setting(&provider));
        let transport = cluster.transport(0);
        let (mut inbox, mut next) = (Inbox::default(), [0_u64; 2]);
        for (kind, sequence, credits, mut words) in messages {
            // What the engine would make of it is not asked here; where a message says that it stands, is.
            if let Kind::Engine(_) = kind {
                words[0] = u64::from(sequence) << 32 | 0xff;
            }
            let envelope = Envelope { credits: [credits, 0], words, ..envelope(kind, sequence) };
            arrive(transport, &envelope.encode(), length(kind));
            while let Some(event) = transport.poll(&mut inbox) {
                match event {
                    Event::Message { peer: 1, lane } => {
                        let next = &mut next[usize::from(lane == Lane::Reply)];
                        prop_assert_eq!(inbox.header[0] >> 32, *next);
                        *next += 1;
                    }
                    Event::Garbled { peer: 1 } => prop_assert!(transport.gone.has(1)),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }
}
