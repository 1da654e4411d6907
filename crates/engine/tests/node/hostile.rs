//! Peers that send anything: random words, answers to what was never asked, answers twice, from the wrong
//! rank, with the wrong length. A second, slower account of what the node may believe says what must come of
//! it.

mod verdict;

use std::collections::{BTreeMap, VecDeque};

use self::verdict::{Verdict, asks_for_key, drop_deadline, lane_of, number, signals};
use crate::common::{PAYLOAD_MAX, Script, Sent};
use engine::node::Polled;
use engine::wire::Kind;
use engine::{
    Atomic, Direction, Event, GrantId, Granted, Header, Inbox, Lane, MemId, Node, OpError, OpId, Outcome,
    Piece, Place, Rank, Rights, Submit,
};
use proptest::prelude::*;

const RANKS: u32 = 4;
const HANDLERS: u32 = 3;
/// Bytes of the node's memory: each operation has a region of its own, and the rest is for what peers put and
/// get.
const MEMORY: usize = 1 << 16;
const REGION: u64 = 4096;
const OPS: u64 = 6;
/// What it grants of that: behind all regions.
const GRANTED: std::ops::Range<u64> = 7 * REGION..7 * REGION + 64;

/// One thing that happens to the node.
#[derive(Clone, Debug)]
enum Act {
    Start {
        peer: Rank,
        put: bool,
        len: u64,
    },
    Barrier,
    /// The oldest message that is still unanswered is answered as a correct peer would.
    Answer,
    /// An answer that was, or could have been, sent is sent again with something changed.
    Forge {
        pick: usize,
        change: Change,
    },
    /// Words that mean nothing, or something by chance.
    Noise {
        peer: Rank,
        lane: bool,
        words: [u64; 7],
        payload: Vec<u8>,
    },
    /// A well-formed message of any kind.
    Plausible {
        peer: Rank,
        lane: bool,
        kind: u8,
        handler: u16,
        args: [u64; 4],
        place: u64,
        payload: Vec<u8>,
    },
    /// A put or a get of a peer in this process's memory.
    Serve {
        peer: Rank,
        put: bool,
        mem: u64,
        place: u64,
        len: usize,
    },
    /// An atomic of a peer's on a word of what this process grants.
    Atomic {
        peer: Rank,
        at: u64,
        what: u32,
        values: [u64; 2],
    },
    Open {
        peer: Rank,
        epoch: u64,
    },
    Garble {
        peer: Rank,
    },
    Room {
        room: usize,
    },
    Cancel {
        pick: usize,
    },
    Expire,
    /// The outcomes that are there are taken; until then they lie in the node's table.
    Take,
}

/// What is wrong with a forged answer.
#[derive(Clone, Debug)]
enum Change {
    Nothing,
    Peer(Rank),
    Slot(u64),
    Token(u64),
    Status(u64),
    Length(usize),
    Kind,
    Lane,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Nothing),
        (0..RANKS).prop_map(Change::Peer),
        prop_oneof![0u64..10, any::<u64>()].prop_map(Change::Slot),
        prop_oneof![0u64..1 << 34, any::<u64>()].prop_map(Change::Token),
        prop_oneof![0u64..4, any::<u64>()].prop_map(Change::Status),
        (0usize..80).prop_map(Change::Length),
        Just(Change::Kind),
        Just(Change::Lane),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..PAYLOAD_MAX)
}

fn act() -> impl Strategy<Value = Act> {
    let peer = 0..RANKS;
    let edge = prop_oneof![0u64..MEMORY as u64, MEMORY as u64 - 70..MEMORY as u64 + 70, any::<u64>()];
    prop_oneof![
        3 => (peer.clone(), any::<bool>(), 0..REGION).prop_map(|(peer, put, len)| Act::Start { peer, put, len }),
        1 => Just(Act::Barrier),
        12 => Just(Act::Answer),
        6 => (any::<usize>(), change()).prop_map(|(pick, change)| Act::Forge { pick, change }),
        2 => (peer.clone(), any::<bool>(), any::<[u64; 7]>(), bytes())
            .prop_map(|(peer, lane, words, payload)| Act::Noise { peer, lane, words, payload }),
        3 => (peer.clone(), any::<bool>(), prop_oneof![3 => 0u8..10, 1 => 10u8..19, 1 => 28u8..34, 1 => 37u8..39], 0u16..6, any::<[u64; 4]>(), edge.clone(), bytes()).prop_map(
            |(peer, lane, kind, handler, args, place, payload)| Act::Plausible {
                peer, lane, kind, handler, args, place, payload
            }
        ),
        3 => (peer.clone(), any::<bool>(), 0u64..4, edge, 0usize..80)
            .prop_map(|(peer, put, mem, place, len)| Act::Serve { peer, put, mem, place, len }),
        3 => (peer.clone(), 0..GRANTED.end, 0u32..0x800, any::<[u32; 2]>())
            .prop_map(|(peer, at, what, values)| Act::Atomic { peer, at, what, values: values.map(u64::from) }),
        2 => (peer.clone(), 0u64..6).prop_map(|(peer, epoch)| Act::Open { peer, epoch }),
        1 => peer.prop_map(|peer| Act::Garble { peer }).no_shrink(),
        2 => prop_oneof![Just(usize::MAX), 0usize..4].prop_map(|room| Act::Room { room }),
        1 => any::<usize>().prop_map(|pick| Act::Cancel { pick }),
        1 => Just(Act::Expire),
        4 => Just(Act::Take),
    ]
}

/// What an operation may believe.
struct Shadow {
    id: OpId,
    token: Option<u64>,
    peer: Rank,
    put: bool,
    /// Its region of memory.
    local: std::ops::Range<u64>,
    /// Chunks under way, by slot.
    window: BTreeMap<u64, u64>,
    left: u64,
    refused: bool,
    over: bool,
}

/// The node, and the account of it.
struct Trial {
    node: Node<Script>,
    ops: Vec<Shadow>,
    started: u64,
    /// Sent messages that the account has seen, and chunks to be answered.
    seen: usize,
    asked: VecDeque<Sent>,
    /// Every answer that was asked for, for forgers.
    known: Vec<Sent>,
    /// Barriers: arrivals, the greatest opening believed, the wait under way.
    arrived: u64,
    opened: u64,
    wait: Option<OpId>,
    /// What peers may read and write by name.
    grant: GrantId,
}

impl Trial {
    fn new() -> Trial {
        let mut node = Node::new(1, RANKS, HANDLERS, Script::new(MEMORY));
        let (start, len) = (GRANTED.start, GRANTED.end - GRANTED.start);
        let granted = Granted { start, len, rights: Rights::ReadWrite, to: None };
        Trial {
            grant: node.grant(granted).expect("it is the first"),
            node,
            ops: Vec::new(),
            started: 0,
            seen: 0,
            asked: VecDeque::new(),
            known: Vec::new(),
            arrived: 0,
            opened: 0,
            wait: None,
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Start { peer, put, len } => self.start(peer, put, len),
            Act::Barrier => self.barrier(),
            Act::Answer => {
                if let Some(asked) = self.asked.pop_front() {
                    self.forge(&asked, &Change::Nothing);
                }
            }
            Act::Forge { pick, change } => {
                if !self.known.is_empty() {
                    let asked = self.known[pick % self.known.len()].clone();
                    self.forge(&asked, &change);
                }
            }
            Act::Noise { peer, lane, words, payload } => self.arrive(peer, lane_of(lane), words, &payload),
            Act::Plausible { peer, lane, kind, handler, args, place, payload } => {
                let len = payload.len() as u64;
                let first = u64::from(kind) | u64::from(handler) << 16 | len << 32;
                let [a, b, c, d] = args;
                self.arrive(peer, lane_of(lane), [first, a % 5, a, b, c, d, place], &payload);
            }
            Act::Serve { peer, put, mem, place, len } => self.serve(peer, put, mem, place, len),
            Act::Atomic { peer, at, what, values: [first, second] } => {
                let Place { mem, offset: place } = Place::granted(self.grant, at);
                let args = [mem.to_wire(), first, second, 0];
                let header = Header { len: what, args, place, ..Header::new(Kind::AtomicAsk) };
                self.arrive(peer, Lane::Request, header.encode(), &[]);
            }
            Act::Open { peer, epoch } => {
                let header = Header { args: [epoch, 0, 0, 0], ..Header::new(Kind::BarrierOpen) };
                self.arrive(peer, Lane::Request, header.encode(), &[]);
            }
            Act::Garble { peer } => self.garble(peer),
            Act::Room { room } => self.node.transport().room = room,
            Act::Cancel { pick } => {
                if let Some(op) = self.ops.get(pick % OPS as usize) {
                    self.node.cancel(op.id);
                }
            }
            Act::Expire => drop_deadline(self.node.expire(0)),
            Act::Take => self.take_outcomes(),
        }
        self.poll();
    }

    /// Starts a transfer in a region of its own.
    fn start(&mut self, peer: Rank, put: bool, len: u64) {
        if self.started == OPS {
            return;
        }
        let start = self.started * REGION;
        self.started += 1;
        let (local, remote) = (Place::new(MemId::Space, start), Place::new(MemId::Space, 7 << 40 | start));
        let piece = Piece::new(remote, local, len).expect("far below 2^64");
        let direction = if put { Direction::Put } else { Direction::Get };
        let deadline = (self.started == OPS).then_some(0);
        // Some puts signal: in the last message, or by an atomic, which there are none of here.
        let id = if put && len % 2 == 1 {
            let word = Place::new(MemId::Heap, 0);
            self.node.transfer_then_signal(peer, &[piece], word, Atomic::fetch_add(1), deadline)
        } else {
            self.node.transfer(peer, direction, &[piece], deadline)
        };
        self.ops.push(Shadow {
            id,
            token: None,
            peer,
            put,
            local: start..start + len,
            window: BTreeMap::new(),
            left: len,
            refused: false,
            over: false,
        });
        self.watch_sent();
    }

    fn barrier(&mut self) {
        if self.wait.is_some() {
            return;
        }
        // A counter that agrees: the other ranks' arrivals are left out, which the node cannot know.
        let before = self.arrived * u64::from(RANKS);
        self.node.transport().atomics = VecDeque::from([Submit::Done(before)]);
        let started = self.node.transport().started.len();
        self.wait = Some(self.node.barrier(None));
        let copies = self.node.transport().atomics.is_empty();
        assert_eq!(copies, self.node.transport().started.len() > started);
        self.arrived += u64::from(copies);
    }

    /// Learns which chunks the node has sent: they may be answered.
    fn watch_sent(&mut self) {
        let sent = self.node.transport().sent[self.seen..].to_vec();
        self.seen += sent.len();
        for sent in sent {
            if !matches!(sent.header.kind, Kind::PutChunk | Kind::PutSignal | Kind::GetChunk) {
                continue;
            }
            let owner = |op: &&mut Shadow| {
                let base = op.local.start;
                let inside = (base..base + REGION).contains(&(sent.header.place - (7 << 40)));
                inside && op.peer == sent.peer
            };
            let op = self.ops.iter_mut().find(owner).expect("every chunk belongs to an operation");
            assert!(!op.over, "an operation that is over sent a chunk");
            assert_eq!(*op.token.get_or_insert(sent.header.token), sent.header.token);
            let old = op.window.insert(sent.header.args[1], u64::from(sent.header.len));
            assert_eq!(old, None, "two chunks in one slot");
            self.asked.push_back(sent.clone());
            self.known.push(sent);
        }
    }

    fn forge(&mut self, asked: &Sent, change: &Change) {
        let put = asked.header.kind != Kind::GetChunk;
        let (mut peer, mut lane, mut slot, mut status) = (asked.peer, Lane::Reply, asked.header.args[1], 0);
        let (mut token, mut kind) = (asked.header.token, if put { Kind::PutDone } else { Kind::GetData });
        let mut len = if put { 0 } else { asked.header.len as usize };
        match *change {
            Change::Nothing => {}
            Change::Peer(other) => peer = other,
            Change::Slot(other) => slot = other,
            Change::Token(other) => token = other,
            Change::Status(other) => status = other,
            Change::Length(other) => len = other,
            Change::Kind => kind = if put { Kind::GetData } else { Kind::PutDone },
            Change::Lane => lane = Lane::Request,
        }
        if kind == Kind::GetData && status != 0 {
            len = 0;
        }
        let header = Header { len: len as u32, token, args: [slot, status, 0, 0], ..Header::new(kind) };
        let payload = vec![0xab; if kind == Kind::GetData { len } else { 0 }];
        self.arrive(peer, lane, header.encode(), &payload);
    }

    fn serve(&mut self, peer: Rank, put: bool, mem: u64, place: u64, len: usize) {
        let kind = if put { Kind::PutChunk } else { Kind::GetChunk };
        let header = Header { len: len as u32, place, args: [mem, 5, 0, 0], ..Header::new(kind) };
        let payload = vec![0xcd; if put { len } else { 0 }];
        self.arrive(peer, Lane::Request, header.encode(), &payload);
    }

    fn garble(&mut self, peer: Rank) {
        self.node.transport().inbox.push_back((Event::Garbled { peer }, Inbox::default()));
        let before = self.node.counters().malformed;
        self.poll();
        assert_eq!(self.node.counters().malformed, before + 1);
        assert!(self.node.is_lost(peer));
        for op in self.ops.iter().filter(|op| op.peer == peer && !op.over) {
            assert!(self.node.is_done(op.id), "an operation with a lost peer goes on");
        }
    }

    /// Hands one message to the node, and checks all that it does about it.
    fn arrive(&mut self, peer: Rank, lane: Lane, words: [u64; 7], payload: &[u8]) {
        self.poll();
        self.node.transport().writes.clear();
        let malformed = self.node.counters().malformed;
        let verdict = self.judge(peer, lane, &words, payload);
        self.node.transport().arrive(peer, lane, words, payload);
        let mut inbox = Inbox::default();
        let polled = self.node.poll(&mut inbox);
        self.check_writes(&verdict);
        let counted = self.node.counters().malformed - malformed;
        match verdict {
            Verdict::Malformed => assert_eq!(counted, 1, "not counted: {words:?}"),
            Verdict::Unanswerable | Verdict::OfTeam => assert!(counted <= 1),
            Verdict::Late | Verdict::Write(..) | Verdict::Nothing => assert_eq!(counted, 0, "{words:?}"),
            Verdict::Deliver => assert!(matches!(polled, Polled::Deliver(_)) && counted == 0),
        }
        self.watch_sent();
    }

    /// Every write must be the one that the message asked for.
    fn check_writes(&mut self, verdict: &Verdict) {
        for (start, len) in std::mem::take(&mut self.node.transport().writes) {
            let allowed = match verdict {
                Verdict::Write(range) => range.contains(&start) && start + len <= range.end || len == 0,
                Verdict::Unanswerable => true,
                _ => false,
            };
            assert!(allowed, "{len} bytes written at {start:#x} for {verdict:?}");
        }
    }

    fn poll(&mut self) {
        let mut inbox = Inbox::default();
        while self.node.poll(&mut inbox) != Polled::Idle {
            self.watch_sent();
        }
        self.watch_sent();
    }

    /// No outcome may say more than the answers have said.
    fn take_outcomes(&mut self) {
        for op in self.ops.iter_mut().filter(|op| !op.over) {
            let Some(outcome) = self.node.outcome(op.id) else { continue };
            op.over = true;
            match outcome {
                Ok(_) => {
                    assert!(op.left == 0 && !op.refused, "a transfer of {:?} completed wrongly", op.local)
                }
                Err(
                    OpError::Fault { peer, .. }
                    | OpError::NotExposed { peer, .. }
                    | OpError::Protocol { peer, .. },
                ) => {
                    assert!(op.refused && peer == op.peer);
                }
                // The bytes are in place, and no atomic is done here.
                Err(OpError::Unsupported { peer, .. }) => {
                    assert!(op.put && op.left == 0 && !op.refused && peer == op.peer);
                }
                Err(OpError::PeerLost { peer }) => assert!(self.node.is_lost(peer) && peer == op.peer),
                Err(OpError::Timeout { peer }) => assert_eq!(peer, op.peer),
                Err(error) => panic!("{error} from nowhere"),
            }
        }
        let Some(wait) = self.wait else { return };
        let outcome: Option<Outcome> = self.node.outcome(wait);
        if outcome == Some(Ok(0)) {
            assert_eq!(self.opened, self.arrived, "a barrier was passed that nobody opened");
        }
        if outcome.is_some() {
            self.wait = None;
        }
    }

    /// What the node must make of a message; the account takes note.
    fn judge(&mut self, peer: Rank, lane: Lane, words: &[u64; 7], payload: &[u8]) -> Verdict {
        let Ok(header) = Header::decode(words, payload.len()) else { return Verdict::Malformed };
        match (header.kind, lane) {
            // Of grants, the upper bits are of a generation.
            (Kind::AmLong, _) if header.token & 0xff >= 3 && header.token & 0xf != 3 => Verdict::Malformed,
            (Kind::AmShort | Kind::AmMedium | Kind::AmLong, _) if number(&header) < HANDLERS => {
                Verdict::Deliver
            }
            (Kind::AmShort | Kind::AmMedium | Kind::AmLong, Lane::Request) => Verdict::Unanswerable,
            (Kind::AmShort | Kind::AmMedium | Kind::AmLong, Lane::Reply) => Verdict::Nothing,
            (Kind::AmRefused, _) => Verdict::Nothing,
            (Kind::HandlerAsk, Lane::Request) => Verdict::Unanswerable,
            (Kind::HandlerIs, Lane::Reply) => self.judge_found(&header),
            (Kind::GrantAsk, Lane::Request) if matches!(header.small, 1 | 2) => Verdict::Unanswerable,
            (Kind::GrantIs, Lane::Reply) => Verdict::Nothing,
            (Kind::AtomicAsk, Lane::Request) => self.judge_atomic(&header),
            (Kind::AtomicDone, Lane::Reply) => self.judge_bounced(&header),
            (Kind::PutChunk, Lane::Request) => self.judge_put(&header, payload.len() as u64),
            (Kind::PutSignal, Lane::Request) if signals(&header) => {
                self.judge_put(&header, payload.len() as u64)
            }
            (Kind::AmDone, Lane::Reply) if header.token >> 24 != 0 => Verdict::Nothing,
            (Kind::GetChunk, Lane::Request) => Verdict::Unanswerable.unless_room(self.node.transport().room),
            // It may bring a put with it, and is answered though nothing is registered here.
            (Kind::Move, Lane::Request) => Verdict::Unanswerable,
            // There is no key of anything here: it is answered so.
            (Kind::KeyAsk, Lane::Request) if asks_for_key(&header, payload.len()) => Verdict::Unanswerable,
            // There are none here: nothing is copied.
            (Kind::BounceTake | Kind::BounceFill | Kind::BounceDrain, Lane::Request) => {
                Verdict::Unanswerable.unless_room(self.node.transport().room)
            }
            // It may have been said before the peer was lost.
            (Kind::BounceGive, Lane::Request) if self.node.is_lost(peer) => Verdict::Nothing,
            (Kind::Bounced, Lane::Reply) => self.judge_bounced(&header),
            (Kind::BarrierOpen, Lane::Request) if (1..=self.arrived).contains(&header.args[0]) => {
                self.opened = self.opened.max(header.args[0]);
                Verdict::Nothing
            }
            (Kind::BarrierBroken, Lane::Request)
                if header.args[0] < u64::from(RANKS) && header.args[0] != 1 =>
            {
                Verdict::Nothing
            }
            // Their senders name teams that are not there; those of teams that are there are judged in
            // `tests/jobs/teams.rs`.
            (
                Kind::TeamWord
                | Kind::TeamData
                | Kind::TeamOffer
                | Kind::TeamTaken
                | Kind::TeamConfirmed
                | Kind::TeamDoubted
                | Kind::TeamUpheld
                | Kind::TeamPace
                | Kind::TeamBroken,
                Lane::Request,
            ) if header.token != 0 => match header.token >> 63 {
                0 => Verdict::Nothing,
                // Whoever names one of all ranks makes it.
                _ => Verdict::OfTeam,
            },
            (Kind::PutDone | Kind::GetData, Lane::Reply) => {
                self.judge_answer(peer, &header, payload.len() as u64)
            }
            _ => Verdict::Malformed,
        }
    }

    fn judge_put(&mut self, header: &Header, len: u64) -> Verdict {
        if self.node.transport().room == 0 {
            return Verdict::Unanswerable;
        }
        let inside = header.args[0] == MemId::Space.to_wire()
            && header.place.checked_add(len).is_some_and(|end| end <= MEMORY as u64);
        if inside { Verdict::Write(header.place..header.place + len) } else { Verdict::Nothing }
    }

    /// Words of the grant may change, and no others.
    fn judge_atomic(&mut self, header: &Header) -> Verdict {
        let [mem, first, second, _] = header.args;
        let Some(atomic) = Atomic::from_wire([header.len.into(), first, second]) else {
            return Verdict::Malformed;
        };
        let named = MemId::from_wire(mem).and_then(|mem| Place::new(mem, header.place).in_grant());
        let len = GRANTED.end - GRANTED.start;
        let start = match named {
            Some((grant, at)) if grant == self.grant && at + atomic.size() <= len => GRANTED.start + at,
            _ => return Verdict::Nothing.unless_full(self.node.transport().room),
        };
        let changes = start.is_multiple_of(atomic.size()) && atomic.may_change();
        let range = if changes { start..start + atomic.size() } else { start..start };
        Verdict::Write(range).unless_full(self.node.transport().room)
    }

    /// Nothing has asked for a bounce buffer, or for an atomic.
    fn judge_bounced(&mut self, header: &Header) -> Verdict {
        let live = |op: &&mut Shadow| op.token == Some(header.token) && !op.over;
        match self.ops.iter_mut().find(live) {
            Some(op) if !self.node.is_done(op.id) => Verdict::Malformed,
            _ => Verdict::Late,
        }
    }

    /// Nothing has asked for a handler.
    fn judge_found(&mut self, header: &Header) -> Verdict {
        let is_known = self.ops.iter().any(|op| op.token == Some(header.token) && !op.over);
        if is_known || header.small > 2 { Verdict::Malformed } else { Verdict::Late }
    }

    fn judge_answer(&mut self, peer: Rank, header: &Header, len: u64) -> Verdict {
        let live = |op: &&mut Shadow| op.token == Some(header.token) && !op.over;
        let Some(op) = self.ops.iter_mut().find(live) else { return Verdict::Late };
        if self.node.is_done(op.id) {
            return Verdict::Late;
        }
        let expected = if op.put { Kind::PutDone } else { Kind::GetData };
        if op.peer != peer || header.kind != expected {
            return Verdict::Malformed;
        }
        let Some(chunk) = op.window.remove(&header.args[0]) else { return Verdict::Malformed };
        if header.args[1] != 0 || (!op.put && len != chunk) {
            op.refused = true;
            return Verdict::Nothing;
        }
        op.left -= chunk;
        if op.put { Verdict::Nothing } else { Verdict::Write(op.local.clone()) }
    }
}

/// Without optimisation a case takes some milliseconds.
const CASES: u32 = if cfg!(debug_assertions) { 300 } else { 5000 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]
    #[test]
    fn no_peer_can_make_the_node_believe_what_is_not_so(acts in proptest::collection::vec(act(), 1..150)) {
        let mut trial = Trial::new();
        for act in acts {
            trial.act(act);
        }
        trial.take_outcomes();
    }

    #[test]
    fn words_without_meaning_never_hurt(
        messages in proptest::collection::vec((0..RANKS, any::<bool>(), any::<[u64; 7]>(), bytes()), 1..60),
    ) {
        let mut trial = Trial::new();
        trial.start(2, true, REGION);
        trial.start(3, false, REGION);
        for (peer, lane, mut words, payload) in messages {
            // The right length, so that the words are read.
            words[0] = words[0] & 0xffff_ff1f | (payload.len() as u64) << 32;
            trial.act(Act::Noise { peer, lane, words, payload });
        }
        trial.take_outcomes();
        prop_assert!(trial.ops.iter().all(|op| !op.over), "noise ended an operation");
    }
}
