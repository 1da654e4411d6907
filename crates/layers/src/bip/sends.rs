//! The one send that a process may have under way.

use standpipe::Rank;

use crate::bip::error::BipError;
use crate::bip::wire::SMALL_WORDS;

/// What stands in the low half of a send's number, where a receive's has its tag's place.
const MARK: u16 = u16::MAX;

/// A send that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Send {
    pub(super) id: i32,
    pub(super) peer: Rank,
    pub(super) tag: u32,
    pub(super) words: u32,
    /// Where the words lie in the program's memory.
    pub(super) addr: usize,
    /// Whether a short message's words are copied already: its lane was full.
    pub(super) is_copied: bool,
    /// Whether the peer has been told of it.
    pub(super) is_sent: bool,
}

impl Send {
    /// Whether the message is short: its send has ended when it is in the lane.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.words <= SMALL_WORDS
    }
}

/// A process's sends.
#[derive(Debug, Default)]
pub(super) struct Sends {
    count: u64,
    current: Option<Send>,
    /// How its receiver says that the last one failed: each call that asks is told, until the next begins.
    failed: Option<(i32, BipError)>,
}

/// Why a receiver refuses a long message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Its receive has room for so many words only.
    NoRoom { most: u32 },
    /// The sender has no memory there.
    NoSource,
}

impl Sends {
    /// Begins a send.
    #[inline]
    pub(super) fn begin(
        &mut self,
        (peer, tag): (Rank, u32),
        (addr, words): (usize, u32),
    ) -> Result<Send, BipError> {
        if let Some(current) = &self.current {
            return Err(BipError::SendPending { id: current.id });
        }
        self.count += 1;
        self.failed = None;
        let send = Send { id: id_of(self.count), peer, tag, words, addr, is_copied: false, is_sent: false };
        self.current = Some(send);
        Ok(send)
    }

    /// The send whose peer has not been told of it.
    #[inline]
    pub(super) fn unsent(&self) -> Option<Send> {
        self.current.filter(|send| !send.is_sent)
    }

    /// The peer has the message, or has been told where a long one lies.
    #[inline]
    pub(super) fn sent(&mut self) {
        if let Some(send) = &mut self.current {
            send.is_sent = true;
            if send.is_short() {
                self.current = None;
            }
        }
    }

    /// The lane of the message that was tried is full: a short one's copy is kept.
    pub(super) fn found_lane_full(&mut self) {
        if let Some(send) = &mut self.current {
            send.is_copied = send.is_short();
        }
    }

    /// A peer says that it has got a long message, or why not. `false`: it was sent none by that number.
    pub(super) fn finish(&mut self, peer: Rank, number: u32, refusal: Option<Refusal>) -> bool {
        let is_it = |send: &mut Send| send.is_sent && send.peer == peer && send.id as u32 == number;
        let Some(Send { id, tag, words, addr, .. }) = self.current.take_if(is_it) else { return false };
        let addr = addr as u64;
        let error = refusal.map(|refusal| match refusal {
            Refusal::NoRoom { most } => BipError::NoRoom { node: peer, tag, words, most },
            Refusal::NoSource => BipError::NoSource { node: peer, tag, addr, words },
        });
        self.failed = error.map(|error| (id, error));
        true
    }

    /// The send that has not ended.
    pub(super) fn current(&self) -> Option<Send> {
        self.current
    }

    /// Gives up the send that has not ended.
    pub(super) fn abandon(&mut self) {
        self.current = None;
    }

    /// Whether the send of that number has ended. All but the last have.
    ///
    /// # Errors
    /// [`BipError::NoSuchSend`]; how it failed, where its receiver has told and no send was begun since.
    #[inline]
    pub(super) fn is_over(&self, id: i32) -> Result<bool, BipError> {
        if let Some((_, error)) = self.failed.as_ref().filter(|(failed, _)| *failed == id) {
            return Err(error.clone());
        }
        if let Some(current) = &self.current
            && current.id == id
        {
            return Ok(false);
        }
        let (generation, mark) = ((id >> 16) as u64, id as u16);
        let was = id > 0
            && mark == MARK
            && generation != 0
            && (self.count > GENERATIONS || generation <= self.count);
        if was { Ok(true) } else { Err(BipError::NoSuchSend { id }) }
    }
}

const GENERATIONS: u64 = 0x7fff;

fn id_of(count: u64) -> i32 {
    let generation = (count - 1) % GENERATIONS + 1;
    (generation as i32) << 16 | i32::from(MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: u32 = SMALL_WORDS + 1;

    #[test]
    fn there_is_one_send_at_a_time() {
        let mut sends = Sends::default();
        let first = sends.begin((1, 2), (64, SMALL_WORDS)).expect("none is under way");
        assert_eq!(sends.begin((1, 2), (64, 1)), Err(BipError::SendPending { id: first.id }));
        assert_eq!((sends.unsent(), sends.is_over(first.id)), (Some(first), Ok(false)));
        sends.sent();
        assert_eq!((sends.unsent(), sends.is_over(first.id)), (None, Ok(true)));
        let second = sends.begin((1, 2), (64, 1)).expect("the first has ended");
        assert!(second.id != first.id && sends.is_over(first.id) == Ok(true));
    }

    #[test]
    fn a_long_one_ends_when_its_receiver_says_so() {
        let mut sends = Sends::default();
        let send = sends.begin((1, 2), (64, LONG)).expect("none is under way");
        let number = send.id as u32;
        let got = |sends: &mut Sends, peer, number| sends.finish(peer, number, None);
        assert!(!got(&mut sends, 1, number), "nobody has been told of it");
        sends.sent();
        assert_eq!((sends.unsent(), sends.is_over(send.id)), (None, Ok(false)));
        assert!(!got(&mut sends, 2, number), "another peer");
        assert!(!got(&mut sends, 1, number + 1), "another number");
        assert!(got(&mut sends, 1, number));
        assert!(!got(&mut sends, 1, number), "once");
        assert_eq!(sends.is_over(send.id), Ok(true));
    }

    #[test]
    fn a_long_one_that_its_receiver_refuses_has_failed() {
        let mut sends = Sends::default();
        let no_room = BipError::NoRoom { node: 1, tag: 2, words: LONG, most: 7 };
        let no_source = BipError::NoSource { node: 1, tag: 2, addr: 64, words: LONG };
        for (refusal, error) in [(Refusal::NoRoom { most: 7 }, no_room), (Refusal::NoSource, no_source)] {
            let send = sends.begin((1, 2), (64, LONG)).expect("none is under way");
            sends.sent();
            assert!(sends.finish(1, send.id as u32, Some(refusal)));
            for _ in 0..2 {
                assert_eq!(sends.is_over(send.id), Err(error.clone()), "asked again, it says the same");
            }
        }
    }

    #[test]
    fn numbers_that_no_send_gave_are_refused() {
        let mut sends = Sends::default();
        let mark = i32::from(MARK);
        for id in [0, -1, 1, mark, 1 << 16 | mark, i32::MIN, i32::MAX] {
            assert_eq!(sends.is_over(id), Err(BipError::NoSuchSend { id }));
        }
        for _ in 0..GENERATIONS {
            let id = sends.begin((1, 2), (64, 0)).expect("none is under way").id;
            assert!(id > 0);
            sends.sent();
        }
        let again = sends.begin((1, 2), (64, 0)).expect("none is under way").id;
        assert_eq!(again, 1 << 16 | mark, "numbers begin again");
        assert_eq!((sends.is_over(again), sends.is_over(2 << 16 | mark)), (Ok(false), Ok(true)));
    }
}
