//! Messages as handlers and senders wrote and read them by themselves, beside what [`Message`] makes of the same.

use super::message::tests::{KINDS, sample, words};
use super::*;
use crate::{Atomic, MemId, Place, Rank};
use proptest::prelude::*;

const CHUNK_OK: u64 = 0;
const CHUNK_FAULT: u64 = 1;
const STAGE_NONE: u64 = 2;
const CHUNK_NOT_EXPOSED: u64 = 3;
const STAGE_NEVER: u64 = 4;
const CHUNK_NO_WORD: u64 = 5;

fn stage_to_wire(stage: Option<u64>) -> u64 {
    stage.map_or(0, |offset| offset + 1)
}

fn stage_from_wire(word: u64) -> Option<u64> {
    word.checked_sub(1)
}

fn status_word(status: Option<Status>) -> u64 {
    match status.expect("senders say one") {
        Status::Ok => CHUNK_OK,
        Status::Fault => CHUNK_FAULT,
        Status::NoStage => STAGE_NONE,
        Status::NotExposed => CHUNK_NOT_EXPOSED,
        Status::NeverStage => STAGE_NEVER,
        Status::NoWord => CHUNK_NO_WORD,
    }
}

/// The header that its sender made of it.
fn before(message: &Message, payload: usize) -> Header {
    match *message {
        Message::Am(am) => {
            let token = am.stamp << 8;
            let mut header =
                Header { handler: am.handler, args: am.args, token, ..Header::new(Kind::AmShort) };
            match am.form {
                AmForm::Short => {}
                AmForm::Medium => {
                    header.kind = Kind::AmMedium;
                    header.len = payload as u32;
                }
                AmForm::Long(place, len) => {
                    header.kind = Kind::AmLong;
                    header.len = len;
                    header.token |= place.mem.to_wire();
                    header.place = place.offset;
                }
            }
            header
        }
        Message::AmDone { stamp } => Header { token: stamp << 8, ..Header::new(Kind::AmDone) },
        Message::Put(chunk) => chunk_before(Kind::PutChunk, chunk, payload as u32, None),
        Message::Get(chunk, len) => chunk_before(Kind::GetChunk, chunk, len, None),
        Message::PutSignal(chunk, signal) => {
            let said = signal.atomic.and_then(Atomic::to_signal).expect("senders say what is done");
            chunk_before(Kind::PutChunk, chunk, payload as u32, Some((signal.word, said)))
        }
        Message::PutDone { done, old } => {
            let args = [done.slot, status_word(done.status), old, 0];
            Header { token: done.op.token(), args, ..Header::new(Kind::PutDone) }
        }
        Message::GetData(done) => Header {
            token: done.op.token(),
            len: payload as u32,
            args: [done.slot, status_word(done.status), 0, 0],
            ..Header::new(Kind::GetData)
        },
        Message::BarrierOpen { epoch } => Header { args: [epoch, 0, 0, 0], ..Header::new(Kind::BarrierOpen) },
        Message::BarrierBroken { peer, gone } => {
            let args = [u64::from(peer.expect("senders know")), u64::from(gone), 0, 0];
            Header { args, ..Header::new(Kind::BarrierBroken) }
        }
        Message::Move(ask) => Header {
            token: u64::from(ask.id.at) | u64::from(ask.id.serial) << 32,
            len: payload as u32,
            args: [ask.attach, ask.detach, u64::from(ask.rider.is_some()), 0],
            place: ask.rider.unwrap_or(0),
            ..Header::new(Kind::Move)
        },
        Message::Moved(moved) => Header {
            token: u64::from(moved.id.at) | u64::from(moved.id.serial) << 32,
            len: payload as u32,
            args: [moved.limit, status_word(moved.status), 0, 0],
            ..Header::new(Kind::Moved)
        },
        Message::Revoke { holder } => {
            let args = [u64::from(holder.expect("senders know").0), 0, 0, 0];
            Header { args, ..Header::new(Kind::Revoke) }
        }
        Message::Recall { bytes } => Header { args: [bytes, 0, 0, 0], ..Header::new(Kind::Recall) },
        Message::Release(release) => {
            let holders = release.holders();
            let mut args = [holders.len() as u64 | (release.because as u64) << 32, 0, 0, 0];
            for (index, holder) in holders.iter().enumerate() {
                args[1 + index / 2] |= u64::from(holder.0) << (32 * (index % 2));
            }
            Header { args, ..Header::new(Kind::Release) }
        }
        Message::Stage(ask) => {
            let kind = match ask.act {
                StageAct::Take => Kind::StageTake,
                StageAct::Fill => Kind::StageFill,
                StageAct::Drain => Kind::StageDrain,
            };
            let args = [stage_to_wire(ask.stage), 0, 0, 0];
            Header { len: ask.len, token: ask.op.token(), args, place: ask.at, ..Header::new(kind) }
        }
        Message::StageGive { stage } => {
            Header { args: [stage_to_wire(stage), 0, 0, 0], ..Header::new(Kind::StageGive) }
        }
        Message::Staged(staged) => {
            let args = [status_word(staged.status), stage_to_wire(staged.stage), 0, 0];
            Header { token: staged.op.token(), args, ..Header::new(Kind::Staged) }
        }
        Message::Team(team, message) => Header { token: team.0, ..team_before(&message, payload) },
    }
}

fn chunk_before(kind: Kind, chunk: Chunk, len: u32, signal: Option<(u64, (u16, u64))>) -> Header {
    let at = chunk.at.expect("senders say where");
    let mut header = Header {
        kind,
        handler: 0,
        len,
        token: chunk.op.token(),
        args: [at.mem.to_wire(), chunk.slot, 0, 0],
        place: at.offset,
    };
    if let Some((word, (what, value))) = signal {
        (header.kind, header.handler) = (Kind::PutSignal, what);
        (header.args[2], header.args[3]) = (word, value);
    }
    header
}

fn team_before(message: &TeamMessage, payload: usize) -> Header {
    let pair = |[low, high]: [u32; 2]| u64::from(low) | u64::from(high) << 32;
    match *message {
        TeamMessage::Step(step) => {
            let args =
                [step.number << 16 | u64::from(step.tag), step.signature.what, step.signature.bytes, 0];
            let mut header = Header { args, ..Header::new(Kind::TeamWord) };
            match step.data.expect("senders send some") {
                StepData::Word { len, bytes } => {
                    header.len = len;
                    header.args[3] = u64::from_le_bytes(bytes);
                }
                StepData::Payload => (header.kind, header.len) = (Kind::TeamData, payload as u32),
                StepData::Offer { at, len, given_up } => {
                    header.kind = Kind::TeamOffer;
                    header.handler = at.mem.to_wire() as u16;
                    header.len = given_up;
                    header.args[3] = len;
                    header.place = at.offset;
                }
            }
            header
        }
        TeamMessage::Taken { number, tag, is_seen } => {
            let args = [number << 16 | u64::from(tag), u64::from(is_seen), 0, 0];
            Header { args, ..Header::new(Kind::TeamTaken) }
        }
        TeamMessage::Confirmed { number, tag } => {
            Header { args: [number << 16 | u64::from(tag), 0, 0, 0], ..Header::new(Kind::TeamConfirmed) }
        }
        TeamMessage::Doubted { number } => {
            Header { args: [number << 16, 0, 0, 0], ..Header::new(Kind::TeamDoubted) }
        }
        TeamMessage::Upheld { number } => {
            Header { args: [number << 16, 0, 0, 0], ..Header::new(Kind::TeamUpheld) }
        }
        TeamMessage::Pace(Pace { come_to, wants, waits_in }) => {
            let pace = Header { args: [come_to, wants, 0, 0], ..Header::new(Kind::TeamPace) };
            match waits_in {
                Some((number, signature)) => {
                    let args = [pace.args[0], wants, signature.what, signature.bytes];
                    Header { args, place: number, ..pace }
                }
                None => pace,
            }
        }
        TeamMessage::Broken(TeamBroken { from, why, of }) => {
            let why = why.expect("senders say why") as u64 | from << 16;
            let args = [why, pair(of.ranks), of.bytes[0], of.bytes[1]];
            Header { args, place: pair(of.words), ..Header::new(Kind::TeamBroken) }
        }
    }
}

/// Whether the fields are what its handler read out of that header.
fn reads_as_before(header: &Header, message: &Message) -> bool {
    let Header { kind, handler, len, token, args, place } = *header;
    let at = MemId::from_wire(args[0]).map(|mem| Place::new(mem, place));
    let status = |word| match word {
        CHUNK_OK => Some(Status::Ok),
        CHUNK_FAULT => Some(Status::Fault),
        STAGE_NONE => Some(Status::NoStage),
        CHUNK_NOT_EXPOSED => Some(Status::NotExposed),
        STAGE_NEVER => Some(Status::NeverStage),
        CHUNK_NO_WORD => Some(Status::NoWord),
        _ => None,
    };
    let is_chunk = |chunk: &Chunk| (chunk.op.token(), chunk.slot, chunk.at) == (token, args[1], at);
    let is_answer =
        |done: &ChunkDone| (done.op.token(), done.slot, done.status) == (token, args[0], status(args[1]));
    let is_move = |id: &MoveId| (id.at, id.serial) == (token as u32, (token >> 32) as u32);
    match message {
        Message::Am(am) => {
            let long = MemId::from_wire(token & 0xff).map(|mem| AmForm::Long(Place::new(mem, place), len));
            let form = match kind {
                Kind::AmShort => AmForm::Short,
                Kind::AmMedium => AmForm::Medium,
                _ => long.expect("it lies in a memory"),
            };
            (am.handler, am.args, am.stamp, am.form) == (handler, args, token >> 8, form)
        }
        Message::AmDone { stamp } => *stamp == token >> 8,
        Message::Put(chunk) => kind == Kind::PutChunk && is_chunk(chunk),
        Message::Get(chunk, bytes) => kind == Kind::GetChunk && is_chunk(chunk) && *bytes == len,
        Message::PutSignal(chunk, signal) => {
            let atomic = Atomic::from_signal(handler, args[3]);
            is_chunk(chunk) && (signal.word, signal.atomic) == (args[2], atomic)
        }
        Message::PutDone { done, old } => kind == Kind::PutDone && is_answer(done) && *old == args[2],
        Message::GetData(done) => kind == Kind::GetData && is_answer(done),
        Message::BarrierOpen { epoch } => *epoch == args[0],
        Message::BarrierBroken { peer, gone } => {
            (*peer, *gone) == (Rank::try_from(args[0]).ok(), args[1] != 0)
        }
        Message::Move(ask) => {
            let rider = (args[2] != 0).then_some(place);
            is_move(&ask.id) && (ask.attach, ask.detach, ask.rider) == (args[0], args[1], rider)
        }
        Message::Moved(moved) => {
            is_move(&moved.id) && (moved.limit, moved.status) == (args[0], status(args[1]))
        }
        Message::Revoke { holder } => holder.map(|holder| holder.0) == u32::try_from(args[0]).ok(),
        Message::Recall { bytes } => *bytes == args[0],
        Message::Release(release) => {
            let names = (0..(args[0] as u32 as usize).min(6))
                .map(|index| (args[1 + index / 2] >> (32 * (index % 2))) as u32);
            let because = args[0] >> 32;
            (release.because == Because::Revoked) == (because == 1)
                && (release.because == Because::Recalled) == (because == 2)
                && release.holders().iter().map(|holder| holder.0).eq(names)
        }
        Message::Stage(ask) => {
            let wanted = (token, stage_from_wire(args[0]), place, len);
            (ask.act == StageAct::Take) == (kind == Kind::StageTake)
                && (ask.act == StageAct::Fill) == (kind == Kind::StageFill)
                && (ask.op.token(), ask.stage, ask.at, ask.len) == wanted
        }
        Message::StageGive { stage } => *stage == stage_from_wire(args[0]),
        Message::Staged(staged) => {
            let wanted = (token, status(args[0]), stage_from_wire(args[1]));
            (staged.op.token(), staged.status, staged.stage) == wanted
        }
        Message::Team(team, message) => team.0 == token && team_reads_as_before(header, message),
    }
}

fn team_reads_as_before(header: &Header, message: &TeamMessage) -> bool {
    let Header { kind, handler, len, args, place, .. } = *header;
    let (number, tag) = (args[0] >> 16, args[0] as u16);
    match *message {
        TeamMessage::Step(step) => {
            let data = match kind {
                Kind::TeamWord if len <= 8 => Some(StepData::Word { len, bytes: args[3].to_le_bytes() }),
                Kind::TeamData => Some(StepData::Payload),
                Kind::TeamOffer => MemId::from_wire(u64::from(handler))
                    .filter(|mem| *mem == MemId::Space)
                    .map(|mem| StepData::Offer { at: Place::new(mem, place), len: args[3], given_up: len }),
                _ => None,
            };
            let called = (step.signature.what, step.signature.bytes);
            (step.number, step.tag, called, step.data) == (number, tag, (args[1], args[2]), data)
        }
        TeamMessage::Taken { number: of, tag: with, is_seen } => {
            kind == Kind::TeamTaken && (of, with, is_seen) == (number, tag, args[1] != 0)
        }
        TeamMessage::Confirmed { number: of, tag: with } => {
            kind == Kind::TeamConfirmed && (of, with) == (number, tag)
        }
        TeamMessage::Doubted { number: of } => kind == Kind::TeamDoubted && of == number,
        TeamMessage::Upheld { number: of } => kind == Kind::TeamUpheld && of == number,
        TeamMessage::Pace(Pace { come_to, wants, waits_in }) => {
            let called = waits_in.map(|(number, called)| (number, called.what, called.bytes));
            let wanted = (place != 0).then_some((place, args[2], args[3]));
            kind == Kind::TeamPace && (come_to, wants, called) == (args[0], args[1], wanted)
        }
        TeamMessage::Broken(TeamBroken { from, why, of }) => {
            let pair = |word: u64| [word as u32, (word >> 32) as u32];
            let reason = args[0] & 0xffff;
            let known = (reason <= 4).then_some(reason);
            kind == Kind::TeamBroken
                && (from, why.map(|why| why as u64)) == (number, known)
                && (of.ranks, of.words, of.bytes) == (pair(args[1]), pair(place), [args[2], args[3]])
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn words_are_what_senders_made_them(kind in 0..KINDS, w in words()) {
        let (message, payload) = sample(kind, w, false);
        prop_assert_eq!(message.encode(payload), before(&message, payload).encode());
    }

    #[test]
    fn fields_are_what_handlers_read(kind in 0..u64::from(KINDS) + 1, w in words()) {
        let [first, a, b, c, d, e, f, _] = w;
        let words = [first >> 16 << 16 | kind, a, b, c, d, e, f];
        for payload in [0, (first >> 32) as usize] {
            let header = Header::decode(&words, payload);
            match (Message::decode(&words, payload), header) {
                (Ok(message), Ok(header)) => {
                    prop_assert!(reads_as_before(&header, &message), "{header:?} as {message:?}");
                }
                (Err(refused), Err(error)) => prop_assert_eq!(refused, error),
                (refused, header) => {
                    let header = header.expect("only what lies in no memory is refused besides");
                    prop_assert_eq!(header.kind, Kind::AmLong);
                    prop_assert_eq!(refused, Err(WireError::Memory(header.token & 0xff)));
                }
            }
        }
    }
}
