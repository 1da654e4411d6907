//! What a thread of a process does: one operation after the other with one of the others, as it comes, each
//! verified.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use standpipe::{AtomicOp, Error, GlobalPtr, PutPiece, Rank, Remote, Signal};

use crate::memory::{
    AREA, CELLS, COMMON, COUNTER, EVERYBODY, HEAP, MAPPED, NOTED, PRIVATE, READ, WORD, WORDS, checksum,
    filled, letter, slot,
};
use crate::peer::{Peer, cuts, place};
use crate::process::{Mode, Shared};
use crate::support::{LIMIT, Random};

/// What each thread adds at each other one once nobody is killed any more.
pub(crate) const ADDS: u64 = 40;

const NAMES: [&str; 8] = ["work 0", "work 1", "work 2", "work 3", "work 4", "work 5", "work 6", "work 7"];

/// Kinds of operations, as they are told.
const KINDS: [&str; 12] = [
    "puts",
    "gets",
    "atomics",
    "a question",
    "a long message",
    "notes",
    "memory made anew",
    "a letter",
    "a list of two",
    "an address of nothing",
    "a common word",
    "a single word",
];

/// A thread that works.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    random: Random,
    peers: Vec<Peer>,
    asked: u64,
    done: u64,
    slowest: (Duration, &'static str),
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Worker {
        let random = Random::new(shared.seed ^ (slot(shared.id, index) as u64) << 32);
        let slowest = (Duration::ZERO, KINDS[0]);
        Worker { shared, index, random, peers: Vec::new(), asked: 0, done: 0, slowest }
    }

    pub(crate) fn name(&self) -> &'static str {
        NAMES[self.index]
    }

    pub(crate) fn run(&mut self) {
        loop {
            self.meet();
            match self.shared.mode() {
                Mode::Rough => self.step(),
                Mode::Calm => break self.finish(),
                Mode::Leaving => break,
            }
        }
        self.shared.doing(self.name(), "nothing any more".into());
        let (slowest, kind) = self.slowest;
        self.shared.say(&format!("did {} {} {kind}", self.done, slowest.as_micros()));
    }

    fn meet(&mut self) {
        let own = slot(self.shared.id, self.index);
        let new = self.shared.met_since(self.peers.len());
        self.peers.extend(new.iter().map(|known| Peer::new(known, own)));
    }

    fn step(&mut self) {
        let living: Vec<usize> = (0..self.peers.len()).filter(|at| !self.peers[*at].lost).collect();
        if living.is_empty() {
            return std::thread::sleep(Duration::from_millis(1));
        }
        let at = living[self.random.below(living.len())];
        let kind = self.random.below(KINDS.len());
        self.shared.doing(self.name(), format!("{} with {}", KINDS[kind], self.peers[at].id));
        let begun = Instant::now();
        let result = self.operate(kind, at);
        self.judge(at, KINDS[kind], result);
        let took = begun.elapsed();
        if took > self.slowest.0 {
            self.slowest = (took, KINDS[kind]);
        }
        self.done += 1;
        // One that has been lost stays so.
        if self.random.below(50) == 0 {
            let lost: Vec<usize> = (0..self.peers.len()).filter(|at| self.peers[*at].lost).collect();
            if !lost.is_empty() {
                let at = lost[self.random.below(lost.len())];
                self.still_lost(at);
            }
        }
    }

    fn judge(&mut self, at: usize, what: &str, result: Result<(), Error>) {
        match result {
            Ok(()) => {}
            Err(Error::PeerLost { peer }) => {
                let lost = self.peers.iter().position(|other| other.number == peer);
                let lost =
                    lost.unwrap_or_else(|| panic!("{what} told of {peer}, whom this thread has not met"));
                assert!(lost == at || what == "a list of two", "{what} with {at} told of {lost}");
                self.peers[lost].lost = true;
                self.shared.lose(self.peers[lost].id, what);
            }
            Err(error) => panic!("{what} with process {}: {error} ({error:?})", self.peers[at].id),
        }
    }

    fn still_lost(&mut self, at: usize) {
        let peer = &self.peers[at];
        let word = peer.places.word::<u64>(peer.number, peer.slot, WORD);
        let lost = Err(Error::PeerLost { peer: peer.number });
        let node = &self.shared.node;
        let found = match self.random.below(4) {
            0 => node.get(word),
            1 => node.fetch_add(word, 1),
            2 => node.put_nb(peer.at[PRIVATE], vec![1; 100]).wait().0.map(|()| 0),
            _ => node.request(peer.number, node.handler("ask").expect("registered"), [0; 4]).map(|()| 0),
        };
        assert_eq!(found, lost, "process {} was lost before", peer.id);
    }

    fn operate(&mut self, kind: usize, at: usize) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let (node, random) = (&shared.node, &mut self.random);
        let peer = &mut self.peers[at];
        match kind {
            0 => peer.put(node, random),
            1 => peer.get(node, random),
            2 => peer.change(node, random),
            3 => self.ask(at),
            4 => self.long(at),
            5 => self.note(at),
            6 => self.renew(at),
            7 if self.index == 0 => self.write_letter(at),
            8 => self.list_of_two(at),
            9 => self.nowhere(at),
            10 => self.common(at),
            _ => {
                let word = peer.places.word::<u64>(peer.number, peer.slot, WORD);
                let before = node.atomic_load(word)?;
                assert_eq!(node.get(word)?, before, "a word that only this thread changes");
                Ok(())
            }
        }
    }

    /// Waits for the answer to the question that was asked last.
    fn answer(&self, at: usize) -> Result<u64, Error> {
        let (shared, peer) = (&self.shared, self.peers[at].number);
        let mut answer = None;
        shared.node.wait_until(|| {
            answer = shared.answers.to(self.index, self.asked);
            answer.is_some() || shared.node.lost_peers().contains(&peer)
        })?;
        answer.ok_or(Error::PeerLost { peer })
    }

    fn handler(&self, name: &str) -> standpipe::HandlerId {
        self.shared.node.handler(name).expect("registered")
    }

    fn ask(&mut self, at: usize) -> Result<(), Error> {
        self.asked += 1;
        let peer = self.peers[at].number;
        let (seed, answered) = (self.random.next() >> 1, self.payload_len(peer) as u64);
        let question = filled(seed, self.payload_len(peer));
        let args = [self.asked, self.index as u64, seed, answered];
        self.send_question(peer, args, &question)?;
        assert_eq!(
            self.answer(at)?,
            checksum(&question),
            "the question as it arrived at {}",
            self.peers[at].id
        );
        Ok(())
    }

    /// A length of a payload: now and then as long as the peer may take.
    fn payload_len(&mut self, peer: Rank) -> usize {
        let most = if self.random.below(8) == 0 { self.shared.node.medium_max(peer) } else { 6000 };
        self.random.below(most + 1)
    }

    /// In one of the ways that there are.
    fn send_question(&mut self, peer: Rank, args: [u64; 4], question: &[u8]) -> Result<(), Error> {
        let (node, ask) = (&self.shared.node, self.handler("ask"));
        match self.random.below(4) {
            0 => {
                let mut prepared = node.prepare_medium(peer, question.len(), question.len())?;
                prepared.copy_from_slice(question);
                prepared.commit(ask, args, question.len())
            }
            1 => {
                let begun = Instant::now();
                while !node.try_request_medium(peer, ask, args, question)? {
                    node.progress();
                    assert!(begun.elapsed() < LIMIT, "the lane to {peer} stays full");
                }
                Ok(())
            }
            _ => node.request_medium(peer, ask, args, question),
        }
    }

    fn long(&mut self, at: usize) -> Result<(), Error> {
        self.asked += 1;
        let area = if self.random.below(2) == 0 { HEAP } else { PRIVATE };
        let start = self.random.below(AREA - 1);
        let len = 1 + self.random.below(AREA - start);
        let bytes = filled(self.random.next(), len);
        let peer = &self.peers[at];
        let what = (area as u64) << 32 | start as u64;
        let args = [self.asked, self.index as u64, peer.slot as u64, what];
        let to = peer.at[area].plus(start as u64);
        if self.random.below(2) == 0 {
            self.shared.node.request_long(self.handler("long"), args, to, &bytes)?;
        } else {
            let event = self.shared.node.request_long_nb(self.handler("long"), args, to, bytes.clone());
            event.wait().0?;
        }
        assert_eq!(self.answer(at)?, checksum(&bytes), "what landed at {}", peer.id);
        self.peers[at].keep((area, start, len), &bytes);
        Ok(())
    }

    fn note(&mut self, at: usize) -> Result<(), Error> {
        for _ in 0..1 + self.random.below(10) {
            let peer = &mut self.peers[at];
            peer.notes += 1;
            let (number, args) = (peer.number, [peer.slot as u64, peer.notes, 0, 0]);
            self.shared.node.request(number, self.handler("note"), args)?;
        }
        Ok(())
    }

    /// Has the owner free an area and make it anew, elsewhere perhaps; where it was, nothing is then.
    fn renew(&mut self, at: usize) -> Result<(), Error> {
        if !self.shared.unmaps {
            return Ok(());
        }
        self.asked += 1;
        let area = if self.random.below(2) == 0 { HEAP } else { MAPPED };
        let moves = self.random.below(2) == 0;
        let peer = &self.peers[at];
        let what = (area << 1 | usize::from(moves)) as u64;
        let args = [self.asked, self.index as u64, peer.slot as u64, what];
        self.shared.node.request(peer.number, self.handler("renew"), args)?;
        let (now, before) = (self.answer(at)?, peer.at[MAPPED]);
        self.peers[at].renewed(area, now);
        if area == MAPPED && moves {
            self.is_fault(at, before)?;
        }
        Ok(())
    }

    /// A place where nothing is mapped.
    fn nowhere(&mut self, at: usize) -> Result<(), Error> {
        self.is_fault(at, place(self.peers[at].number, PRIVATE, 4096))?;
        let beyond = GlobalPtr::<u64>::new(self.peers[at].number, 1 << 40);
        self.is_fault(at, beyond.into())
    }

    fn is_fault(&mut self, at: usize, nothing: Remote) -> Result<(), Error> {
        let peer = &self.peers[at];
        let mut bytes = vec![0; 1 + self.random.below(5000)];
        let result = match self.random.below(3) {
            0 => self.shared.node.get_bytes(nothing, &mut bytes),
            1 => self.shared.node.put_bytes(nothing, &bytes),
            _ => self.shared.node.get_nb(nothing, bytes).wait().0,
        };
        match result {
            Err(Error::Fault { peer: by, .. }) if by == peer.number => Ok(()),
            Err(Error::PeerLost { peer: lost }) if lost == peer.number => Err(Error::PeerLost { peer: lost }),
            other => panic!("where nothing is at {}: {other:?}", peer.id),
        }
    }

    /// The process's first thread writes letters: bytes, and then a signal that they are there.
    fn write_letter(&mut self, at: usize) -> Result<(), Error> {
        let (node, id) = (&self.shared.node, self.shared.id);
        let peer = &mut self.peers[at];
        let own = slot(id, 0);
        let read = node.get(peer.places.word::<u64>(peer.number, own, READ))?;
        assert!(read <= peer.letters, "{} has read {read} of {} letters", peer.id, peer.letters);
        if peer.letters - read >= CELLS as u64 {
            return Ok(());
        }
        let bytes = letter(id, peer.letters);
        let (in_heap, to) = peer.places.cell(id, peer.letters);
        let to = place(peer.number, if in_heap { HEAP } else { PRIVATE }, to);
        let counter = peer.places.word::<u64>(peer.number, own, COUNTER);
        peer.letters += 1;
        let signal = if self.random.below(2) == 0 {
            Signal::add(counter, 1)
        } else {
            Signal::set(counter, peer.letters)
        };
        match self.random.below(3) {
            0 => node.put_signal(to, &bytes, signal),
            1 => node.put_signal_nb(to, bytes, signal).wait().0,
            _ => {
                node.put_signal_nbi(to, &bytes, signal)?;
                peer.quiet(node)
            }
        }
    }

    /// A list with pieces for two: those for the first are there if only the second is lost.
    fn list_of_two(&mut self, at: usize) -> Result<(), Error> {
        let others: Vec<usize> =
            (0..self.peers.len()).filter(|other| *other != at && !self.peers[*other].lost).collect();
        let Some(second) = others.get(self.random.below(others.len().max(1))).copied() else { return Ok(()) };
        let mut pieces = Vec::new();
        for to in [at, second] {
            for cut in cuts(&mut self.random) {
                pieces.push((to, cut, filled(self.random.next(), cut.2)));
            }
        }
        let list: Vec<PutPiece<'_>> = pieces
            .iter()
            .map(|(to, (area, start, _), bytes)| PutPiece {
                to: self.peers[*to].at[*area].plus(*start as u64),
                from: bytes,
            })
            .collect();
        let result = self.shared.node.put_list(&list);
        // Where the first is lost, the second has not been come to.
        let lost = matches!(&result, Err(Error::PeerLost { peer }) if *peer == self.peers[at].number);
        for (to, cut, bytes) in pieces.iter().filter(|_| !lost) {
            self.peers[*to].keep(*cut, bytes);
        }
        result
    }

    fn common(&mut self, at: usize) -> Result<(), Error> {
        let peer = &mut self.peers[at];
        let word = peer.places.word::<u64>(peer.number, slot(self.shared.id, 0), COMMON);
        let value = self.random.below(1000) as u64;
        if self.random.below(2) == 0 {
            self.shared.node.fetch_add(word, value)?;
        } else {
            self.shared.node.update_nbi(word, AtomicOp::Add, value)?;
        }
        peer.common += value;
        Ok(())
    }

    /// Nobody is killed any more: all that was done is looked at once more, and nothing may fail.
    fn finish(&mut self) {
        let live = self.shared.live();
        self.shared.doing(self.name(), "waiting until all are met and missed".into());
        let begun = Instant::now();
        while !live.iter().all(|id| *id == self.shared.id || self.peers.iter().any(|peer| peer.id == *id)) {
            assert!(begun.elapsed() < LIMIT, "not all of {live:?} are met");
            std::thread::sleep(Duration::from_millis(1));
            self.meet();
        }
        for at in 0..self.peers.len() {
            if live.contains(&self.peers[at].id) { self.last_look(at) } else { self.miss(at) }
        }
        // What any thread had left to `quiet` with one that was killed last may be told only now.
        loop {
            match self.shared.node.quiet() {
                Ok(()) => break,
                Err(Error::PeerLost { peer })
                    if self.peers.iter().any(|other| other.lost && other.number == peer) => {}
                Err(error) => panic!("nothing is lost any more: {error}"),
            }
        }
    }

    /// This one is gone, and all that is done with it fails.
    fn miss(&mut self, at: usize) {
        self.shared.doing(self.name(), format!("missing {}", self.peers[at].id));
        let begun = Instant::now();
        let peer = &self.peers[at];
        let word = peer.places.word::<u64>(peer.number, peer.slot, WORD);
        while self.shared.node.put(word, 1).is_ok() {
            assert!(begun.elapsed() < LIMIT, "process {} is gone, and not missed", peer.id);
            std::thread::sleep(Duration::from_millis(1));
        }
        self.peers[at].lost = true;
        self.shared.lose(self.peers[at].id, "the last look");
        self.still_lost(at);
    }

    fn last_look(&mut self, at: usize) {
        let id = self.peers[at].id;
        self.shared.doing(self.name(), format!("looking at {id} for the last time"));
        assert!(!self.peers[at].lost, "process {id} lives, and was lost here");
        let result = self.look(at);
        assert_eq!(result, Ok(()), "the last look at {id}");
        self.shared.added(id, self.peers[at].common);
    }

    fn look(&mut self, at: usize) -> Result<(), Error> {
        // What failed with others before is told here.
        self.peers[at].quiet(&self.shared.node)?;
        self.peers[at].look(&self.shared.node)?;
        // Whoever answers a question has taken all notes before.
        self.ask(at)?;
        let (node, peer) = (&self.shared.node, &self.peers[at]);
        let noted = node.get(peer.places.word::<u64>(peer.number, peer.slot, NOTED))?;
        assert_eq!(noted, peer.notes, "notes of this thread at {}", peer.id);
        let begun = Instant::now();
        let read = peer.places.word::<u64>(peer.number, slot(self.shared.id, 0), READ);
        while self.index == 0 && node.get(read)? != peer.letters {
            assert!(
                begun.elapsed() < LIMIT,
                "{} of {} letters were read by {}",
                node.get(read)?,
                peer.letters,
                peer.id
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        let everybody = peer.places.word::<u64>(peer.number, slot(0, 0), EVERYBODY);
        let mut last = None;
        for round in 0..ADDS {
            if round % 2 == 0 {
                let before = node.fetch_add(everybody, 1)?;
                assert!(last.is_none_or(|last| before > last), "a sum that falls");
                last = Some(before);
            } else {
                node.update_nbi(everybody, AtomicOp::Add, 1)?;
            }
        }
        peer.quiet(node)
    }
}

/// The thread that reads the letters of all others, and serves them until the process leaves.
pub(crate) struct Reader {
    shared: Arc<Shared>,
    random: Random,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Reader {
        let random = Random::new(shared.seed ^ (shared.id as u64) << 32 ^ 0x1e77e5);
        Reader { shared, random }
    }

    pub(crate) fn run(&mut self) {
        let mut read: BTreeMap<usize, u64> = BTreeMap::new();
        let mut known = Vec::new();
        while self.shared.mode() != Mode::Leaving {
            known.extend(self.shared.met_since(known.len()));
            let waiting = |id: usize| self.shared.memory.word(slot(id, 0), COUNTER);
            let new = known.iter().find(|peer| waiting(peer.id) > read.get(&peer.id).copied().unwrap_or(0));
            if let Some((id, number)) = new.map(|peer| (peer.id, peer.number)) {
                self.read(id, number, read.entry(id).or_default());
                continue;
            }
            if known.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let peer = &known[self.random.below(known.len())];
            let next = read.get(&peer.id).copied().unwrap_or(0) + 1;
            self.wait_for(peer.id, peer.number, next);
        }
    }

    fn counter(&self, id: usize) -> GlobalPtr<u64> {
        self.shared.memory.words.ptr(slot(id, 0) * WORDS + COUNTER)
    }

    fn wait_for(&self, id: usize, number: Rank, next: u64) {
        self.shared.doing("reader", format!("waiting for letter {next} of {id}"));
        let node = self.shared.node.within(Duration::from_millis(5));
        match node.wait_signal_from(number, self.counter(id), next) {
            Ok(_) | Err(Error::SignalTimeout { .. }) => {}
            Err(Error::PeerLost { peer }) if peer == number => self.shared.lose(id, "a letter awaited"),
            Err(error) => panic!("waiting for a letter of {id}: {error}"),
        }
    }

    fn read(&self, id: usize, number: Rank, read: &mut u64) {
        let counted = self.shared.node.wait_signal_from(number, self.counter(id), *read + 1);
        let counted = counted.unwrap_or_else(|error| panic!("a letter of {id} that has come: {error}"));
        assert!(
            (*read + 1..=*read + CELLS as u64).contains(&counted),
            "{counted} letters of {id}, {read} read"
        );
        for number in *read..counted {
            let expected = letter(id, number);
            let found = self.shared.memory.letter(id, number, expected.len());
            assert!(found == expected, "letter {number} of {id} was signalled, and is not there");
        }
        *read = counted;
        self.shared.memory.words.write(slot(id, 0) * WORDS + READ, counted);
    }
}
