//! What a process knows of its messages: the part of the layer that sends nothing itself.

use std::collections::{HashMap, VecDeque};

use standpipe::Rank;

use crate::Copies;
use crate::bip::error::BipError;
use crate::bip::sends::{Refusal, Send, Sends};
use crate::bip::tags::{Arrived, Body, Buffers, Content, Long, Receive, Received, Tags, Target};
use crate::bip::window::{BASE, Inflow, Outflow};
use crate::bip::wire::{Message, WORD};

/// Calls that do not wait, and find nothing, once nobody is left who could send. A program that empties its
/// queues needs few of them; one that asks for ever must end.
const IN_VAIN_MAX: u32 = 100_000;

/// What has happened beside what was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Messages of peers that were refused: no correct peer sends them.
    pub refused: u64,
    /// Short messages that came when their tag's buffers were taken, or that were longer than those. They
    /// were kept nevertheless; BIP itself loses them.
    pub unbuffered: u64,
    /// Sends of short messages that waited until the receiver had taken earlier ones.
    pub held_back: u64,
}

/// What is known of a peer.
#[derive(Debug)]
struct Peer {
    outflow: Outflow,
    inflow: Inflow,
    /// Whether a long message of it waits or is being got: a correct peer has one at a time.
    has_asked: bool,
    /// Whether its program has ended well.
    has_left: bool,
}

/// Where a message goes that has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Its payload belongs at this address, and the receive that asked for it has ended.
    Into(usize),
    /// [`State::keep`] it there.
    Queue(u16),
    Nowhere,
}

/// A long message that is to be got.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ToGet {
    pub(super) slot: u16,
    pub(super) long: Long,
    /// `None`: it is to be read in place.
    pub(super) into: Option<usize>,
}

/// The answer to a program that asks for a message to read in place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InPlace {
    /// Its words, which the program has from now on.
    Here(*const u8, Received),
    /// The next is a long one, which is to be got now.
    ToGet(ToGet),
    /// None is there, or it is being got.
    NotYet,
}

/// A process's messages.
#[derive(Debug)]
pub(super) struct State {
    pub(super) tags: Tags,
    pub(super) sends: Sends,
    peers: Vec<Peer>,
    /// This process's own window.
    window: u32,
    /// Tags whose receive a long message is next for.
    matched: VecDeque<u16>,
    /// Gets that are under way.
    pub(super) getting: u32,
    /// Senders of long messages, and what to tell them of those.
    pub(super) done: VecDeque<(Rank, Message)>,
    /// Peers that are to be told how many of their messages were taken.
    pub(super) owed: VecDeque<Rank>,
    /// Calls that did not wait, and found nothing, with nobody left who could send.
    pub(super) in_vain: u32,
    /// What no call has asked for and the next one tells.
    pub(super) fault: Option<BipError>,
    pub(super) counts: Counts,
    pub(super) copies: Copies,
}

/// The window of a process that has declared these buffers.
pub(super) fn window_of(declared: &HashMap<u32, Buffers>) -> u32 {
    declared.values().fold(BASE, |sum, buffers| sum.saturating_add(buffers.count))
}

impl State {
    /// Of a process that has declared these buffers, with those windows of all processes.
    pub(super) fn new(declared: HashMap<u32, Buffers>, windows: &[u32]) -> State {
        let window = window_of(&declared);
        let peer = |window: &u32| Peer {
            outflow: Outflow::new(*window),
            inflow: Inflow::default(),
            has_asked: false,
            has_left: false,
        };
        State {
            tags: Tags::new(declared),
            sends: Sends::default(),
            peers: windows.iter().map(peer).collect(),
            window,
            matched: VecDeque::new(),
            getting: 0,
            done: VecDeque::new(),
            owed: VecDeque::new(),
            in_vain: 0,
            fault: None,
            counts: Counts::default(),
            copies: Copies::default(),
        }
    }

    /// What the processes have said of their windows.
    pub(super) fn set_windows(&mut self, windows: &[u32]) {
        for (peer, window) in self.peers.iter_mut().zip(windows) {
            peer.outflow = Outflow::new(*window);
        }
    }

    /// Whether there is something to send or to get.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        !self.matched.is_empty()
            || self.getting > 0
            || !self.done.is_empty()
            || !self.owed.is_empty()
            || self.sends.unsent().is_some_and(|send| self.may_send(send.peer, send.is_short()))
    }

    /// Whether a message may go to that peer now.
    #[inline]
    pub(super) fn may_send(&self, peer: Rank, is_short: bool) -> bool {
        !is_short || self.peers.get(peer as usize).is_some_and(|peer| peer.outflow.has_room())
    }

    /// Takes note that a message was sent.
    #[inline]
    pub(super) fn sent(&mut self, peer: Rank, is_short: bool) {
        if is_short && let Some(peer) = self.peers.get_mut(peer as usize) {
            peer.outflow.send();
        }
    }

    /// Takes a message that has come from a peer.
    #[inline]
    pub(super) fn arrive(&mut self, from: Rank, message: Message) -> Route {
        let route = match message {
            Message::Short { tag, words } => self.arrive_short(from, tag, words),
            Message::Long { tag, words, send, addr } => {
                self.arrive_long(tag, Long { from, words, send, addr })
            }
            Message::Done { send } => self.finish(from, send, None),
            Message::NoRoom { send, most } => self.finish(from, send, Some(Refusal::NoRoom { most })),
            Message::NoSource { send } => self.finish(from, send, Some(Refusal::NoSource)),
            Message::Taken { total } => {
                let peer = self.peers.get_mut(from as usize);
                peer.and_then(|peer| peer.outflow.heard(total).then_some(Route::Nowhere))
            }
            Message::Leaving => {
                let peer = self.peers.get_mut(from as usize).filter(|peer| !peer.has_left);
                peer.map(|peer| {
                    peer.has_left = true;
                    Route::Nowhere
                })
            }
        };
        route.unwrap_or_else(|| {
            self.refuse();
            Route::Nowhere
        })
    }

    fn finish(&mut self, from: Rank, send: u32, refusal: Option<Refusal>) -> Option<Route> {
        self.sends.finish(from, send, refusal).then_some(Route::Nowhere)
    }

    /// Counts a message that no correct peer sends.
    pub(super) fn refuse(&mut self) {
        self.counts.refused += 1;
    }

    #[inline]
    fn arrive_short(&mut self, from: Rank, tag: u32, words: u32) -> Option<Route> {
        let window = self.window;
        if !self.peers.get_mut(from as usize)?.inflow.arrive(window) {
            return None;
        }
        let Some(slot) = self.slot_for_peer(tag) else {
            self.take(from);
            return None;
        };
        let tag = self.tags.at(slot);
        let Receive::Open(target) = tag.receive else { return Some(Route::Queue(slot)) };
        if tag.front().is_some() {
            return Some(Route::Queue(slot));
        }
        if words > target.most {
            let too_long = BipError::TooLong { tag: tag.number, from, words, most: target.most };
            tag.receive = Receive::Done(Err(too_long));
            self.take(from);
            return Some(Route::Nowhere);
        }
        tag.receive = Receive::Done(Ok(Received { words, from }));
        self.copies.received += u64::from(words) * WORD as u64;
        self.take(from);
        Some(Route::Into(target.addr))
    }

    fn arrive_long(&mut self, tag: u32, long: Long) -> Option<Route> {
        if self.peers.get(long.from as usize)?.has_asked {
            return None;
        }
        let slot = self.slot_for_peer(tag)?;
        self.peers[long.from as usize].has_asked = true;
        let tag = self.tags.at(slot);
        let is_next = tag.front().is_none();
        tag.push(Arrived::Long(long));
        if is_next && tag.is_matched_by_long() {
            self.matched.push_back(slot);
        }
        Some(Route::Nowhere)
    }

    fn slot_for_peer(&mut self, tag: u32) -> Option<u16> {
        match self.tags.slot_of(tag) {
            Ok(slot) => Some(slot),
            Err(fault) => {
                self.fault.get_or_insert(fault);
                None
            }
        }
    }

    /// Queues a short message.
    pub(super) fn keep(&mut self, slot: u16, from: Rank, body: Body) {
        if !self.tags.at(slot).push(Arrived::Short(from, body)) {
            self.counts.unbuffered += 1;
        }
    }

    /// A short message of that peer's has left its queue.
    #[inline]
    fn take(&mut self, from: Rank) {
        let window = self.window;
        if let Some(peer) = self.peers.get_mut(from as usize)
            && peer.inflow.take(window)
        {
            self.owed.push_back(from);
        }
    }

    /// Whether that peer's program has ended well.
    pub(super) fn has_left(&self, peer: Rank) -> bool {
        self.peers.get(peer as usize).is_some_and(|peer| peer.has_left)
    }

    /// Whether all programs but one's own have.
    pub(super) fn have_left(&self) -> bool {
        self.peers.iter().filter(|peer| peer.has_left).count() + 1 >= self.peers.len()
    }

    /// Counts a call that found nothing with nobody left who could send: whether these are too many.
    pub(super) fn asks_in_vain(&mut self) -> bool {
        self.in_vain = self.in_vain.saturating_add(1);
        self.in_vain > IN_VAIN_MAX
    }

    /// How many of that peer's messages were taken, and that it is being told so.
    pub(super) fn taken_of(&self, peer: Rank) -> u64 {
        self.peers.get(peer as usize).map_or(0, |peer| peer.inflow.total())
    }

    /// That peer was told so.
    pub(super) fn told(&mut self, peer: Rank, total: u64) {
        if let Some(peer) = self.peers.get_mut(peer as usize) {
            peer.inflow.tell(total);
        }
    }
}

/// Receiving.
impl State {
    /// Posts a receive. A message that is here already is given back, to be copied to the buffer: its receive
    /// has ended.
    #[inline]
    pub(super) fn post(&mut self, slot: u16, target: Target) -> Result<Option<Content>, BipError> {
        let tag = self.tags.at(slot);
        tag.may_receive()?;
        tag.next_generation();
        if matches!(tag.front(), None | Some(Arrived::Long(_))) {
            tag.receive = Receive::Open(target);
            if tag.is_matched_by_long() {
                self.matched.push_back(slot);
            }
            return Ok(None);
        }
        let is_short = matches!(tag.front(), Some(Arrived::Short(..)));
        let (from, content) = match tag.pop() {
            None | Some(Arrived::Long(_)) => return Ok(None),
            Some(Arrived::Short(from, body)) => (from, Content::AsItCame(body)),
            Some(Arrived::Got(from, words)) => (from, Content::Words(words)),
        };
        let content = tag.receive_here(target, from, content);
        if is_short {
            self.take(from);
        }
        if let Some(content) = &content {
            self.copies.received += u64::from(content.words()) * WORD as u64;
        }
        Ok(content)
    }

    /// Whether the next message in that queue is a short one, if there is one.
    pub(super) fn is_short_next(&mut self, slot: u16) -> Option<bool> {
        self.tags.at(slot).front().map(|message| matches!(message, Arrived::Short(..)))
    }

    /// The next long message that a receive waits for.
    pub(super) fn next_to_get(&mut self) -> Option<ToGet> {
        while let Some(slot) = self.matched.pop_front() {
            let tag = self.tags.at(slot);
            if !tag.is_matched_by_long() {
                continue;
            }
            let Receive::Open(target) = tag.receive else { continue };
            let Some(Arrived::Long(long)) = tag.pop() else { continue };
            if long.words <= target.most {
                tag.receive = Receive::Getting;
                self.getting += 1;
                return Some(ToGet { slot, long, into: Some(target.addr) });
            }
            let (tag_number, from) = (tag.number, long.from);
            let too_long = BipError::TooLong { tag: tag_number, from, words: long.words, most: target.most };
            tag.receive = Receive::Done(Err(too_long));
            self.is_done_with(&long, Message::NoRoom { send: long.send, most: target.most });
        }
        None
    }

    /// Nothing more is asked of a long message, and its sender is to be told so.
    fn is_done_with(&mut self, long: &Long, so: Message) {
        self.done.push_back((long.from, so));
        if let Some(peer) = self.peers.get_mut(long.from as usize) {
            peer.has_asked = false;
        }
    }

    /// A long message has been got, or not; `words` are those that were got into memory of the layer's. Gives
    /// them back where a receive waits for them, with the address that they are to be copied to.
    pub(super) fn got(
        &mut self,
        get: &ToGet,
        result: Result<(), BipError>,
        words: Option<Vec<u32>>,
    ) -> Option<(usize, Content)> {
        self.getting = self.getting.saturating_sub(1);
        let send = get.long.send;
        match &result {
            Ok(()) => self.is_done_with(&get.long, Message::Done { send }),
            Err(BipError::BadSource { .. }) => self.is_done_with(&get.long, Message::NoSource { send }),
            // The sender is gone, or this process leaves.
            Err(_) => {}
        }
        let tag = self.tags.at(get.slot);
        let Long { from, words: len, .. } = get.long;
        let Some(words) = words else {
            tag.receive = Receive::Done(result.map(|()| Received { words: len, from }));
            return None;
        };
        tag.front_was_got(result.is_ok().then_some((from, words)));
        if let Err(fault) = result {
            self.fault.get_or_insert(fault);
            return None;
        }
        let Receive::Open(target) = tag.receive else { return None };
        let Some(Arrived::Got(from, words)) = tag.pop() else { return None };
        let content = tag.receive_here(target, from, Content::Words(words))?;
        self.copies.received += u64::from(content.words()) * WORD as u64;
        Some((target.addr, content))
    }

    /// Whether a message is next in that queue which nothing is being done with.
    pub(super) fn has_next(&mut self, slot: u16) -> bool {
        let tag = self.tags.at(slot);
        tag.held.is_none() && tag.front().is_some() && !tag.is_front_got && tag.may_receive().is_ok()
    }

    /// Gives the program the next message of a tag, to be read in place. A long one must be got first, and
    /// stays the next one meanwhile.
    pub(super) fn next_in_place(&mut self, slot: u16) -> Result<InPlace, BipError> {
        let tag = self.tags.at(slot);
        if tag.held.is_some() {
            return Err(BipError::Held { tag: tag.number });
        }
        tag.may_receive()?;
        if let Some(Arrived::Long(long)) = tag.front() {
            let long = *long;
            if std::mem::replace(&mut tag.is_front_got, true) {
                return Ok(InPlace::NotYet);
            }
            self.getting += 1;
            return Ok(InPlace::ToGet(ToGet { slot, long, into: None }));
        }
        let (from, content) = match tag.pop() {
            None | Some(Arrived::Long(_)) => return Ok(InPlace::NotYet),
            Some(Arrived::Got(from, words)) => (from, Content::Words(words)),
            Some(Arrived::Short(from, body)) => {
                let content = aligned(body);
                if let Content::Words(words) = &content {
                    self.copies.received += (words.len() * WORD) as u64;
                }
                self.take(from);
                (from, content)
            }
        };
        let (start, words) = self.tags.at(slot).held.insert(content).place();
        Ok(InPlace::Here(start, Received { words, from }))
    }

    /// Frees the message that the program reads in place.
    pub(super) fn free(&mut self, slot: u16) -> Result<(), BipError> {
        let tag = self.tags.at(slot);
        match tag.held.take() {
            Some(_) => Ok(()),
            None => Err(BipError::NotHeld { tag: tag.number }),
        }
    }
}

/// Leaving.
impl State {
    /// Takes back every receive that nothing has come for: nothing is written to a buffer any more.
    pub(super) fn withdraw(&mut self) {
        self.tags.withdraw_all();
        self.matched.clear();
    }

    /// Whether that peer has nothing more to hear of before it hears that this process leaves: neither what
    /// is to be sent to it, nor that its message was got.
    pub(super) fn may_tell_of_leaving(&self, peer: Rank) -> bool {
        let is_to_it = |send: &Send| send.peer == peer;
        !self.sends.unsent().as_ref().is_some_and(is_to_it) && self.done.iter().all(|(to, _)| *to != peer)
    }
}

/// A message's words where they can be read as words: as it came mostly.
fn aligned(body: Body) -> Content {
    if body.bytes().as_ptr().addr().is_multiple_of(WORD) {
        return Content::AsItCame(body);
    }
    let words = body.bytes().chunks_exact(WORD);
    Content::Words(words.map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect())
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
