//! What a process knows of its messages: the part of the layer that sends nothing itself.

use std::collections::{HashMap, VecDeque};

use standpipe::Rank;

use crate::Copies;
use crate::bip::error::BipError;
use crate::bip::sends::Sends;
use crate::bip::tags::{Arrived, Body, Buffers, Content, Held, Long, Receive, Received, Tags, Target};
use crate::bip::window::{BASE, Inflow, Outflow};
use crate::bip::wire::{Message, WORD};

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
    /// Long messages whose senders are to be told that they were got.
    pub(super) done: VecDeque<(Rank, u32)>,
    /// Peers that are to be told how many of their messages were taken.
    pub(super) owed: VecDeque<Rank>,
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
            Message::Done { send } => self.sends.finish(from, send).then_some(Route::Nowhere),
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
        let slot = self.slot_for_peer(tag)?;
        let tag = self.tags.at(slot);
        let Receive::Open(target) = tag.receive else { return Some(Route::Queue(slot)) };
        if tag.front().is_some() {
            return Some(Route::Queue(slot));
        }
        if words > target.most {
            let too_long = BipError::TooLong { tag: tag.number, from, words, most: target.most };
            tag.receive = Receive::Done(Err(too_long));
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

    /// How many of that peer's messages were taken, and that it is being told so.
    pub(super) fn taken_of(&mut self, peer: Rank) -> u64 {
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
    /// Posts a receive. A short message that is there already is given back, to be copied to the buffer: its
    /// receive has ended.
    #[inline]
    pub(super) fn post(&mut self, slot: u16, target: Target) -> Result<Option<Body>, BipError> {
        let tag = self.tags.at(slot);
        tag.may_receive()?;
        tag.next_generation();
        if !matches!(tag.front(), Some(Arrived::Short(..))) {
            tag.receive = Receive::Open(target);
            if tag.is_matched_by_long() {
                self.matched.push_back(slot);
            }
            return Ok(None);
        }
        let body = match tag.pop() {
            None | Some(Arrived::Long(_)) => None,
            Some(Arrived::Short(from, body)) => {
                let words = (body.bytes().len() / WORD) as u32;
                let fits = words <= target.most;
                let too_long = BipError::TooLong { tag: tag.number, from, words, most: target.most };
                tag.receive = Receive::Done(if fits { Ok(Received { words, from }) } else { Err(too_long) });
                self.take(from);
                fits.then_some(body)
            }
        };
        if let Some(body) = &body {
            self.copies.received += body.bytes().len() as u64;
        }
        Ok(body)
    }

    /// Whether the next message in that queue is a short one, if there is one.
    pub(super) fn is_short_next(&mut self, slot: u16) -> Option<bool> {
        self.tags.at(slot).front().map(|message| matches!(message, Arrived::Short(..)))
    }

    /// The next long message that a receive waits for.
    pub(super) fn next_to_get(&mut self) -> Option<ToGet> {
        while let Some(slot) = self.matched.pop_front() {
            let tag = self.tags.at(slot);
            let Receive::Open(target) = tag.receive else { continue };
            let Some(Arrived::Long(long)) = tag.front() else { continue };
            let long = *long;
            tag.pop();
            if long.words > target.most {
                let (tag_number, from) = (tag.number, long.from);
                let too_long =
                    BipError::TooLong { tag: tag_number, from, words: long.words, most: target.most };
                tag.receive = Receive::Done(Err(too_long));
                continue;
            }
            tag.receive = Receive::Getting;
            self.getting += 1;
            return Some(ToGet { slot, long, into: Some(target.addr) });
        }
        None
    }

    /// A long message has been got, or not; `words` are those that are to be read in place.
    pub(super) fn got(&mut self, get: &ToGet, result: Result<(), BipError>, words: Option<Vec<u32>>) {
        self.getting = self.getting.saturating_sub(1);
        let Long { from, words: len, send, .. } = get.long;
        if result.is_ok() {
            self.done.push_back((from, send));
            if let Some(peer) = self.peers.get_mut(from as usize) {
                peer.has_asked = false;
            }
        }
        let tag = self.tags.at(get.slot);
        match (words, result) {
            (Some(words), Ok(())) => {
                tag.receive = Receive::None;
                tag.held = Some(Held { from, content: Content::Words(words), is_given: false });
            }
            (Some(_), Err(fault)) => {
                tag.receive = Receive::None;
                self.fault.get_or_insert(fault);
            }
            (None, result) => {
                tag.receive = Receive::Done(result.map(|()| Received { words: len, from }));
            }
        }
    }

    /// Whether a message is next in that queue which nothing is being done with.
    pub(super) fn has_next(&mut self, slot: u16) -> bool {
        let tag = self.tags.at(slot);
        tag.held.is_none() && tag.front().is_some() && tag.may_receive().is_ok()
    }

    /// Has the next message of a tag read in place. A long one must be got first.
    pub(super) fn hold_next(&mut self, slot: u16) -> Result<Option<ToGet>, BipError> {
        let tag = self.tags.at(slot);
        let number = tag.number;
        match (&tag.held, &tag.receive) {
            (Some(held), _) if held.is_given => return Err(BipError::Held { tag: number }),
            (Some(_), _) | (None, Receive::GettingInPlace) => return Ok(None),
            (None, _) => tag.may_receive()?,
        }
        match tag.pop() {
            None => Ok(None),
            Some(Arrived::Short(from, body)) => {
                let content = aligned(body);
                if let Content::Words(words) = &content {
                    self.copies.received += (words.len() * WORD) as u64;
                }
                tag.held = Some(Held { from, content, is_given: false });
                self.take(from);
                Ok(None)
            }
            Some(Arrived::Long(long)) => {
                tag.receive = Receive::GettingInPlace;
                self.getting += 1;
                Ok(Some(ToGet { slot, long, into: None }))
            }
        }
    }

    /// Gives the program the message that is read in place, once it is there.
    pub(super) fn give(&mut self, slot: u16) -> Option<(*const u8, Received)> {
        let held = self.tags.at(slot).held.as_mut().filter(|held| !held.is_given)?;
        held.is_given = true;
        let (start, words) = held.content.place();
        Some((start, Received { words, from: held.from }))
    }

    /// Frees the message that the program reads in place.
    pub(super) fn free(&mut self, slot: u16) -> Result<(), BipError> {
        let tag = self.tags.at(slot);
        match tag.held.take_if(|held| held.is_given) {
            Some(_) => Ok(()),
            None => Err(BipError::NotHeld { tag: tag.number }),
        }
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
