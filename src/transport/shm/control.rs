//! The control segment: what a process shares with its peers besides its heap.
//!
//! ```text
//! 0        identity: magic, rank and size, nonce and its address, handlers, directory, fences, exposure and progress
//! 56       how often the process has given up what it had offered to peers in collectives
//! 64       live bytes of the heap, alone on its line: read by every peer, written when the heap grows
//! 128      the barrier's counter (rank 0's is used)
//! 136      how those who look find its listener, if it has one (see `stats_page::listener`)
//! 192      where the heap lies in the process: the part that its program's allocator divides, and all of it as the node has
//!          it; of each the address of the heap's first byte, and bytes from there on
//! 224      how many figures there are in each of its parts of counters (see `stats_page`)
//! 256      what the process shows of its counters: three parts, each with a sequence word (see `stats_page`)
//! 4288     the handlers, two words of 32 bits each: one state of them, and the next one, by turns
//! 69824    what it shows of the peers that its grants concern (see `stats_page`)
//! 70976    what it shows of how long its calls took (see `stats_page`)
//! 77120    what its endpoint speaks, if it has one: the length, then the bytes
//! 77248    the word that the kernel marks when the process ends, with the list by which the kernel finds it: alone on a line,
//!          as every peer reads it before it reaches the process by its number (see `vm::robust`)
//! 77312    the address of its endpoint in the network, if it has one: its length, then its bytes
//! 77824    the doorbell
//! rings    for each sender: the request ring, the reply ring, and the baton of its requests
//! spills   for each sender: the spill area of either ring, behind the rings of all
//! ```
//! Senders are told apart by *place*: a number that the owner gives. In a job a rank's place is its rank; who
//! connects from outside is told its own.
//!
//! Everything a peer's segment says is hostile until checked: reads are copies, and the sizes used are our
//! own.

use engine::{HandlerKey, Lane, MESSAGES_VERSION, Rank};
use vm::fault_safe_copy;
use vm::robust::{self, EndWord, Held};
use vm::{BATON_WORDS, Bell, RingLayout, Segment, SegmentError, SharedMemory, Words, bell_words};

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::base::error::Error;
use crate::base::limits::{NEAR_MEDIUM_BYTES, RING_SLOTS};
use crate::transport::protocol::NetProtocol;

/// The kernel's name for the segment.
pub(crate) const SEGMENT: &str = "standpipe-control";

/// The version of what is drawn above: where everything lies in the segment, and what it means. Raise it by
/// one with every change of that, of a ring's places, or of what a process shows of itself. A plain counter
/// that is added is no such change: the page says how many figures there are.
const LAYOUT_VERSION: u8 = 9;

/// How a control segment is marked: a name, the version of the engine's messages, and that of the layout.
const MAGIC: u64 = u64::from_le_bytes([b's', b't', b'a', b'n', b'd', b'p', MESSAGES_VERSION, LAYOUT_VERSION]);
pub(super) const MAGIC_AT: u64 = 0;
const RANK_AT: u64 = 8;
const NONCE_AT: u64 = 16;
const NONCE_ADDR_AT: u64 = 24;
const HANDLERS_STATE_AT: u64 = 32;
const DIRECTORY_AT: u64 = 40;
pub(crate) const FENCES_AT: u64 = 48;
const GIVEN_UP_AT: u64 = 56;
const LIVE_AT: u64 = 64;
const BARRIER_AT: u64 = 128;
pub(super) const LISTENER_AT: u64 = 136;
pub(super) const ALLOCATED_AT: u64 = 192;
const HEAP_AT: u64 = ALLOCATED_AT + 16;
pub(super) const FIGURES_AT: u64 = HEAP_AT + 16;
pub(super) const STATS_AT: u64 = 256;
pub(super) const HANDLERS_AT: u64 = 4288;
pub(crate) const BELL_AT: u64 = 77824;
const PAGE: u64 = 4096;

/// The address of the process's endpoint: its length, and its bytes after that.
const ENDPOINT_AT: u64 = BELL_AT - 512;

/// Bytes that the address of an endpoint may have.
pub(crate) const ENDPOINT_MAX: usize = 504;

/// The word that tells of the process's end, on a line of its own.
const END_AT: u64 = ENDPOINT_AT - 64;
const _: () =
    assert!(robust::WORDS * 8 <= 64, "the word and what belongs to it lie before the endpoint's address");

/// The protocol of the process's endpoint: its length, and its bytes after that.
const PROTOCOL_AT: u64 = END_AT - 128;

/// Bytes that this may have.
const PROTOCOL_MAX: usize = 120;

/// The process's times of calls.
pub(super) const LATENCIES_BYTES: u64 = 6144;
pub(super) const LATENCIES_AT: u64 = PROTOCOL_AT - LATENCIES_BYTES;

/// Handlers that a process may have.
pub(crate) const HANDLERS_MAX: usize = 4096;

/// Bytes of one state of the handlers.
const HANDLERS_BYTES: u64 = HANDLERS_MAX as u64 * 8;

/// The peers that the process's grants concern: behind two states of all handlers.
pub(super) const GRANT_PEERS_AT: u64 = HANDLERS_AT + 2 * HANDLERS_BYTES;
pub(super) const GRANT_PEERS_BYTES: u64 = LATENCIES_AT - GRANT_PEERS_AT;

/// How often a peer's handlers are read, at most, while it changes them.
const READS_MAX: usize = 1000;

/// One lane from one sender. Its spill area is there for payloads that the other one has no room for: those
/// of a sender that is ahead of its receiver, and long ones.
pub(crate) const RING: RingLayout =
    RingLayout { slots: RING_SLOTS, payload_bytes: 64 << 10, spill_bytes: 192 << 10 };

/// Bytes of payload that a message to any peer may have, and that the engine's own messages have at most.
pub(crate) const PAYLOAD_MAX: usize = 8 << 10;

/// Bytes of payload that a message to a near peer may have.
pub(crate) const NEAR_PAYLOAD_MAX: usize = NEAR_MEDIUM_BYTES;

const _: () = assert!(PAYLOAD_MAX * 4 <= RING.payload_bytes, "a lane holds several without its spill area");
const _: () = assert!(NEAR_PAYLOAD_MAX <= RING.spill_bytes, "where that area has room, every message has");
const _: () = assert!(
    NEAR_PAYLOAD_MAX * 4 <= RING.payload_bytes + RING.spill_bytes,
    "a lane holds several of the largest messages"
);

/// A process's control segment: its own, or a peer's.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    memory: SharedMemory,
    /// Senders that there is room for.
    places: u32,
}

/// Why a control segment cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UnfitControl {
    /// It is of another version.
    Versions { what: &'static str, ours: u8, theirs: u8 },
    /// No process of this version shows it.
    Garbled(String),
}

impl UnfitControl {
    /// The same of a peer's.
    pub(crate) fn of(self, peer: Rank) -> Error {
        match self {
            UnfitControl::Garbled(what) => Error::Protocol { peer, what },
            UnfitControl::Versions { what, ours, theirs } => {
                Error::Versions { peer, what, ours: ours.into(), theirs: theirs.into() }
            }
        }
    }
}

/// A process's card of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) rank: Rank,
    /// The size of its job.
    pub(crate) size: u32,
    /// A word of the process's private memory, and what it holds: to find out whether cross-memory attach
    /// reaches it.
    pub(crate) nonce: u64,
    pub(crate) nonce_addr: u64,
    /// Whether the process registered for the heavy fence, so that it may do without light ones.
    pub(crate) fences_asymmetric: bool,
    /// Whether the process exposes ranges of its private memory only: peers go by message then, so that it
    /// can check.
    pub(crate) ranges_only: bool,
    /// Whether it makes progress only in calls of its own, by its setting.
    pub(crate) unattended: bool,
    /// Where the process's share of the directory lies in its heap.
    pub(crate) directory: u64,
    /// The part of its heap that its program's allocator divides, if there is one.
    pub(crate) allocated: Mapping,
    /// All of its heap.
    pub(crate) heap: Mapping,
}

/// Where a process's heap, or the first part of it, lies in that process; nowhere if it has no bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The address of its first byte in that process.
    pub(crate) base: u64,
    pub(crate) len: u64,
}

impl Mapping {
    /// A heap as it is mapped in this process.
    pub(crate) fn of(heap: &SharedMemory) -> Mapping {
        Mapping { base: heap.base_addr(), len: heap.len() }
    }

    /// Where in the heap so many bytes at an address lie, if all of them do.
    #[inline]
    pub(crate) fn offset(self, addr: u64, len: u64) -> Option<u64> {
        let at = addr.checked_sub(self.base)?;
        (at.checked_add(len)? <= self.len && len > 0).then_some(at)
    }
}

/// The subject of [`LAYOUT_VERSION`], in words.
const LAYOUT: &str = "the control segment";

/// Whether a control segment's mark is this version's.
fn check_mark(mark: u64) -> Result<(), UnfitControl> {
    let [name @ .., messages, layout] = mark.to_le_bytes();
    if name != MAGIC.to_le_bytes()[..6] {
        return Err(UnfitControl::Garbled(format!("a control segment marked {mark:#x}")));
    }
    for (what, ours, theirs) in
        [(LAYOUT, LAYOUT_VERSION, layout), ("the engine's messages", MESSAGES_VERSION, messages)]
    {
        if ours != theirs {
            return Err(UnfitControl::Versions { what, ours, theirs });
        }
    }
    Ok(())
}

/// Whether a segment with this mark is laid out as this version's are, whatever messages its process speaks.
pub(super) fn has_this_layout(mark: u64) -> bool {
    !matches!(check_mark(mark), Err(UnfitControl::Garbled(_) | UnfitControl::Versions { what: LAYOUT, .. }))
}

impl Control {
    /// Bytes of a control segment with room for so many senders.
    pub(crate) fn bytes(places: u32) -> u64 {
        spills_at(places) + u64::from(places) * 2 * SPILL_BYTES
    }

    /// Bytes that it begins with, which are needed whatever the senders do.
    pub(crate) fn least_bytes(places: u32) -> u64 {
        spills_at(places)
    }

    /// Creates this process's own control segment, with room for so many senders.
    pub(crate) fn create(places: u32, identity: &Identity) -> Result<(Control, Segment), SegmentError> {
        let segment = Segment::create_closed(SEGMENT, Control::bytes(places))?;
        let control = Control { memory: segment.memory().clone(), places };
        control.open_part(0..senders_at(places))?;
        control.word(RANK_AT).store(in_job(identity.rank, identity.size), Ordering::Relaxed);
        control.word(NONCE_AT).store(identity.nonce, Ordering::Relaxed);
        control.word(NONCE_ADDR_AT).store(identity.nonce_addr, Ordering::Relaxed);
        control.word(DIRECTORY_AT).store(identity.directory, Ordering::Relaxed);
        for (at, mapping) in [(ALLOCATED_AT, identity.allocated), (HEAP_AT, identity.heap)] {
            control.word(at).store(mapping.base, Ordering::Relaxed);
            control.word(at + 8).store(mapping.len, Ordering::Relaxed);
        }
        control.word(FENCES_AT).store(
            u64::from(identity.fences_asymmetric)
                | u64::from(identity.ranges_only) << 1
                | u64::from(identity.unattended) << 2,
            Ordering::Relaxed,
        );
        control.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok((control, segment))
    }

    /// Looks at a peer's control segment, which is to be of that rank of a job of `size` and to have room for
    /// so many senders. The error says what is wrong with it.
    pub(crate) fn open(
        segment: &Segment,
        places: u32,
        rank: Rank,
        size: u32,
    ) -> Result<(Control, Identity), UnfitControl> {
        let garbled = UnfitControl::Garbled;
        let (expected, len) = (Control::bytes(places), segment.len());
        let control = Control { memory: segment.memory().clone(), places };
        // First, as segments of other versions may have another size.
        if len >= PAGE {
            control.open_part(0..PAGE).map_err(|error| garbled(error.to_string()))?;
            check_mark(control.word(MAGIC_AT).load(Ordering::Acquire))?;
        }
        if len < expected {
            return Err(garbled(format!("a control segment of {len} bytes instead of {expected}")));
        }
        control.open_part(0..senders_at(places)).map_err(|error| garbled(error.to_string()))?;
        let ranks = control.word(RANK_AT).load(Ordering::Relaxed);
        if ranks != in_job(rank, size) {
            return Err(garbled(format!(
                "a control segment of rank {} in a job of {}",
                ranks as u32,
                ranks >> 32
            )));
        }
        let directory = control.word(DIRECTORY_AT).load(Ordering::Relaxed);
        if !directory.is_multiple_of(size_of::<u64>() as u64) {
            return Err(garbled(format!(
                "a share of the directory at offset {directory:#x}, which no word has"
            )));
        }
        let flags = control.word(FENCES_AT).load(Ordering::Relaxed);
        let identity = Identity {
            rank,
            size,
            nonce: control.word(NONCE_AT).load(Ordering::Relaxed),
            nonce_addr: control.word(NONCE_ADDR_AT).load(Ordering::Relaxed),
            fences_asymmetric: flags & 1 != 0,
            ranges_only: flags & 2 != 0,
            unattended: flags & 4 != 0,
            directory,
            allocated: control.mapping(ALLOCATED_AT),
            heap: control.mapping(HEAP_AT),
        };
        Ok((control, identity))
    }

    /// Marks the segment as one of other versions.
    #[cfg(test)]
    pub(crate) fn mark_as(&self, (messages, layout): (u8, u8)) {
        let [name @ .., _, _] = MAGIC.to_le_bytes();
        let [s, t, a, n, d, p] = name;
        let mark = u64::from_le_bytes([s, t, a, n, d, p, messages, layout]);
        self.word(MAGIC_AT).store(mark, Ordering::Release);
    }

    /// The versions of the messages and of the layout.
    #[cfg(test)]
    pub(crate) const VERSIONS: (u8, u8) = (MESSAGES_VERSION, LAYOUT_VERSION);

    fn mapping(&self, at: u64) -> Mapping {
        let word = |at| self.word(at).load(Ordering::Relaxed);
        Mapping { base: word(at), len: word(at + 8) }
    }

    /// Shows these handlers from now on. For one thread at a time.
    ///
    /// Their states take turns at two places, and the state's number says which: so a reader finds a whole
    /// one however long this process is stopped in here.
    pub(crate) fn show_handlers(&self, keys: &[HandlerKey]) {
        assert!(keys.len() <= HANDLERS_MAX, "who adds one looks whether there is room");
        let state = self.word(HANDLERS_STATE_AT);
        let next = (state.load(Ordering::Relaxed) >> 32).wrapping_add(1) & u64::from(u32::MAX);
        // Readers of the state before the last see that it is over before these bytes take its place.
        fence(Ordering::Release);
        let word = |key: &HandlerKey| u64::from(key.number) | u64::from(key.check) << 32;
        let bytes: Vec<u8> = keys.iter().flat_map(|key| word(key).to_le_bytes()).collect();
        self.memory.copy_in(handlers_at(next), &bytes).expect("they fit, as asserted above");
        state.store(keys.len() as u64 | next << 32, Ordering::Release);
    }

    /// Where it shows which state of its handlers is the last.
    pub(crate) fn handlers_state_word(&self) -> Words {
        self.words(HANDLERS_STATE_AT, 1)
    }

    /// Which state of its handlers the process shows.
    #[inline]
    pub(crate) fn handlers_state(&self) -> u64 {
        self.word(HANDLERS_STATE_AT).load(Ordering::Acquire)
    }

    /// The handlers that the process shows, and which state of them it is. `None`: they were never at rest.
    pub(crate) fn handlers(&self) -> Option<(u64, Vec<HandlerKey>)> {
        (0..READS_MAX).find_map(|_| {
            let state = self.handlers_state();
            let count = (state & u64::from(u32::MAX)).min(HANDLERS_MAX as u64);
            let mut bytes = vec![0; count as usize * 8];
            let read = self.memory.copy_out(handlers_at(state >> 32), &mut bytes);
            read.expect("at most the handlers' place was asked for");
            fence(Ordering::Acquire);
            let half = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
            let key = |bytes: &[u8]| HandlerKey { number: half(&bytes[..4]), check: half(&bytes[4..]) };
            let is_whole = self.handlers_state() == state;
            is_whole.then(|| (state, bytes.chunks_exact(8).map(key).collect()))
        })
    }

    /// Says by which address peers reach the process's endpoint in the network, and what that speaks; before
    /// anybody has the segment.
    ///
    /// # Panics
    /// When the address is longer than [`ENDPOINT_MAX`].
    pub(crate) fn set_endpoint(&self, address: &[u8], protocol: &NetProtocol) {
        assert!(address.len() <= ENDPOINT_MAX, "an endpoint's address has at most {ENDPOINT_MAX} bytes");
        // No provider's name is so long that this does not fit; without it peers see that something differs.
        let mut protocol = postcard::to_stdvec(protocol).expect("plain values can be written");
        protocol.truncate(PROTOCOL_MAX);
        for (at, bytes) in [(ENDPOINT_AT, address), (PROTOCOL_AT, &protocol)] {
            self.memory.copy_in(at + 8, bytes).expect("it ends before what follows, as asserted above");
            self.word(at).store(bytes.len() as u64, Ordering::Relaxed);
        }
    }

    /// The address of the process's endpoint in the network; empty if it has none.
    pub(crate) fn endpoint(&self) -> Box<[u8]> {
        self.bytes_at(ENDPOINT_AT, ENDPOINT_MAX).into()
    }

    /// The protocol of the process's endpoint; nothing if it has none.
    pub(crate) fn protocol(&self) -> NetProtocol {
        postcard::from_bytes(&self.bytes_at(PROTOCOL_AT, PROTOCOL_MAX)).unwrap_or_default()
    }

    /// Bytes, `max` at most, that follow their length.
    fn bytes_at(&self, at: u64, max: usize) -> Vec<u8> {
        let len = self.word(at).load(Ordering::Relaxed).min(max as u64);
        let mut bytes = vec![0; len as usize];
        self.memory.copy_out(at + 8, &mut bytes).expect("no more was asked for than fits");
        bytes
    }

    /// Bytes of the process's heap that were ever in use: beyond them an access is a fault.
    #[inline]
    pub(crate) fn live(&self) -> &AtomicU64 {
        self.word(LIVE_AT)
    }

    /// How often the process has given up what it had offered to peers.
    pub(crate) fn given_up(&self) -> &AtomicU64 {
        self.word(GIVEN_UP_AT)
    }

    /// The counter of the barrier.
    pub(crate) fn barrier(&self) -> &AtomicU64 {
        self.word(BARRIER_AT)
    }

    /// The word that the kernel marks when the process ends, before its number can be another's.
    pub(crate) fn end(&self) -> EndWord {
        EndWord::at(&self.memory, END_AT)
    }

    /// Has the kernel mark that word of this process's own segment; before anybody has the segment.
    pub(crate) fn hold_end(&self) -> std::io::Result<Held> {
        Held::new(&self.memory, END_AT)
    }

    /// The process's doorbell.
    pub(crate) fn bell(&self) -> Bell<Words> {
        let peers = self.places as usize;
        let words = self.words(BELL_AT, bell_words(peers));
        Bell::new(words, peers).expect("there are as many words as the bell wants")
    }

    /// Makes what the `sender` at that place shares with this control segment's process accessible: the rings
    /// and the baton, which must not be touched before.
    ///
    /// # Errors
    /// The kernel's, if it has no memory.
    pub(crate) fn open_sender(&self, sender: Rank) -> Result<(), SegmentError> {
        let start = self.sender_at(sender);
        self.open_part(start..start + SENDER_BYTES)
    }

    /// The words of the ring that brings `lane` from the `sender` at that place to this control segment's
    /// process.
    pub(crate) fn ring(&self, sender: Rank, lane: Lane) -> Words {
        self.words(self.sender_at(sender) + u64::from(lane == Lane::Reply) * RING_BYTES, RING.words())
    }

    /// Makes the spill area of that ring accessible, which must not be touched before, and gives its words.
    /// Where the system promises no memory that it has not, the area has memory from then on.
    ///
    /// # Errors
    /// The kernel's, if it has no memory.
    pub(crate) fn open_spill(&self, sender: Rank, lane: Lane) -> Result<Words, SegmentError> {
        assert!(sender < self.places, "place {sender} of {}", self.places);
        let number = u64::from(sender) * 2 + u64::from(lane == Lane::Reply);
        let start = spills_at(self.places) + number * SPILL_BYTES;
        self.open_part(start..start + SPILL_BYTES)?;
        if vm::host::is_strict_about_memory() {
            let failed = |fault: vm::LocalFault| SegmentError::Os { call: "madvise", errno: fault.errno };
            fault_safe_copy::make_present(self.memory.base_addr() + start, SPILL_BYTES).map_err(failed)?;
        }
        Ok(self.words(start, RING.spill_words()))
    }

    /// The words of the baton that goes back and forth with the requests of the `sender` at that place to
    /// this segment's process.
    pub(crate) fn baton(&self, sender: Rank) -> Words {
        self.words(self.sender_at(sender) + 2 * RING_BYTES, BATON_WORDS)
    }

    /// All of the segment, for tests that put into it what no process would.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> &SharedMemory {
        self.memory.open_to(self.memory.len()).expect("it is opened");
        &self.memory
    }

    fn open_part(&self, part: Range<u64>) -> Result<(), SegmentError> {
        self.memory.open_part(part).map_err(|errno| SegmentError::Os { call: "mprotect", errno })
    }

    fn sender_at(&self, sender: Rank) -> u64 {
        assert!(sender < self.places, "place {sender} of {}", self.places);
        senders_at(self.places) + u64::from(sender) * SENDER_BYTES
    }

    #[inline]
    pub(super) fn word(&self, at: u64) -> &AtomicU64 {
        self.memory.atomic_u64(at).expect("a control segment is larger than its first page")
    }

    fn words(&self, at: u64, count: usize) -> Words {
        self.memory.words(at, count).expect("the layout lies inside a segment of the layout's size")
    }
}

/// Rank and job's size in one word.
fn in_job(rank: Rank, size: u32) -> u64 {
    u64::from(rank) | u64::from(size) << 32
}

/// Where the handlers' state of that number lies.
const fn handlers_at(state: u64) -> u64 {
    HANDLERS_AT + (state & 1) * HANDLERS_BYTES
}

fn senders_at(places: u32) -> u64 {
    BELL_AT + (bell_words(places as usize) as u64 * 8).next_multiple_of(PAGE)
}

/// Where the spill areas lie: apart, so that the rings of senders that need none lie as close as they can.
fn spills_at(places: u32) -> u64 {
    senders_at(places) + u64::from(places) * SENDER_BYTES
}

const SPILL_BYTES: u64 = (RING.spill_words() as u64 * 8).next_multiple_of(PAGE);
const RING_BYTES: u64 = (RING.words() as u64 * 8).next_multiple_of(PAGE);
const SENDER_BYTES: u64 = 2 * RING_BYTES + (BATON_WORDS as u64 * 8).next_multiple_of(PAGE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_of_another_version_is_told_with_both_numbers() {
        let identity = Identity { size: 1, ..Identity::default() };
        let (control, segment) = Control::create(1, &identity).expect("memory for one page");
        let open = || Control::open(&segment, 1, 0, 1).map(|(_, identity)| identity);
        assert_eq!(open(), Ok(identity));
        let (ours, layout) = Control::VERSIONS;
        let versions = |what, ours, theirs| Err(UnfitControl::Versions { what, ours, theirs });
        control.mark_as((ours + 1, layout));
        assert_eq!(open(), versions("the engine's messages", ours, ours + 1));
        // Where things lie comes first: nothing else can be read without it.
        control.mark_as((ours + 1, layout - 1));
        assert_eq!(open(), versions("the control segment", layout, layout - 1));
        control.word(MAGIC_AT).store(7, Ordering::Relaxed);
        assert!(matches!(open(), Err(UnfitControl::Garbled(_))));
        control.mark_as(Control::VERSIONS);
        assert_eq!(open(), Ok(identity));
    }
}
