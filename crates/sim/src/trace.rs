//! A run's digest: two runs with the same one have done the same things at the same times.
//!
//! It is made of words of 64 bits that are written out by hand, and of the bytes of messages: neither the
//! name of a type nor the order of its fields changes it. Each action has a number of its own, which stays.

use engine::{Nanos, Rank};

/// What happened. The numbers stay as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// A message reaches its receiver's card: its lane, the incarnations, its header, its payload.
    Arrive = 1,
    /// Whether the card lets it in.
    Admit = 2,
    /// A one-sided operation starts: what it is, and its pieces.
    Start = 3,
    /// A get reaches the card that has the bytes.
    Fetch = 4,
    /// The bytes of an operation reach the card that they are for.
    Land = 5,
    /// An operation's initiator learns how it ended.
    Report = 6,
    /// A process asks for a registration: its name, its bytes, and what becomes of it.
    Register = 7,
    /// A slow registration is over.
    Registered = 8,
    /// A process gives a registration up.
    Deregister = 9,
    /// That is over, where it was slow.
    Deregistered = 10,
    /// A process has the processor.
    Wake = 11,
    /// A process looks at its deadlines.
    Alarm = 12,
    /// A process learns that another is gone.
    Lose = 13,
    /// A process learns that another has given it up.
    HangUp = 14,
    /// A process learns that another has a rank that was lost.
    Introduce = 15,
    /// A rank begins anew.
    Restart = 16,
    /// A process polls again.
    Unmute = 17,
    /// Memory is mapped again.
    Remap = 18,
    /// A fault: which.
    Befall = 19,
}

/// Everything noted so far, and its order, as one number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trace(u64);

impl Trace {
    /// Notes that something happens. Its particulars follow by [`Trace::word`] and [`Trace::bytes`].
    pub(crate) fn note(&mut self, action: Action, at: Nanos, from: Rank, to: Rank) {
        self.word(action as u64);
        self.word(at);
        self.word(u64::from(from) << 32 | u64::from(to));
    }

    /// Notes one particular.
    #[inline]
    pub(crate) fn word(&mut self, word: u64) {
        // An odd number of which half of the bits are set, so that each bit of a word moves many of the sum.
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Notes these bytes, and how many there are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(note: impl Fn(&mut Trace)) -> u64 {
        let mut trace = Trace::default();
        note(&mut trace);
        trace.number()
    }

    #[test]
    fn the_digest_is_what_it_was() {
        let one = digest(|trace| {
            trace.note(Action::Arrive, 1_000, 2, 3);
            trace.bytes(b"nine bytes");
        });
        assert_eq!(one, 5606513973128917868);
    }

    #[test]
    fn what_where_when_and_each_byte_make_a_difference() {
        let of = |action, at, from, to, bytes: &[u8]| {
            digest(|trace| {
                trace.note(action, at, from, to);
                trace.bytes(bytes);
            })
        };
        let all = [
            of(Action::Arrive, 1, 2, 3, b""),
            of(Action::Land, 1, 2, 3, b""),
            of(Action::Arrive, 2, 2, 3, b""),
            of(Action::Arrive, 1, 3, 2, b""),
            of(Action::Arrive, 1, 2, 3, b"\0"),
            of(Action::Arrive, 1, 2, 3, b"\0\0"),
            of(Action::Arrive, 1, 2, 3, b"\0\0\0\0\0\0\0\0\x01"),
            of(Action::Arrive, 1, 2, 3, b"\0\0\0\0\0\0\0\x01"),
        ];
        let different: std::collections::BTreeSet<u64> = all.into_iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
