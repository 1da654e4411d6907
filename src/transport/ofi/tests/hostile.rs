//! Messages that no member of the job sends, and messages of members that no correct one sends.

use engine::{Event, Header, Inbox, Lane, Rank, Transport};
use fabric::Provider;
use proptest::prelude::*;

use super::cluster::{LIMIT, OfiCluster, SECRET, Setting, providers};
use crate::base::limits::{ANSWERS, CREDITS};
use crate::transport::contract::Party;
use crate::transport::ofi::buffers::{PAYLOAD_MAX, Purpose, Size};
use crate::transport::ofi::endpoint::{Ended, NetEndpoint};
use crate::transport::ofi::frame::{FrameHead, Kind, Letter};
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

/// The beginning of a frame that rank 1 could send to rank 0.
fn head() -> FrameHead {
    let token = *Token::new(SECRET, party(1, 0), party(0, 0)).bytes();
    FrameHead { token, sender: 1, credits: [0; 2] }
}

/// A message that rank 1 could send.
fn letter(kind: Kind, sequence: u32) -> Letter {
    // The engine knows no message of this kind, and does nothing about it.
    Letter { kind, len: 0, sequence, words: [0xff; Header::WORDS] }
}

const REQUEST: Kind = Kind::Engine(Lane::Request);

fn request(sequence: u32) -> Letter {
    letter(REQUEST, sequence)
}

/// A frame of messages, with zeros for their payloads.
fn frame(head: &FrameHead, letters: &[Letter]) -> Vec<u8> {
    let mut frame = head.encode().to_vec();
    for letter in letters {
        let end = frame.len() + Letter::bytes(letter.len);
        frame.extend(letter.encode());
        frame.resize(end, 0);
    }
    frame
}

/// Has a transport take a frame in, as if it had come.
fn arrive(transport: &mut OfiTransport, frame: &[u8]) {
    let buffer = transport.endpoint.take(Size::Frame).expect("there is memory");
    transport.endpoint.buffers.put(&buffer, 0, frame);
    transport.on_arrival(&buffer, frame.len());
    transport.endpoint.buffers.put_back(buffer);
}

/// Whether rank 1 is cut off by frames of its own, and how many of their messages reached the engine before.
fn cut_off(provider: &Provider, frames: &[Vec<u8>]) -> (bool, usize) {
    let mut cluster = OfiCluster::strangers(2, setting(provider));
    let transport = cluster.transport(0);
    frames.iter().for_each(|frame| arrive(transport, frame));
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
    let good = head();
    let token = |from, to| *Token::new(SECRET, from, to).bytes();
    let bad = [
        FrameHead { token: [0; 16], ..good },
        FrameHead { token: *Token::new(b"guessed", party(1, 0), party(0, 0)).bytes(), ..good },
        FrameHead { token: token(party(0, 0), party(1, 0)), ..good },
        FrameHead { token: token(party(1, 1), party(0, 0)), ..good },
        FrameHead { token: token(party(1, 0), party(0, 1)), ..good },
        FrameHead { sender: 2, ..good },
        FrameHead { sender: 3, token: token(party(3, 0), party(0, 0)), ..good },
        FrameHead { sender: 0, token: token(party(0, 0), party(0, 0)), ..good },
        FrameHead { sender: u32::MAX, ..good },
    ];
    let one = |head| frame(&head, &[request(0)]);
    let (short, mut reserved) = (one(good)[..31].to_vec(), one(good));
    reserved[31] = 1;
    let frames = bad.into_iter().map(one).chain([short, reserved]);
    for (count, frame) in (1..).zip(frames) {
        arrive(transport, &frame);
        assert_eq!(transport.strangers, count, "{frame:?}");
    }
    assert!(transport.links.ranks().next().is_none(), "nothing is kept for strangers");
    assert_eq!(transport.poll(&mut Inbox::default()), None);
    arrive(transport, &one(good));
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
            let buffer = stranger.take(Size::Frame).expect("there is memory");
            stranger.buffers.put(&buffer, 0, &[sent as u8; 100]);
            let len = if sent % 3 == 0 { Size::Frame.bytes() } else { sent % 100 };
            let purpose = Purpose::Send { rank: 0, answers: 0 };
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
    let all: Vec<Letter> = (0..u32::from(CREDITS)).map(request).collect();
    let in_frames = |letters: &[Letter]| -> Vec<Vec<u8>> {
        letters.chunks(100).map(|letters| frame(&head(), letters)).collect()
    };
    assert_eq!(
        cut_off(&provider, &in_frames(&all)),
        (false, usize::from(CREDITS)),
        "as many as it has credits for"
    );
    let longest = |sequence| frame(&head(), &[Letter { len: PAYLOAD_MAX, ..request(sequence) }]);
    let long_ones: Vec<Vec<u8>> = (0..64).map(longest).collect();
    assert_eq!(cut_off(&provider, &long_ones[..63]), (false, 63));
    let empty = vec![frame(&head(), &[]); 10_000];
    assert_eq!(cut_off(&provider, &empty), (false, 0), "frames without messages say that it is there");
    let all_twice: Vec<Letter> = (0..10_000).map(request).collect();
    let in_one = |letters: &[Letter]| vec![frame(&head(), letters)];
    let giving = |credits| vec![frame(&FrameHead { credits, ..head() }, &[request(0)])];
    let ask = |words| Letter { words, ..letter(Kind::Ask, 0) };
    let answer = Letter { words: [0; 7], ..letter(Kind::Answer, 0) };
    let asks = vec![ask([0, 1, 0, 0, 0, 0, 0]); ANSWERS + 1];
    let spoilt = |at: usize, byte: u8| {
        let mut frame = frame(&head(), &[request(0)]);
        frame[at] = byte;
        vec![frame]
    };
    let cut = |by: usize| {
        let frame = frame(&head(), &[Letter { len: 100, ..request(0) }]);
        vec![frame[..frame.len() - by].to_vec()]
    };
    for (what, bad) in [
        ("a message beyond its credits", in_one(&[request(u32::from(CREDITS))])),
        ("more messages than it has credits for", in_frames(&all_twice)),
        ("more bytes than it has credits for", long_ones),
        ("the same number twice", in_one(&[request(3), request(3)])),
        ("a number from before", in_one(&[request(u32::MAX)])),
        ("credits that it never had", giving([1, 0])),
        ("more credits than can be counted", giving([0, u16::MAX])),
        ("an answer to nothing", in_one(&[answer])),
        ("an atomic of no kind", in_one(&[ask([0, 1, 0, 9, 0, 0, 0])])),
        ("an atomic on no memory", in_one(&[ask([0, 77, 0, 0, 0, 0, 0])])),
        // Nobody takes the answers: rank 1 is not polled, and not even connected.
        ("too many atomics at once", in_frames(&asks)),
        ("a message of no kind", spoilt(32, 5)),
        ("a byte that is to be zero", spoilt(33, 1)),
        ("a payload beyond the frame's end", spoilt(34, 1)),
        ("a payload beyond the longest", in_one(&[Letter { len: PAYLOAD_MAX + 1, ..request(0) }])),
        ("a payload of words that have none", in_one(&[Letter { len: 8, ..answer }])),
        ("a message that ends with its padding cut off", cut(1)),
        ("a message that ends in its words", cut(110)),
        ("a message of a few bytes", cut(160)),
    ] {
        assert!(cut_off(&provider, &bad).0, "{what}");
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => Just(REQUEST),
        2 => Just(Kind::Engine(Lane::Reply)),
        1 => Just(Kind::Ask),
        1 => Just(Kind::Answer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever a member sends, its messages are handed on in order, and none that it had no right to send.
    #[test]
    fn whatever_a_member_sends_is_in_order_or_the_end_of_it(
        frames in proptest::collection::vec(
            (0_u16..2, proptest::collection::vec((kinds(), 0_u32..20, any::<[u64; 7]>()), 0..4)), 1..40),
    ) {
        let Some(provider) = providers().pop() else { return Ok(()) };
        let mut cluster = OfiCluster::strangers(2, setting(&provider));
        let transport = cluster.transport(0);
        let (mut inbox, mut next) = (Inbox::default(), [0_u64; 2]);
        for (credits, messages) in frames {
            let letters: Vec<Letter> = messages
                .into_iter()
                .map(|(kind, sequence, mut words)| {
                    // The engine never sees it. The test reads here where a message says that it stands.
                    if let Kind::Engine(_) = kind {
                        words[0] = u64::from(sequence) << 32 | 0xff;
                    }
                    Letter { words, ..letter(kind, sequence) }
                })
                .collect();
            arrive(transport, &frame(&FrameHead { credits: [credits, 0], ..head() }, &letters));
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
