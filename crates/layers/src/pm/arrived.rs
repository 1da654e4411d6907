//! What has come from peers: messages by channel, places in windows, and who has left.

use std::collections::VecDeque;

use standpipe::{Call, Payload, Rank};

use super::wire::{CHANNELS_MAX, Head, Message, WINDOW, parse};
use crate::copies::copy_of_payload;

/// Payloads that are kept where they came, at most; others are copied. It leaves the node's other payloads
/// for sending, so that receiving never takes the last buffer to send from.
const KEPT_MAX: u32 = 512;

/// A message's bytes, where they lie until the program releases them.
pub(super) enum Body {
    Kept(Payload),
    Copied(Vec<u8>),
    /// So many bytes of words, which the receiving context gives a place.
    Words([u64; 2], usize),
}

/// A message that has come and has not been released.
pub(super) struct Received {
    pub(super) from: Rank,
    pub(super) body: Body,
}

/// One stream of messages, with all peers.
struct Channel {
    queue: VecDeque<Received>,
    by_peer: Vec<Windows>,
}

/// The two windows with a peer.
#[derive(Clone, Copy)]
struct Windows {
    /// Messages that may be sent to it now.
    may_send: u32,
    /// Messages of it that have come and are not given back to it as credits.
    held: u32,
    /// Of these, those that the program has released.
    released: u32,
}

/// All that the handler writes and the calls read.
pub(super) struct Arrived {
    size: u32,
    channels: Vec<Option<Channel>>,
    left: Vec<bool>,
    /// By rank, how many regions it has unlocked, as far as is known.
    unlocked: Vec<u64>,
    kept: u32,
    /// Bytes that were copied: of short messages, and because they could not be kept.
    pub(super) copied_bytes: u64,
    /// Messages of peers that were malformed, or more than their window.
    pub(super) refused: u64,
}

impl Arrived {
    pub(super) fn new(size: u32) -> Arrived {
        let channels = (0..CHANNELS_MAX).map(|_| None).collect();
        let (left, unlocked) = (vec![false; size as usize], vec![0; size as usize]);
        Arrived { size, channels, left, unlocked, kept: 0, copied_bytes: 0, refused: 0 }
    }

    fn channel(&mut self, channel: u16) -> &mut Channel {
        let size = self.size as usize;
        self.channels[usize::from(channel)].get_or_insert_with(|| Channel {
            queue: VecDeque::new(),
            by_peer: vec![Windows { may_send: WINDOW, held: 0, released: 0 }; size],
        })
    }

    fn windows(&mut self, channel: u16, peer: Rank) -> &mut Windows {
        &mut self.channel(channel).by_peer[peer as usize]
    }

    /// Takes a message, or counts it as refused.
    pub(super) fn take(&mut self, call: &mut Call<'_>) {
        let from = call.from();
        let message = if from < self.size { parse(call.args(), call.payload_len()).ok() } else { None };
        let is_taken = match message {
            Some(Message::Words { head, len, words }) => {
                self.take_data(from, head, |_| Body::Words(words, len))
            }
            Some(Message::Data(head)) => self.take_data(from, head, |arrived| arrived.keep(call)),
            Some(Message::Credits { channel, count }) => self.take_credits(channel, from, count),
            Some(Message::Leave) => {
                self.left[from as usize] = true;
                true
            }
            None => false,
        };
        self.refused += u64::from(!is_taken);
    }

    /// Takes a message of a program's, unless it is beyond its window.
    fn take_data(&mut self, from: Rank, head: Head, body: impl FnOnce(&mut Arrived) -> Body) -> bool {
        let Head { channel, credits, unlocked } = head;
        if self.windows(channel, from).held >= WINDOW || !self.take_credits(channel, from, credits) {
            return false;
        }
        self.unlocked[from as usize] = unlocked;
        let body = body(self);
        let channel = self.channel(channel);
        channel.by_peer[from as usize].held += 1;
        channel.queue.push_back(Received { from, body });
        true
    }

    /// Keeps a payload where it came, or copies it.
    fn keep(&mut self, call: &mut Call<'_>) -> Body {
        let kept = if self.kept < KEPT_MAX { call.take_payload().ok() } else { None };
        match kept {
            Some(payload) => {
                self.kept += 1;
                Body::Kept(payload)
            }
            None => {
                self.copied_bytes += call.payload_len() as u64;
                Body::Copied(copy_of_payload(call))
            }
        }
    }

    fn take_credits(&mut self, channel: u16, from: Rank, count: u32) -> bool {
        let windows = self.windows(channel, from);
        let is_sane = windows.may_send + count <= WINDOW;
        if is_sane {
            windows.may_send += count;
        }
        is_sane
    }

    /// The next message of a channel.
    pub(super) fn next(&mut self, channel: u16) -> Option<Received> {
        self.channel(channel).queue.pop_front()
    }

    /// Takes a place in the window to a peer, if there is one: the credits that go along.
    pub(super) fn take_place(&mut self, channel: u16, peer: Rank) -> Option<u32> {
        let windows = self.windows(channel, peer);
        windows.may_send = windows.may_send.checked_sub(1)?;
        let credits = windows.released;
        windows.released = 0;
        windows.held -= credits;
        Some(credits)
    }

    /// Gives back a place that nothing was sent in, and the credits.
    pub(super) fn give_place_back(&mut self, channel: u16, peer: Rank, credits: u32) {
        let windows = self.windows(channel, peer);
        windows.may_send += 1;
        windows.released += credits;
        windows.held += credits;
    }

    /// The program is done with a message: how many credits its sender is due now, if it is worth a message.
    pub(super) fn release(&mut self, channel: u16, received: Received) -> Option<u32> {
        match received.body {
            Body::Kept(payload) => {
                assert!(self.kept > 0, "what is released was kept");
                self.kept -= 1;
                drop(payload);
            }
            Body::Words(_, len) => self.copied_bytes += len as u64,
            Body::Copied(_) => {}
        }
        let windows = self.windows(channel, received.from);
        windows.released += 1;
        (windows.released >= WINDOW / 2).then_some(windows.released)
    }

    /// Messages of a peer that were released and are not given back yet.
    pub(super) fn due(&mut self, channel: u16, peer: Rank) -> u32 {
        self.windows(channel, peer).released
    }

    /// The peer has been told of so many credits.
    pub(super) fn give_credits(&mut self, channel: u16, peer: Rank, count: u32) {
        let windows = self.windows(channel, peer);
        windows.released -= count;
        windows.held -= count;
    }

    /// How many regions a peer had unlocked when it sent what came last.
    pub(super) fn unlocked(&self, peer: Rank) -> u64 {
        self.unlocked[peer as usize]
    }

    /// Whether that peer has ended in order.
    pub(super) fn has_left(&self, peer: Rank) -> bool {
        self.left[peer as usize]
    }
}
