//! The verbs that a transport offers the engine: few, and no flags.
//!
//! Every transport sends messages, hands out what arrived, and reaches its own process's memory. One-sided
//! copies are an optional part: a transport that has none keeps the default methods, and the engine goes by
//! message. Atomics are, too, but nothing stands in for them: where there are none, a node has no barriers.

use std::cell::{Cell, OnceCell};
use std::fmt;

use crate::registration::{Key, RegId, RegisterError};
use crate::wire::{self, Am, AmForm, HEAD_WORDS, Message};
use crate::{Atomic, Direction, GrantId, Header, Nanos, OpError, OpId, PathReason, Piece, Place, Rank};

/// Which of the two message lanes between a pair of ranks.
///
/// Two lanes make flow control free of deadlock: replies are always consumed, because consuming one never
/// sends anything, and a request is handed out only when its reply has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Messages that may cause one reply.
    Request,
    /// Messages that cause none.
    Reply,
}

/// The fate of a one-sided operation at submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submit {
    /// Complete already; the value is an atomic's old word, and 0 for copies.
    Done(u64),
    /// Under way; an [`Event::Completed`] with the operation's id will follow.
    Pending,
    /// Not to be had one-sided from this peer, for this reason; nothing was done that matters.
    Unreachable(PathReason),
    /// Failed; what was copied before the failure is unspecified.
    Failed(OpError),
}

/// The fate of a registration at submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registering {
    /// The memory is registered; the key is what peers need.
    Done(Key),
    /// The memory is registered, for operations of this process that wait for it: nobody would tell it of a
    /// change of it.
    Once(Key),
    /// Under way; an [`Event::Registered`] will follow.
    Pending,
    /// Nothing was registered.
    Failed(RegisterError),
}

/// The fate of a deregistration at submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deregistering {
    /// Nothing is pinned any more.
    Done,
    /// Under way; an [`Event::Deregistered`] will follow.
    Pending,
    /// The system would not take it back: it is pinned, and its key reaches it, perhaps for as long as the
    /// node lives. If it goes after all, an [`Event::Deregistered`] says so.
    Refused,
}

/// One contiguous part of a transfer between registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedPiece {
    /// From where to where; the remote end lies wholly inside what the key reaches.
    pub piece: Piece,
    /// The peer's key for the remote end.
    pub key: Key,
    /// The first byte that the key reaches, in the peer's space: some networks count from there.
    pub base: u64,
    /// The registration that the local end lies in; `None` where none is needed
    /// (see [`Transport::unregistered_max`]).
    pub local: Option<RegId>,
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The lane is full; not an error: try again later.
    Busy,
    /// The peer cannot be reached, now or later.
    Failed(OpError),
}

/// A report of a transport's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message arrived; it lies in the inbox given to [`Transport::poll`].
    Message {
        /// The sender.
        peer: Rank,
        /// The lane that it came by.
        lane: Lane,
    },
    /// A pending one-sided operation ended.
    Completed {
        /// The operation.
        op: OpId,
        /// Its result, as in [`Submit::Done`].
        result: Result<u64, OpError>,
    },
    /// A pending copy by [`Transport::copy`] has come to memory that cannot be reached one-sided any more,
    /// for this reason; [`Transport::take_unreached`] says what is left of it.
    Unreachable {
        /// The operation.
        op: OpId,
        /// Why not.
        why: PathReason,
    },
    /// A registration that was pending is there, or has failed.
    Registered {
        /// The registration.
        reg: RegId,
        /// The key that peers need; after a failure the registration means nothing any more.
        result: Result<Key, RegisterError>,
    },
    /// A deregistration that was pending is over: nothing is pinned by it any more, and its key reaches
    /// nothing.
    Deregistered {
        /// The registration, which means nothing any more.
        reg: RegId,
    },
    /// The peer sent what cannot be a message, and can be understood no more.
    Garbled {
        /// The peer.
        peer: Rank,
    },
    /// The peer's rank is another process's now: the one that it was is lost, and the new one knows nothing
    /// of what was.
    ///
    /// The transport keeps the two apart. Messages and operations that the engine sent or submitted before
    /// this was returned never reach the new process. Nothing from the new process is returned before this.
    /// Nothing from the old one is returned afterwards, but the ends of one-sided operations with it. Both
    /// lanes to the new process are empty.
    Returned {
        /// The peer.
        peer: Rank,
        /// How many processes had the rank before this one. Of two reports the greater one counts, in any
        /// order.
        incarnation: u32,
    },
}

/// The result of a [look for the end of a copy](Transport::poll_copied).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// This pending copy has ended, and well.
    Done(OpId),
    /// There is no event of any kind.
    Nothing,
    /// [`Transport::poll`] is to be asked.
    Unknown,
}

/// Where a message is put when it arrives, and stays while it is handled: moving it about would cost more
/// than all the rest of its way. A long payload may stay where it came in until somebody asks for it.
#[derive(Default)]
pub struct Inbox {
    /// The header, not yet checked: peers are hostile.
    pub header: [u64; Header::WORDS],
    /// The payload, unless it is [held](Inbox::held): then these are bytes of an earlier one.
    pub payload: Vec<u8>,
    held: usize,
    /// Of what is held, once somebody has asked for it as a whole.
    copy: OnceCell<Vec<u8>>,
    /// Memory for the next copy.
    spare: Cell<Vec<u8>>,
}

impl Inbox {
    /// With a message that is all here.
    pub fn new(header: [u64; Header::WORDS], payload: Vec<u8>) -> Inbox {
        Inbox { header, payload, ..Inbox::default() }
    }

    /// Bytes of the payload, if the transport has left it where it came in; 0 otherwise.
    /// [`Transport::read_held`] reads them until the next poll.
    #[inline]
    pub fn held(&self) -> usize {
        self.held
    }

    /// The payload has so many bytes and stays with the transport, which calls this as it writes the header;
    /// 0: it does not.
    #[inline]
    pub fn hold(&mut self, bytes: usize) {
        self.held = bytes;
        if bytes > 0
            && let Some(copy) = self.copy.take()
        {
            self.spare.set(copy);
        }
    }

    /// The payload, where it need not be asked for: all of it is here, or a copy of what is held.
    #[inline]
    pub fn here(&self) -> Option<&[u8]> {
        if self.held == 0 { Some(&self.payload) } else { self.copy.get().map(Vec::as_slice) }
    }

    /// Has the payload here, and held no more: by the copy that was made of it, or else by one that `read`
    /// makes.
    pub(crate) fn fetch(&mut self, read: impl FnOnce(&mut [u8])) {
        match self.copy.take() {
            Some(copy) => self.spare.set(std::mem::replace(&mut self.payload, copy)),
            None => {
                self.payload.resize(self.held, 0);
                read(&mut self.payload);
            }
        }
        self.held = 0;
    }

    /// Bytes of the payload, wherever it is.
    #[inline]
    pub fn payload_len(&self) -> usize {
        if self.held > 0 { self.held } else { self.payload.len() }
    }

    /// The payload: of what is held a copy, which `read` makes when this is first called for a message.
    pub fn whole(&self, read: impl FnOnce(&mut [u8])) -> &[u8] {
        if self.held == 0 {
            return &self.payload;
        }
        self.copy.get_or_init(|| {
            let mut bytes = self.spare.take();
            bytes.resize(self.held, 0);
            read(&mut bytes);
            bytes
        })
    }

    /// The arguments of the message, if it is an Active Message.
    #[inline]
    pub fn args(&self) -> [u64; 4] {
        wire::am_args(&self.header)
    }

    /// The stamp of the message, if it is an Active Message: a number of its first sender's, which replies
    /// echo ([`crate::Node::send_am_stamped`]); 0 for none.
    #[inline]
    pub fn stamp(&self) -> u64 {
        wire::am_stamp(&self.header)
    }

    /// Where a long Active Message's payload lies in this process's memory, and how many bytes it has, as the
    /// sender says: nothing guarantees that the place is the receiver's to read. `None` for other messages.
    pub fn landed(&self) -> Option<(Place, u32)> {
        match Message::decode(&self.header, self.payload_len()) {
            Ok(Message::Am(Am { form: AmForm::Long(place, len), .. })) => Some((place, len)),
            _ => None,
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Inbox");
        shown.field("header", &self.header).field("payload", &self.payload).field("held", &self.held).finish()
    }
}

/// A way to reach peers. The engine calls these from one thread at a time.
pub trait Transport {
    /// Sends one message in order within its (peer, lane). `payload` is at most [`Transport::payload_max`]
    /// bytes and may be reused at return.
    fn send(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError>;

    /// Whether it is worth while to try a message that found the lane full before. `false` only where the
    /// lane has no room still. Optional.
    fn has_room(&mut self, peer: Rank, lane: Lane) -> bool {
        let _ = (peer, lane);
        true
    }

    /// Makes progress and returns the next event, if there is one. `inbox` is overwritten by a message. The
    /// payload may be [left](Inbox::hold) here until the next call; before it nothing is held.
    ///
    /// A message of the request lane is returned only while the reply lane to its sender has room for one
    /// reply of any size. So a reply sent before the next call is never `Busy`.
    fn poll(&mut self, inbox: &mut Inbox) -> Option<Event>;

    /// Reads of the payload that was left with the transport, from byte `at` on: no more than it has, and of
    /// the message that was returned last. A hostile peer may change it between two calls. Needed where
    /// [`Inbox::hold`] is ever called with more than 0.
    fn read_held(&mut self, at: usize, into: &mut [u8]) {
        unreachable!("{} bytes from byte {at} on of a payload that nobody holds", into.len());
    }

    /// Copies `len` bytes of the payload that was left with the transport, from byte `at` on, to a place in
    /// this process's memory: once, and no more than it has. As [`Transport::write`] for the rest, and needed
    /// where [`Transport::read_held`] is.
    fn copy_held(&mut self, at: usize, len: usize, to: Place) -> Result<(), OpError> {
        unreachable!("{len} bytes from byte {at} on for {to:?}, of a payload that nobody holds");
    }

    /// Takes the next message of a peer's requests, if it has no payload and its header begins like this, and
    /// returns the rest of it. The caller waits for that message, and only looks. Everything else is for
    /// [`Transport::poll`]. Optional.
    #[inline(always)]
    fn take_like(
        &mut self,
        peer: Rank,
        head: &[u64; HEAD_WORDS],
    ) -> Option<[u64; Header::WORDS - HEAD_WORDS]> {
        let _ = (peer, head);
        None
    }

    /// This process gives up what it has offered to peers: counts that where they see it, before anything of
    /// it changes. Optional.
    fn give_up_offers(&mut self) {}

    /// How often a peer, or this process itself, has given up what it offered. While that is what it was when
    /// it made an offer, all that was copied before it was looked at here is what was offered. `None`: that
    /// cannot be seen, and the peer must be asked. Optional.
    fn offers_given_up(&self, peer: Rank) -> Option<u32> {
        let _ = peer;
        None
    }

    /// Comes before each [`Transport::poll`]. Where a copy nearly always ends well, and its end is what a
    /// poll finds, a transport does here what it would do there, and says so in fewer words. Optional.
    #[inline(always)]
    fn poll_copied(&mut self) -> Copied {
        Copied::Unknown
    }

    /// Bytes that one message's payload may have.
    fn payload_max(&self) -> usize;

    /// The time, where something is registered: asked for around what takes long, to weigh one thing against
    /// another. `None`: nothing is weighed. Optional.
    fn now(&self) -> Option<Nanos> {
        None
    }

    /// Copies from this process's own memory; an inaccessible address is an error, never a signal.
    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), OpError>;

    /// Copies to this process's own memory; an inaccessible address is an error, never a signal.
    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError>;

    /// Whether [`Transport::copy`] reaches the peer's ends of all pieces, as far as is known; if not, why.
    /// Optional.
    fn reaches(&mut self, peer: Rank, pieces: &[Piece]) -> Result<(), PathReason> {
        let _ = (peer, pieces);
        Err(PathReason::NotOffered)
    }

    /// Bytes of one piece from which [`Transport::copy`] pays with this peer: less had better go by message.
    /// Optional.
    fn direct_min(&self, peer: Rank) -> u64 {
        let _ = peer;
        0
    }

    /// Starts a one-sided copy of all pieces, to or from one peer, which it [reaches](Transport::reaches):
    /// only what has changed this moment makes it [`Submit::Unreachable`]. Optional.
    fn copy(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[Piece]) -> Submit {
        let _ = (op, peer, direction, pieces);
        Submit::Unreachable(PathReason::NotOffered)
    }

    /// Bytes of a *bounce buffer*: a part of this process's heap that peers' transfers by message go through.
    /// The same at all processes of a job, and 0 where there are none. Optional, as is all that has to do
    /// with them.
    fn bounce_bytes(&self) -> u64 {
        0
    }

    /// Makes one more bounce buffer, for good: where in the heap it begins. `None`: there is to be none.
    fn make_bounce_buffer(&mut self) -> Option<u64> {
        None
    }

    /// Whether a peer's private memory goes by message, and its heap is reached by [`Transport::copy`].
    fn reaches_bounce_buffers(&mut self, peer: Rank) -> bool {
        let _ = peer;
        false
    }

    /// Starts a one-sided copy between a peer's bounce buffer and this process's memory. It does as
    /// [`Transport::copy`] does, but for a transport that counts copies, since this one is part of what is
    /// counted as going by message.
    fn copy_bounced(&mut self, op: OpId, peer: Rank, direction: Direction, piece: Piece) -> Submit {
        self.copy(op, peer, direction, &[piece])
    }

    /// Copies between two places of this process's own memory; an inaccessible address is an error, never a
    /// signal.
    fn copy_own(&mut self, from: Place, to: Place, len: u64) -> Result<(), OpError> {
        let mut bytes = vec![0; len as usize];
        self.read(from, &mut bytes)?;
        self.write(to, &bytes)
    }

    /// Takes what is left of a copy of which an [`Event::Unreachable`] tells: which way it goes, and pieces
    /// that may have been copied in part. Needed where that is ever told.
    fn take_unreached(&mut self, op: OpId) -> Option<(Direction, Vec<Piece>)> {
        let _ = op;
        None
    }

    /// Takes the answer of a peer that was [asked](crate::Node::ask_for_grant) for a grant by address, for
    /// such an access: the grant, where its memory begins, and how many bytes it has.
    fn learn_grant(&mut self, _peer: Rank, _direction: Direction, _found: (GrantId, u64, u64)) {}

    /// Gives up a pending one-sided operation: it ended by deadline, by cancellation or with its peer. Once
    /// this returns the operation's local memory is touched no more; whether it took effect at the peer is
    /// unspecified, and an [`Event::Completed`] for it changes nothing. Needed where [`Submit::Pending`] is
    /// ever returned.
    ///
    /// A copy by key, or to or from a bounce buffer, is reported nonetheless, as soon as the peer's memory is
    /// touched no more either, or the peer is gone. Until then its registrations and stages stay in use.
    ///
    /// Returns whether the operation may still write at the peer. If so, it is reported nonetheless, whatever
    /// it is: when it can write no more, or the peer is gone. Never of a get.
    fn abandon(&mut self, op: OpId) -> bool {
        let _ = op;
        false
    }

    /// Gives a peer up, which is lost to this node: from now on nothing comes in from it, neither messages
    /// nor one-sided operations, until another process has its rank. If it still runs, it is told that this
    /// process is lost to it ([`crate::Node::lose`]). Needed where a peer can be lost that has not ended: by
    /// not answering in time.
    ///
    /// Messages that had come before may still be returned.
    fn disconnect(&mut self, peer: Rank) {
        let _ = peer;
    }

    /// Takes another's word that a peer's process has ended or left. Needed where that may go unnoticed here:
    /// a transport that finds it true, or has nothing to say against it, has the peer lost
    /// ([`crate::Node::lose`]).
    fn doubt(&mut self, peer: Rank) {
        let _ = peer;
    }

    /// Somebody says that it has lost a peer, which may well run. Optional: a transport that can find out by
    /// itself whether the peer's process is there does so; it takes nobody's word.
    fn suspect(&mut self, peer: Rank) {
        let _ = peer;
    }

    /// Changes an aligned word of this process's own heap, as [`Transport::atomic`] does for a peer: each
    /// sees the other's changes whole. Or a word of its space, which it has granted: all its own threads see
    /// the change whole, and an inaccessible address is an error, never a signal. An atomic that changes
    /// nothing only reads. Threads that sleep need not be told. Optional; needed where
    /// [`Transport::atomic`] is offered, or memory is granted.
    fn change_own(&mut self, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        let (mem, addr, len) = (word.mem, word.offset, atomic.size());
        Err(OpError::LocalFault { mem, addr, len })
    }

    /// Whether a short put that signals is to go to this peer as one message, not as a copy and then an
    /// atomic. That is so where each of the two takes a way there and back. Optional.
    fn signals_by_message(&self, peer: Rank) -> bool {
        let _ = peer;
        false
    }

    /// Starts a one-sided atomic on an aligned word of a peer's heap or control memory. Optional.
    fn atomic(&mut self, op: OpId, peer: Rank, word: Place, atomic: Atomic) -> Submit {
        let _ = (op, peer, word, atomic);
        Submit::Unreachable(PathReason::NotOffered)
    }

    /// Registers `len` bytes of this process's space from `offset` on: pins them, and makes a key by which
    /// peers reach them. Optional; a transport that offers it is given its pieces of the space by
    /// [`Transport::copy_keyed`].
    fn register(&mut self, reg: RegId, offset: u64, len: u64) -> Registering {
        let _ = (reg, offset, len);
        Registering::Failed(RegisterError::Limit)
    }

    /// Takes a registration back that was made, once no operation uses it any more.
    fn deregister(&mut self, reg: RegId) -> Deregistering {
        let _ = reg;
        Deregistering::Done
    }

    /// Whether copies with this peer go by key: of several ways to reach peers, some may need none.
    fn is_keyed(&self, peer: Rank) -> bool {
        let _ = peer;
        true
    }

    /// The same piece with both ends in the processes' spaces, if it can be registered there: a heap is
    /// mapped somewhere. `None`: it goes by [`Transport::copy`]. Optional.
    fn in_spaces(&mut self, peer: Rank, piece: Piece) -> Option<Piece> {
        let _ = (peer, piece);
        None
    }

    /// Bytes at the local end of a keyed copy, in all, that need no registration here: a transport sends so
    /// many inside its descriptor, or through memory of its own. All of them, where local memory is never
    /// registered.
    fn unregistered_max(&self, direction: Direction) -> u64 {
        let _ = direction;
        u64::MAX
    }

    /// Starts a one-sided copy of all pieces, to or from one peer's registered memory. Optional. It
    /// completes, for a put, when the bytes lie in the peer's memory.
    fn copy_keyed(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[KeyedPiece]) -> Submit {
        let _ = (op, peer, direction, pieces);
        Submit::Unreachable(PathReason::NotOffered)
    }
}
