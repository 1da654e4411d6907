//! The tags of a process: for each its queue of messages, the receive that waits for one, and the message
//! that is being read in place.

use std::collections::{HashMap, VecDeque};

use standpipe::{AllMemory, Payload, Rank};

use crate::bip::error::BipError;
use crate::bip::wire::{SMALL_WORDS, WORD};

/// Different tags that a process can use.
pub(super) const TAGS_MAX: usize = 0xffff;
/// Tags below this are found by one look.
const DENSE: usize = 256;
const NO_SLOT: u16 = u16::MAX;
/// Buffers of a tag that the program says nothing of.
const DEFAULT_BUFFERS: Buffers = Buffers { count: 64, words: SMALL_WORDS };

/// What a tag's queue is to hold, as the program said by `bip_taginit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffers {
    pub(super) count: u32,
    pub(super) words: u32,
}

/// A short message's bytes.
#[derive(Debug)]
pub(super) enum Body {
    /// As they came, in the library's memory.
    Kept(Payload),
    /// A copy.
    Copied(Vec<u8>),
}

impl Body {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Body::Kept(payload) => payload,
            Body::Copied(bytes) => bytes,
        }
    }

    fn words(&self) -> u32 {
        (self.bytes().len() / WORD) as u32
    }
}

/// A long message that lies in its sender's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Long {
    pub(super) from: Rank,
    pub(super) words: u32,
    pub(super) send: u32,
    pub(super) addr: u64,
}

/// A message in its queue.
#[derive(Debug)]
pub(super) enum Arrived {
    Short(Rank, Body),
    Long(Long),
    /// A long one that was got into memory of the layer's.
    Got(Rank, Vec<u32>),
}

/// Where a receive puts what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The address of the user's buffer.
    pub(super) addr: usize,
    /// Words that it has room for.
    pub(super) most: u32,
}

/// What a receive gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The message's length.
    pub words: u32,
    /// Who sent it.
    pub from: Rank,
}

/// What became of a receive.
pub(super) type Outcome = Result<Received, BipError>;

/// The receive of a tag.
#[derive(Debug)]
pub(super) enum Receive {
    None,
    /// Nothing has come for it yet.
    Open(Target),
    /// A long message is being got into its buffer.
    Getting,
    /// It has ended, and the program does not know yet.
    Done(Outcome),
    /// The program knows how it has ended; asked again, it is told the same.
    Told(Outcome),
}

/// The words of a message that is here.
#[derive(Debug)]
pub(super) enum Content {
    AsItCame(Body),
    Words(Vec<u32>),
}

impl Content {
    /// Where its words lie, and how many they are.
    pub(super) fn place(&self) -> (*const u8, u32) {
        match self {
            Content::AsItCame(body) => (body.bytes().as_ptr(), body.words()),
            Content::Words(words) => (words.as_ptr().cast(), words.len() as u32),
        }
    }

    /// Copies them to a buffer of the program's.
    #[inline]
    pub(super) fn copy_to(&self, memory: AllMemory, to: *mut u8) {
        let (start, words) = self.place();
        memory.copy(start, to, words as usize * WORD);
    }

    /// How many words they are.
    pub(super) fn words(&self) -> u32 {
        self.place().1
    }
}

/// One tag.
#[derive(Debug)]
pub(super) struct Tag {
    pub(super) number: u32,
    buffers: Buffers,
    queue: VecDeque<Arrived>,
    /// Short messages in the queue: these take buffers.
    shorts: u32,
    pub(super) receive: Receive,
    /// Which receive it is, of those that the tag has had.
    pub(super) generation: u16,
    /// Whether the message at the front, a long one, is being got to be read in place.
    pub(super) is_front_got: bool,
    /// The message that the program reads in place.
    pub(super) held: Option<Content>,
}

impl Tag {
    fn new(number: u32, buffers: Buffers) -> Tag {
        let (queue, receive) = (VecDeque::new(), Receive::None);
        Tag { number, buffers, queue, shorts: 0, receive, generation: 0, is_front_got: false, held: None }
    }

    /// Queues a message: whether it has one of the buffers that were declared. It is kept in any case.
    pub(super) fn push(&mut self, message: Arrived) -> bool {
        let fits = match &message {
            Arrived::Short(_, body) => {
                self.shorts += 1;
                body.words() <= self.buffers.words && self.shorts <= self.buffers.count
            }
            Arrived::Long(_) | Arrived::Got(..) => true,
        };
        self.queue.push_back(message);
        fits
    }

    /// Takes the next message out of the queue.
    pub(super) fn pop(&mut self) -> Option<Arrived> {
        let message = self.queue.pop_front();
        if let Some(Arrived::Short(..)) = message {
            assert!(self.shorts > 0, "a short message leaves once");
            self.shorts -= 1;
        }
        message
    }

    /// The long message at the front was got into memory of the layer's, or not, and then it is gone.
    pub(super) fn front_was_got(&mut self, words: Option<(Rank, Vec<u32>)>) {
        self.is_front_got = false;
        self.queue.pop_front();
        if let Some((from, words)) = words {
            self.queue.push_front(Arrived::Got(from, words));
        }
    }

    /// The next message.
    pub(super) fn front(&self) -> Option<&Arrived> {
        self.queue.front()
    }

    /// Whether a new receive may be posted: one at a time, whose end the program has been told.
    pub(super) fn may_receive(&self) -> Result<(), BipError> {
        match self.receive {
            Receive::None | Receive::Told(_) => Ok(()),
            _ => Err(BipError::ReceivePending { tag: self.number }),
        }
    }

    /// Whether a receive waits and a long message is next for it that nothing gets yet.
    pub(super) fn is_matched_by_long(&self) -> bool {
        matches!((&self.receive, self.queue.front()), (Receive::Open(_), Some(Arrived::Long(_))))
            && !self.is_front_got
    }

    /// The receive's outcome, if it has ended: from now on the program knows.
    #[inline]
    pub(super) fn tell(&mut self) -> Option<Outcome> {
        match std::mem::replace(&mut self.receive, Receive::None) {
            Receive::Done(outcome) | Receive::Told(outcome) => {
                self.receive = Receive::Told(outcome.clone());
                Some(outcome)
            }
            under_way => {
                self.receive = under_way;
                None
            }
        }
    }

    /// Ends a receive with a message that is here, and gives that back if the buffer has room for it.
    #[inline]
    pub(super) fn receive_here(&mut self, target: Target, from: Rank, content: Content) -> Option<Content> {
        let (tag, words, most) = (self.number, content.words(), target.most);
        let fits = words <= most;
        let outcome = if fits {
            Ok(Received { words, from })
        } else {
            Err(BipError::TooLong { tag, from, words, most })
        };
        self.receive = Receive::Done(outcome);
        fits.then_some(content)
    }

    /// Takes back a receive that nothing has come for.
    pub(super) fn withdraw(&mut self) {
        if let Receive::Open(_) = self.receive {
            self.receive = Receive::None;
        }
    }

    /// Counts a receive: which of the tag's it is.
    pub(super) fn next_generation(&mut self) -> u16 {
        self.generation = if self.generation == i16::MAX as u16 { 1 } else { self.generation + 1 };
        self.generation
    }
}

/// All tags that the process has used, or got messages for.
#[derive(Debug)]
pub(super) struct Tags {
    tags: Vec<Tag>,
    dense: [u16; DENSE],
    sparse: HashMap<u32, u16>,
    declared: HashMap<u32, Buffers>,
}

impl Tags {
    pub(super) fn new(declared: HashMap<u32, Buffers>) -> Tags {
        Tags { tags: Vec::new(), dense: [NO_SLOT; DENSE], sparse: HashMap::new(), declared }
    }

    /// Where the tag of that number is, which is made at its first use.
    #[inline]
    pub(super) fn slot_of(&mut self, number: u32) -> Result<u16, BipError> {
        let known = match self.dense.get(number as usize) {
            Some(slot) => *slot,
            None => self.sparse.get(&number).copied().unwrap_or(NO_SLOT),
        };
        if known != NO_SLOT { Ok(known) } else { self.add(number) }
    }

    #[cold]
    fn add(&mut self, number: u32) -> Result<u16, BipError> {
        let slot = self.tags.len();
        if slot >= TAGS_MAX {
            return Err(BipError::TooManyTags { tag: number, most: TAGS_MAX });
        }
        let buffers = self.declared.get(&number).copied().unwrap_or(DEFAULT_BUFFERS);
        self.tags.push(Tag::new(number, buffers));
        let slot = slot as u16;
        match self.dense.get_mut(number as usize) {
            Some(place) => *place = slot,
            None => drop(self.sparse.insert(number, slot)),
        }
        Ok(slot)
    }

    /// The tag there, if there is one.
    pub(super) fn get_mut(&mut self, slot: u16) -> Option<&mut Tag> {
        self.tags.get_mut(usize::from(slot))
    }

    /// Takes back all receives that nothing has come for.
    pub(super) fn withdraw_all(&mut self) {
        self.tags.iter_mut().for_each(Tag::withdraw);
    }

    /// The tag at a place that [`Tags::slot_of`] gave.
    #[inline]
    pub(super) fn at(&mut self, slot: u16) -> &mut Tag {
        &mut self.tags[usize::from(slot)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags() -> Tags {
        Tags::new(HashMap::from([(7, Buffers { count: 2, words: 4 })]))
    }

    fn short(words: usize) -> Arrived {
        Arrived::Short(1, Body::Copied(vec![0; words * WORD]))
    }

    #[test]
    fn a_tag_has_one_place_whatever_its_number() {
        let mut tags = tags();
        let numbers = [0, 1, 255, 256, 1000, i32::MAX as u32];
        let slots: Vec<u16> = numbers.iter().map(|number| tags.slot_of(*number).expect("room")).collect();
        assert_eq!(slots, [0, 1, 2, 3, 4, 5]);
        for (number, slot) in numbers.iter().zip(slots) {
            assert_eq!((tags.slot_of(*number), tags.at(slot).number), (Ok(slot), *number));
        }
        assert!(tags.get_mut(6).is_none());
    }

    #[test]
    fn there_are_so_many_tags_and_no_more() {
        let mut tags = tags();
        for number in 0..TAGS_MAX as u32 {
            tags.slot_of(number).expect("there is room");
        }
        let tag = TAGS_MAX as u32;
        assert_eq!(tags.slot_of(tag), Err(BipError::TooManyTags { tag, most: TAGS_MAX }));
        assert_eq!(tags.slot_of(5), Ok(5), "those that are known go on");
    }

    #[test]
    fn what_has_no_buffer_is_kept_and_told_apart() {
        let mut tags = tags();
        let slot = tags.slot_of(7).expect("room");
        let tag = tags.at(slot);
        assert!(!tag.push(short(5)), "longer than its buffers");
        assert!(tag.push(short(4)));
        assert!(!tag.push(short(1)), "two are there");
        assert!(tag.push(Arrived::Long(Long { from: 1, words: 9000, send: 1, addr: 64 })));
        assert_eq!((tag.queue.len(), tag.shorts), (4, 3));
        while tag.pop().is_some() {}
        assert_eq!(tag.shorts, 0);
    }

    #[test]
    fn an_outcome_is_told_again_until_the_next_receive() {
        let mut tags = tags();
        let slot = tags.slot_of(1).expect("room");
        let tag = tags.at(slot);
        assert_eq!((tag.tell(), tag.may_receive()), (None, Ok(())));
        tag.receive = Receive::Open(Target { addr: 64, most: 1 });
        assert_eq!((tag.tell(), tag.may_receive()), (None, Err(BipError::ReceivePending { tag: 1 })));
        let received = Received { words: 1, from: 3 };
        tag.receive = Receive::Done(Ok(received));
        assert!(tag.may_receive().is_err(), "the program does not know yet");
        assert_eq!((tag.tell(), tag.tell()), (Some(Ok(received)), Some(Ok(received))));
        assert_eq!(tag.may_receive(), Ok(()));
    }

    #[test]
    fn generations_begin_again_and_are_never_0() {
        let mut tags = tags();
        let slot = tags.slot_of(1).expect("room");
        let tag = tags.at(slot);
        let all: Vec<u16> = (0..0x8001_u32).map(|_| tag.next_generation()).collect();
        assert_eq!((all[0], all[0x7ffe], all[0x7fff], all[0x8000]), (1, 0x7fff, 1, 2));
    }
}
