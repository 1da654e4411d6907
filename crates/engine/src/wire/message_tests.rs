use super::*;
use crate::collective::{Difference, Signature};
use crate::wire::status::ALL;
use crate::wire::{
    AmForm, Because, BreakReason, Found, GivenKey, GrantAsk, GrantIs, HandlerAsk, HandlerIs, KeyAsk, KeyIs,
    MoveId, Pace, Status, Step, StepData, TeamBroken,
};
use crate::{Atomic, AtomicOp, Change, GrantId, HandlerKey, Key, MemId, OpId, Place, WordType};
use proptest::prelude::*;

/// How many kinds there are.
const KINDS: u8 = 39;

/// A message of the kind with that number, with fields out of `w`, and bytes of payload that it may have. An
/// odd `nonsense` makes nonsense of the field that may be nonsense.
fn sample(kind: u8, w: [u64; 8], nonsense: bool) -> (Message, usize) {
    let [a, b, c, d, e, f, g, h] = w;
    let mem = |w: u64| match w % 4 {
        // As an Active Message has it, which has no more bits of it.
        3 => MemId::Grant((w >> 8) as u32 % 16),
        kind => [MemId::Space, MemId::Heap, MemId::Control][kind as usize],
    };
    let op = OpId::from_token(a);
    let known = |place: Place| Some(place).filter(|_| !nonsense);
    let chunk = Chunk { op, slot: b, at: known(Place::new(mem(c), d)) };
    let status = Some(ALL[c as usize % ALL.len()]).filter(|_| !nonsense);
    let done = |direction, old| Message::ChunkDone(ChunkDone { direction, op, slot: b, status, old });
    let am = |form| {
        let (handler, client) = (a as u32, (a >> 32) as u8);
        Message::Am(Am { handler, client, args: [b, c, d, e], stamp: f >> 24, form })
    };
    let buffer = b.checked_sub(1);
    let ask =
        |act| Message::Bounce(BounceAsk { act, op, buffer, at: known(Place::new(mem(c), e)), len: d as u32 });
    let message = match kind {
        0 => am(AmForm::Short),
        1 => am(AmForm::Medium),
        2 => am(AmForm::Long(Place::new(mem(g), h), e as u32)),
        3 => Message::Put(chunk),
        4 => Message::Get(chunk, f as u32),
        5 => done(Direction::Put, d),
        6 => done(Direction::Get, 0),
        7 => Message::BarrierOpen { epoch: a },
        8 => Message::BarrierBroken { peer: Some(a as u32).filter(|_| !nonsense), gone: b % 2 == 1 },
        9 => {
            let id = MoveId { at: a as u32, serial: b as u32 };
            Message::Move(Move { id, attach: c, detach: d, rider: Some(e).filter(|_| f % 2 == 1) })
        }
        10 => Message::Moved(Moved { id: MoveId { at: a as u32, serial: b as u32 }, limit: d, status }),
        11 => Message::Revoke { holder: Some(HolderId(a as u32)).filter(|_| !nonsense) },
        12 => Message::Recall { bytes: a },
        13 => {
            let because = [Because::Unneeded, Because::Revoked, Because::Recalled][(a % 3) as usize];
            let names = [b, c, d, e, f, g].map(|name| HolderId(name as u32));
            Message::Release(Release::new(because, &names[..(h % 7) as usize]))
        }
        14 => ask(BounceAct::Take),
        15 => ask(BounceAct::Fill),
        16 => ask(BounceAct::Drain),
        17 => Message::BounceGive { buffer },
        18 => Message::Bounced(Bounced { op, status, buffer }),
        19..=27 => Message::Team(TeamId(a), team_sample(kind, w, nonsense)),
        28 => Message::AmDone { stamp: a >> 24 },
        30 => {
            let key = HandlerKey { number: b as u32, check: c as u32 };
            Message::HandlerAsk(HandlerAsk { op, key })
        }
        31 => {
            let found = [Found::Nothing, Found::It, Found::Another][(c % 3) as usize];
            Message::HandlerIs(HandlerIs { op, found: Some(found).filter(|_| !nonsense) })
        }
        32 => Message::AmRefused { handler: a as u32, client: b as u8 },
        33 | 34 => {
            let direction = [Direction::Put, Direction::Get][(c % 2) as usize];
            let ask = GrantAsk { addr: h, len: a, direction: Some(direction).filter(|_| !nonsense) };
            let grant = GrantId { line: b as u32 >> 8, generation: c as u32 >> 4 };
            let found = Some((grant, d, e)).filter(|_| !nonsense);
            if kind == 33 { Message::GrantAsk(ask) } else { Message::GrantIs(GrantIs { ask, found }) }
        }
        35 => {
            let id = MoveId { at: a as u32, serial: b as u32 };
            let grant = GrantId { line: c as u32 >> 8, generation: d as u32 >> 4 };
            Message::KeyAsk(KeyAsk { id, grant: Some(grant).filter(|_| !nonsense), detach: e })
        }
        36 => {
            let id = MoveId { at: a as u32, serial: b as u32 };
            let given = GivenKey { holder: HolderId(c as u32), key: Key(d), start: e };
            let given = Some(given).filter(|_| !nonsense);
            Message::KeyIs(KeyIs { id, limit: f, len: g, given })
        }
        37 => {
            let word = known(Place::new(MemId::Grant(c as u32 >> 4), d));
            let swap = Atomic::new(WordType::U64, Change::CompareSwap { expected: e, new: f });
            let atomic = if g % 2 == 0 { swap.signalling().without_old() } else { swap };
            Message::AtomicAsk(AtomicAsk { op, word, atomic: Some(atomic).filter(|_| h % 2 == 0) })
        }
        38 => Message::AtomicDone(AtomicDone { op, status, old: d }),
        _ => {
            let op = AtomicOp::ALL[(e % 7) as usize];
            let word = WordType::ALL[(f % 4 + 2 * (f >> 63)) as usize];
            let op = if op.is_for(word) { op } else { AtomicOp::Swap };
            let value = if word.size() == 4 { g & 0xffff_ffff } else { g };
            let atomic = Atomic::new(word, Change::Apply(op, value)).signalling();
            Message::PutSignal(chunk, Signal { word: h, atomic: Some(atomic).filter(|_| !nonsense) })
        }
    };
    (message, if has_payload(&message) { (h % 4096) as usize } else { 0 })
}

fn team_sample(kind: u8, w: [u64; 8], nonsense: bool) -> TeamMessage {
    let [a, b, c, d, e, f, g, h] = w;
    let (number, tag, signature) = (b >> 16, c as u16, Signature { what: d, bytes: e });
    let step = |data| TeamMessage::Step(Step { number, tag, signature, data });
    match kind {
        19 if nonsense => step(None),
        19 => step(Some(StepData::Word { len: (f % 9) as u32, bytes: g.to_le_bytes() })),
        20 => step(Some(StepData::Payload)),
        21 => {
            let at = Place::new(MemId::Space, f);
            step(Some(StepData::Offer { at, len: g, given_up: h as u32 }))
        }
        22 => TeamMessage::Taken { number, tag, is_seen: d % 2 == 1 },
        23 => TeamMessage::Confirmed { number, tag },
        24 => TeamMessage::Doubted { number },
        25 => TeamMessage::Upheld { number },
        26 => {
            let waits_in = Some((f, signature)).filter(|(number, _)| *number > 0);
            TeamMessage::Pace(Pace { come_to: b, wants: c, waits_in })
        }
        _ => {
            let why = [
                BreakReason::Lost,
                BreakReason::Differs,
                BreakReason::GivenUp,
                BreakReason::Dropped,
                BreakReason::Failed,
            ];
            let why = Some(why[(c % 5) as usize]).filter(|_| !nonsense);
            let (words, functions) = ([f as u32, g as u32], [f >> 32, g >> 32].map(|of| of as u32 >> 8));
            let of = Difference { ranks: [d as u32, e as u32], words, functions, bytes: [h, a] };
            TeamMessage::Broken(TeamBroken { from: number, why, of })
        }
    }
}

fn has_payload(message: &Message) -> bool {
    match message {
        Message::Am(am) => am.form == AmForm::Medium,
        Message::ChunkDone(done) => done.direction == Direction::Get && done.status == Some(Status::Ok),
        Message::Team(_, TeamMessage::Step(step)) => step.data == Some(StepData::Payload),
        Message::Put(_) | Message::PutSignal(..) | Message::Move(_) | Message::Moved(_) => true,
        Message::KeyAsk(_) => true,
        _ => false,
    }
}

/// The fields of one message of each kind: no two alike.
const FIELDS: [u64; 8] = [
    0x0102_0304_0506_0708,
    0x1112_1314_1516_1719,
    0x2122_2324_2526_272e,
    0x3132_3334_3536_3739,
    0x4142_4344_4546_4748,
    0x5152_5354_5556_5759,
    0x6162_6364_6566_6768,
    0x7172_7374_7576_777a,
];

/// The words of those messages, by kind. Peers of other builds know them so: a change here is a change of the
/// protocol.
const GOLDEN: [[u64; Header::WORDS]; KINDS as usize] = [
    [
        0x708_0400,
        0x5152_5354_5505_0600,
        0x1112_1314_1516_1719,
        0x2122_2324_2526_272e,
        0x3132_3334_3536_3739,
        0x4142_4344_4546_4748,
        0,
    ],
    [
        0x77a_0708_0401,
        0x5152_5354_5505_0600,
        0x1112_1314_1516_1719,
        0x2122_2324_2526_272e,
        0x3132_3334_3536_3739,
        0x4142_4344_4546_4748,
        0,
    ],
    [
        0x4546_4748_0708_0402,
        0x5152_5354_5505_0600,
        0x1112_1314_1516_1719,
        0x2122_2324_2526_272e,
        0x3132_3334_3536_3739,
        0x4142_4344_4546_4748,
        0x7172_7374_7576_777a,
    ],
    [0x77a_0000_0003, 0x102_0304_0506_0708, 2, 0x1112_1314_1516_1719, 0, 0, 0x3132_3334_3536_3739],
    [0x5556_5759_0000_0004, 0x102_0304_0506_0708, 2, 0x1112_1314_1516_1719, 0, 0, 0x3132_3334_3536_3739],
    [5, 0x102_0304_0506_0708, 0x1112_1314_1516_1719, 7, 0x3132_3334_3536_3739, 0, 0],
    [6, 0x102_0304_0506_0708, 0x1112_1314_1516_1719, 7, 0, 0, 0],
    [7, 0, 0x102_0304_0506_0708, 0, 0, 0, 0],
    [8, 0, 0x506_0708, 1, 0, 0, 0],
    [
        0x77a_0000_0009,
        0x1516_1719_0506_0708,
        0x2122_2324_2526_272e,
        0x3132_3334_3536_3739,
        1,
        0,
        0x4142_4344_4546_4748,
    ],
    [0x77a_0000_000a, 0x1516_1719_0506_0708, 0x3132_3334_3536_3739, 7, 0, 0, 0],
    [0xb, 0, 0x506_0708, 0, 0, 0, 0],
    [0xc, 0, 0x102_0304_0506_0708, 0, 0, 0, 0],
    [0xd, 0, 6, 0x2526_272e_1516_1719, 0x4546_4748_3536_3739, 0x6566_6768_5556_5759, 0],
    [0x3536_3739_0000_000e, 0x102_0304_0506_0708, 0x1112_1314_1516_1719, 2, 0, 0, 0x4142_4344_4546_4748],
    [0x3536_3739_0000_000f, 0x102_0304_0506_0708, 0x1112_1314_1516_1719, 2, 0, 0, 0x4142_4344_4546_4748],
    [0x3536_3739_0000_0010, 0x102_0304_0506_0708, 0x1112_1314_1516_1719, 2, 0, 0, 0x4142_4344_4546_4748],
    [0x11, 0, 0x1112_1314_1516_1719, 0, 0, 0, 0],
    [0x12, 0x102_0304_0506_0708, 7, 0x1112_1314_1516_1719, 0, 0, 0],
    [
        0x8_0000_0013,
        0x102_0304_0506_0708,
        0x1112_1314_1516_272e,
        0x3132_3334_3536_3739,
        0x4142_4344_4546_4748,
        0x6162_6364_6566_6768,
        0,
    ],
    [
        0x77a_0000_0014,
        0x102_0304_0506_0708,
        0x1112_1314_1516_272e,
        0x3132_3334_3536_3739,
        0x4142_4344_4546_4748,
        0,
        0,
    ],
    [
        0x7576_777a_0000_0015,
        0x102_0304_0506_0708,
        0x1112_1314_1516_272e,
        0x3132_3334_3536_3739,
        0x4142_4344_4546_4748,
        0x6162_6364_6566_6768,
        0x5152_5354_5556_5759,
    ],
    [0x16, 0x102_0304_0506_0708, 0x1112_1314_1516_272e, 1, 0, 0, 0],
    [0x17, 0x102_0304_0506_0708, 0x1112_1314_1516_272e, 0, 0, 0, 0],
    [0x18, 0x102_0304_0506_0708, 0x1112_1314_1516_0000, 0, 0, 0, 0],
    [0x19, 0x102_0304_0506_0708, 0x1112_1314_1516_0000, 0, 0, 0, 0],
    [
        0x1a,
        0x102_0304_0506_0708,
        0x1112_1314_1516_1719,
        0x2122_2324_2526_272e,
        0x3132_3334_3536_3739,
        0x4142_4344_4546_4748,
        0x5152_5354_5556_5759,
    ],
    [
        0x6162_6351_5253_001b,
        0x102_0304_0506_0708,
        0x1112_1314_1516_0003,
        0x4546_4748_3536_3739,
        0x7172_7374_7576_777a,
        0x102_0304_0506_0708,
        0x6566_6768_5556_5759,
    ],
    [0x1c, 0x102_0304_0500_0000, 0, 0, 0, 0, 0],
    [
        0x77a_0102_001d,
        0x102_0304_0506_0708,
        2,
        0x1112_1314_1516_1719,
        0x7172_7374_7576_777a,
        0x6566_6768,
        0x3132_3334_3536_3739,
    ],
    [0x1e, 0x102_0304_0506_0708, 0x2526_272e_1516_1719, 0, 0, 0, 0],
    [0x1_001f, 0x102_0304_0506_0708, 0, 0, 0, 0, 0],
    [0x506_0708_0000_1920, 0, 0, 0, 0, 0, 0],
    [0x1_0021, 0, 0x102_0304_0506_0708, 0, 0, 0, 0x7172_7374_7576_777a],
    [
        0x1_0022,
        0,
        0x102_0304_0506_0708,
        0x252_6272_0015_1617,
        0x3132_3334_3536_3739,
        0x4142_4344_4546_4748,
        0x7172_7374_7576_777a,
    ],
    [0x77a_0000_0023, 0x1516_1719_0506_0708, 0x353_6373_0025_2627, 0x4142_4344_4546_4748, 0, 0, 0],
    [
        0x24,
        0x1516_1719_0506_0708,
        0x5152_5354_5556_5759,
        0x6162_6364_6566_6768,
        0x3132_3334_3536_3739,
        0x4142_4344_4546_4748,
        0x2526_272e,
    ],
    [
        0x1_0207_0001_0025,
        0x102_0304_0506_0708,
        0x2526_2723,
        0x4142_4344_4546_4748,
        0x5152_5354_5556_5759,
        0,
        0x3132_3334_3536_3739,
    ],
    [0x26, 0x102_0304_0506_0708, 7, 0x3132_3334_3536_3739, 0, 0, 0],
];

#[test]
fn words_are_those_that_peers_know() {
    let words = |kind| {
        let (message, payload) = sample(kind, FIELDS, false);
        message.encode(payload)
    };
    for (kind, golden) in (0..).zip(GOLDEN) {
        assert_eq!(words(kind), golden, "kind {kind}");
    }
}

/// The page that draws all this.
const PAGE: &str = include_str!("../../../../docs/WIRE.md");

/// A field that is 0 in the message of a kind whose fields are all different is 0 in each of that kind.
#[test]
fn the_page_draws_each_message_as_it_is() {
    assert!(PAGE.contains(&format!("a header of {} words", Header::WORDS)));
    assert!(PAGE.contains(&format!("Their version is {}.", super::super::MESSAGES_VERSION)));
    for (kind, words) in (0..).zip(GOLDEN) {
        let payload = if has_payload(&sample(kind, FIELDS, false).0) { FIELDS[7] as usize % 4096 } else { 0 };
        // The sample's answer to a get has failed, and so has no bytes.
        let lies_inside = payload > 0 || kind == Kind::GetData as u8;
        let header = Header::decode(&words, payload).expect("peers know it");
        let Header { client, small, len, token, args, place, .. } = header;
        let len = u64::from(len).max(u64::from(lies_inside));
        let fields = [&[client.into(), small.into(), len, token][..], &args, &[place]].concat();
        let start = format!("| {kind} | `{:?}` |", header.kind);
        let row = PAGE.lines().find_map(|line| line.strip_prefix(&start));
        let row = row.unwrap_or_else(|| panic!("docs/WIRE.md has no row {start}"));
        let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), fields.len(), "{start}");
        for (cell, field) in cells.iter().zip(&fields) {
            // Of an offer, the memory is drawn, which is always the one whose number is 0.
            let is_drawn = *cell != "–" && *cell != "memory: 0";
            assert_eq!(is_drawn, *field != 0, "{start} {cell} {field:#x}");
        }
        assert_eq!(cells[2].starts_with("payload"), lies_inside, "{start}");
    }
    let rows = PAGE.lines().filter(|line| line.starts_with("| ") && line.split('|').count() == 13);
    assert_eq!(rows.count(), 1 + usize::from(KINDS), "a head, and a row for each kind");
}

/// Any word, and those at limits.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => any::<u64>(),
        1 => 0..9_u64,
        1 => Just(u64::MAX),
        1 => Just(1 << 63),
        1 => (1_u64 << 32) - 2..(1 << 32) + 2,
        1 => (1_u64 << 16) - 2..(1 << 16) + 2,
    ]
}

fn words() -> impl Strategy<Value = [u64; 8]> {
    std::array::from_fn(|_| word())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn messages_survive_the_wire(kind in 0..KINDS, w in words(), nonsense: bool) {
        let (message, payload) = sample(kind, w, nonsense);
        let words = message.encode(payload);
        prop_assert_eq!(words[0] as u8, kind);
        prop_assert_eq!(Message::decode(&words, payload), Ok(message));
    }

    #[test]
    fn any_words_give_a_message_or_an_error(w in words(), kind: Option<u8>) {
        let [first, rest @ ..] = w;
        let [a, b, c, d, e, f, payload] = rest;
        let first = kind.map_or(first, |kind| first >> 16 << 16 | u64::from(kind % KINDS));
        let words = [first, a, b, c, d, e, f];
        let payload = (payload % 9) as usize;
        for payload in [payload, 0, (first >> 32) as usize] {
            if let Ok(message) = Message::decode(&words, payload) {
                // What means nothing is told apart no more.
                let again = message.encode(payload);
                prop_assert_eq!(Message::decode(&again, payload), Ok(message));
            }
        }
    }
}
