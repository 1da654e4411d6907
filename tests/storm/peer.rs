//! A peer as one thread sees it: what must lie in the thread's slot there, and each way to change or look at
//! that.

use standpipe::{
    AtomicOp, Completions, Error, Event, GetPiece, GlobalPtr, Group, Indexed, Node, PutPiece, Rank, Remote,
    RemoteRun, Strided,
};

use crate::memory::{AREA, AREAS, HALVES, HEAP, Places, SIGNED, WORD, filled};
use crate::support::Random;

type Result<T = ()> = std::result::Result<T, standpipe::Error>;

/// A peer, and what it keeps for this thread.
pub(crate) struct Peer {
    pub(crate) id: usize,
    pub(crate) number: Rank,
    pub(crate) places: Places,
    pub(crate) slot: usize,
    /// Where the slot's areas are now, and what must be in them.
    pub(crate) at: [Remote; AREAS],
    pub(crate) kept: [Vec<u8>; AREAS],
    word: u64,
    halves: i32,
    signed: i64,
    pub(crate) notes: u64,
    pub(crate) common: u64,
    pub(crate) letters: u64,
    pub(crate) lost: bool,
}

/// Bytes that lie together: which area, from where, how many.
pub(crate) type Cut = (usize, usize, usize);

/// The place `address` in that area of a peer's.
pub(crate) fn place(number: Rank, area: usize, address: u64) -> Remote {
    if area == HEAP {
        return GlobalPtr::<u8>::new(number, address).into();
    }
    // SAFETY: bytes that their owner lets this thread alone use, and takes for plain numbers; if unmapped,
    // nothing is there.
    unsafe { Remote::raw(number, address) }
}

/// Starts of puts that are not over yet.
#[derive(Default)]
struct Open {
    events: Vec<Event<Vec<u8>>>,
    group: Option<Group>,
    queue: Option<Completions<Vec<u8>>>,
    quiet: bool,
}

/// By a queue, where that has room.
fn put_queued(node: &Node, open: &mut Open, to: Remote, bytes: &[u8]) -> Result {
    if open.queue.is_none() {
        open.queue = Some(node.completions(QUEUED_MAX)?);
    }
    match open.queue.as_ref().expect("made above").reserve() {
        Ok(place) => place.put(bytes.len() as u64, to, bytes.to_vec()),
        Err(Error::QueueFull { .. }) => return node.put_bytes(to, bytes),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Operations that a queue has at a time.
const QUEUED_MAX: usize = 8;

impl Peer {
    pub(crate) fn new(known: &super::process::Known, slot: usize) -> Peer {
        let (id, number, places) = (known.id, known.number, known.places.clone());
        let at = std::array::from_fn(|area| place(number, area, places.area(area, slot)));
        let kept = std::array::from_fn(|_| vec![0; AREA]);
        let (notes, common, letters) = (0, 0, 0);
        let (word, halves, signed) = (0, 0, 0);
        Peer { id, number, places, slot, at, kept, word, halves, signed, notes, common, letters, lost: false }
    }

    fn remote(&self, (area, at, _): Cut) -> Remote {
        self.at[area].plus(at as u64)
    }

    fn expected(&self, (area, at, len): Cut) -> &[u8] {
        &self.kept[area][at..at + len]
    }

    pub(crate) fn keep(&mut self, (area, at, len): Cut, bytes: &[u8]) {
        self.kept[area][at..at + len].copy_from_slice(bytes);
    }

    fn check(&self, cut: Cut, found: &[u8], by: &str) {
        let expected = self.expected(cut);
        if let Some(first) = found.iter().zip(expected).position(|(one, other)| one != other) {
            let last =
                found.iter().zip(expected).rposition(|(one, other)| one != other).expect("one differs");
            panic!(
                "{by} from process {}, area {}, {} bytes at {}: other bytes than were put at {first} to {last}: {:x?} for {:x?}",
                self.id,
                cut.0,
                cut.2,
                cut.1,
                &found[first..=last.min(first + 15)],
                &expected[first..=last.min(first + 15)],
            );
        }
    }

    /// Puts to several places at once, each in a way of its own, and waits for all of them.
    pub(crate) fn put(&mut self, node: &Node, random: &mut Random) -> Result {
        let mut open = Open::default();
        for cut in cuts(random) {
            let bytes = filled(random.next(), cut.2);
            self.put_one(node, random, cut, &bytes, &mut open)?;
            self.keep(cut, &bytes);
        }
        // In any order; some are left to `quiet`.
        while !open.events.is_empty() {
            let event = open.events.swap_remove(random.below(open.events.len()));
            match random.below(4) {
                0 => open.quiet = true,
                1 => {
                    let (_, rest) = event.wait_local();
                    rest.wait().0?;
                }
                _ => event.wait().0?,
            }
        }
        if let Some(group) = open.group {
            group.wait().0?;
        }
        while let Some(queue) = &open.queue
            && let Some(done) = queue.wait_any()?
        {
            assert_eq!(done.token, done.buffer.len() as u64, "a buffer comes back with its own token");
            done.result?;
        }
        if open.quiet { self.quiet(node) } else { Ok(()) }
    }

    /// Waits for what nobody else waits for. What others of this process had under way may have failed, too.
    pub(crate) fn quiet(&self, node: &Node) -> Result {
        loop {
            match node.quiet() {
                Err(standpipe::Error::PeerLost { peer }) if peer != self.number => {}
                result => return result,
            }
        }
    }

    fn put_one(&self, node: &Node, random: &mut Random, cut: Cut, bytes: &[u8], open: &mut Open) -> Result {
        let to = self.remote(cut);
        let half = bytes.len() / 2;
        let runs = [
            RemoteRun { at: to, len: half },
            RemoteRun { at: to.plus(half as u64), len: bytes.len() - half },
        ];
        let blocks = bytes.len() / 8;
        let whole = bytes.len() == blocks * 8 && blocks > 0;
        let counts = [blocks];
        let strided = side_by_side(&counts);
        // Backwards, there and here alike.
        let offsets: Vec<usize> = (0..blocks).rev().map(|block| block * 8).collect();
        let remote_offsets: Vec<u64> = offsets.iter().map(|offset| *offset as u64).collect();
        let indexed = Indexed {
            remote_block: 8,
            remote_offsets: &remote_offsets,
            local_block: 8,
            local_offsets: &offsets,
        };
        match random.below(15) {
            0 => return node.put_bytes(to, bytes),
            1 => {
                let (head, tail) = bytes.split_at(half);
                return node
                    .put_list(&[PutPiece { to, from: head }, PutPiece { to: runs[1].at, from: tail }]);
            }
            2 if whole => return node.put_strided(to, bytes, &strided),
            3 if whole => return node.put_indexed(to, bytes, &indexed),
            4 => return node.put_vector(&runs, &[&bytes[..1], &bytes[1..]]),
            5 if whole => open.events.push(node.put_strided_nb(to, bytes.to_vec(), &strided)),
            6 if whole => open.events.push(node.put_indexed_nb(to, bytes.to_vec(), &indexed)),
            7 => {
                let mut buffer = vec![0xff; 3];
                buffer.extend_from_slice(bytes);
                open.events.push(node.put_vector_nb(
                    &runs,
                    buffer,
                    std::slice::from_ref(&(3..3 + bytes.len())),
                ));
            }
            8 => {
                open.quiet = true;
                return node.put_nbi(to, bytes);
            }
            9 if whole => {
                open.quiet = true;
                return node.put_strided_nbi(to, bytes, &strided);
            }
            10 if whole => {
                open.quiet = true;
                return node.put_indexed_nbi(to, bytes, &indexed);
            }
            11 => {
                open.quiet = true;
                return node.put_vector_nbi(&runs, &[bytes]);
            }
            12 => open.group.get_or_insert_with(|| node.group()).put(to, bytes),
            13 => return put_queued(node, open, to, bytes),
            _ => open.events.push(node.put_nb(to, bytes.to_vec())),
        }
        Ok(())
    }

    /// Gets from several places at once, each in a way of its own.
    pub(crate) fn get(&mut self, node: &Node, random: &mut Random) -> Result {
        let cuts = cuts(random);
        let mut open = Vec::new();
        for cut in &cuts {
            if let Some(event) = self.get_one(node, random, *cut)? {
                open.push((*cut, event));
            }
        }
        while !open.is_empty() {
            let (cut, event) = open.swap_remove(random.below(open.len()));
            let (result, bytes) = event.wait();
            result?;
            self.check(cut, &bytes[..cut.2], "an event's get");
        }
        let mut parts: Vec<Vec<u8>> = cuts.iter().map(|cut| vec![0; cut.2]).collect();
        let mut pieces: Vec<GetPiece<'_>> = parts
            .iter_mut()
            .zip(&cuts)
            .map(|(into, cut)| GetPiece { from: self.remote(*cut), into })
            .collect();
        node.get_list(&mut pieces)?;
        parts.iter().zip(&cuts).for_each(|(part, cut)| self.check(*cut, part, "a list's get"));
        Ok(())
    }

    fn get_one(&self, node: &Node, random: &mut Random, cut: Cut) -> Result<Option<Event<Vec<u8>>>> {
        let (from, len) = (self.remote(cut), cut.2);
        let mut bytes = vec![0; len];
        let (blocks, half) = (len / 8, len / 2);
        let whole = len == blocks * 8 && blocks > 0;
        let counts = [blocks];
        let strided = side_by_side(&counts);
        let runs =
            [RemoteRun { at: from, len: half }, RemoteRun { at: from.plus(half as u64), len: len - half }];
        match random.below(9) {
            0 => node.get_bytes(from, &mut bytes)?,
            1 if whole => node.get_strided(from, &mut bytes, &strided)?,
            2 => {
                let (head, tail) = bytes.split_at_mut(len - half);
                node.get_vector(&runs, &mut [head, tail])?;
            }
            3 if whole => return Ok(Some(node.get_strided_nb(from, bytes, &strided))),
            4 => return Ok(Some(node.get_vector_nb(&runs, bytes, &[0..half, half..len]))),
            5 if cut.0 == HEAP => {
                let at = GlobalPtr::<u8>::new(self.number, self.heap_offset(cut));
                node.get_slice(at, &mut bytes)?;
            }
            6 => {
                let queue = node.completions(1)?;
                queue.reserve()?.get(7, from, bytes);
                let done = queue.wait_any()?.expect("one is under way");
                done.result?;
                bytes = done.buffer;
            }
            7 => match node.get_nb(from, bytes).cancel() {
                (Err(Error::Cancelled { peer }), _) if peer == self.number => return Ok(None),
                (result, back) => {
                    result?;
                    bytes = back;
                }
            },
            _ => return Ok(Some(node.get_nb(from, bytes))),
        }
        self.check(cut, &bytes, "a get");
        Ok(None)
    }

    fn heap_offset(&self, (_, at, _): Cut) -> u64 {
        self.places.area(HEAP, self.slot) + at as u64
    }

    /// The slot's area is somewhere else now, and all zeroes.
    pub(crate) fn renewed(&mut self, area: usize, address: u64) {
        self.at[area] = place(self.number, area, address);
        self.kept[area].fill(0);
        if area == HEAP {
            self.places.move_heap(self.slot, address);
        }
    }

    /// Looks at all that was ever put.
    pub(crate) fn look(&self, node: &Node) -> Result {
        for area in 0..AREAS {
            let mut bytes = vec![0; AREA];
            node.get_bytes(self.at[area], &mut bytes)?;
            self.check((area, 0, AREA), &bytes, "the last get");
        }
        assert_eq!(node.get(self.places.word::<u64>(self.number, self.slot, WORD))?, self.word);
        assert_eq!(node.get(self.places.word::<i32>(self.number, self.slot, HALVES))?, self.halves);
        assert_eq!(node.get(self.places.word::<i64>(self.number, self.slot, SIGNED))?, self.signed);
        Ok(())
    }

    /// Atomics on words that this thread alone changes: the word from before is known.
    pub(crate) fn change(&mut self, node: &Node, random: &mut Random) -> Result {
        const OPS: [AtomicOp; 7] = [
            AtomicOp::Add,
            AtomicOp::And,
            AtomicOp::Or,
            AtomicOp::Xor,
            AtomicOp::Min,
            AtomicOp::Max,
            AtomicOp::Swap,
        ];
        let (op, value) = (OPS[random.below(OPS.len())], random.next());
        macro_rules! change {
            ($word:ident, $at:expr, $type:ty) => {{
                let at = self.places.word::<$type>(self.number, self.slot, $at);
                let (before, value) = (self.$word, value as $type);
                let after = match op {
                    AtomicOp::Add => before.wrapping_add(value),
                    AtomicOp::And => before & value,
                    AtomicOp::Or => before | value,
                    AtomicOp::Xor => before ^ value,
                    AtomicOp::Min => before.min(value),
                    AtomicOp::Max => before.max(value),
                    _ => value,
                };
                match random.below(6) {
                    0 => {
                        let wrong = before.wrapping_add(1);
                        assert_eq!(node.compare_swap(at, wrong, value)?, before, "a swap not to be made");
                        assert_eq!(node.compare_swap(at, before, after)?, before, "a swap");
                    }
                    1 => node.update_nb(at, op, value).wait().0?,
                    2 => {
                        assert_eq!(node.atomic_load(at)?, before, "a load");
                        node.atomic_store(at, after)?;
                    }
                    3 => {
                        node.update_nbi(at, op, value)?;
                        self.quiet(node)?;
                    }
                    _ => assert_eq!(node.fetch(at, op, value)?, before, "{op:?} of {value}"),
                }
                self.$word = after;
            }};
        }
        match random.below(3) {
            0 => change!(word, WORD, u64),
            1 => change!(halves, HALVES, i32),
            _ => change!(signed, SIGNED, i64),
        }
        Ok(())
    }
}

/// Up to eight cuts of the areas that do not overlap: short ones, long ones, words.
pub(crate) fn cuts(random: &mut Random) -> Vec<Cut> {
    let mut cuts = Vec::new();
    for area in 0..AREAS {
        let mut from = 0;
        for _ in 0..random.below(4) {
            let at = from + random.below(AREA / 4);
            let len = match random.below(4) {
                0 => 8 * (1 + random.below(4)),
                1 => 1 + random.below(64),
                2 => 1 + random.below(1000),
                _ => 8 * (1 + random.below(AREA / 16)),
            };
            if at + len > AREA {
                break;
            }
            cuts.push((area, at, len));
            from = at + len;
        }
    }
    cuts
}

/// Words of 8 bytes, side by side at both ends.
fn side_by_side(counts: &[usize]) -> Strided<'_> {
    Strided { block: 8, counts, remote_strides: &[8], local_strides: &[8], ..Strided::default() }
}
