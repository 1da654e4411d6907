//! What travels in a message, and how it is read from the four words and the payload of ours.

/// The address of a function of the program, which is the same in all its processes. Its bit 62 is clear: the
/// layer has a use for it in messages. No address of a process has it.
pub type Function = u64;

/// What a handler is called with, beside the sender.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Arguments<'a> {
    /// Zero to four words (`am_request_0` to `am_request_4`).
    Words(&'a [u64]),
    /// Two words and a double (`am_request_df`).
    WordsDouble(u64, u64, f64),
    /// A double and two words (Berkeley's `gam_request_fd`).
    DoubleWords(f64, u64, u64),
    /// Bytes in a buffer of the system, there while the handler runs, and two words (Berkeley's
    /// `gam_request`).
    Medium(&'a [u8], u64, u64),
    /// Memory of this process where a store's bytes lie now, how many, and the program's argument.
    Memory {
        /// Where they begin.
        addr: u64,
        /// How many.
        len: usize,
        /// What the sender passes.
        arg: u64,
    },
}

/// Set beside the function where an empty reply to the message may be kept back for a while. No address of a
/// process's own has this bit.
pub(super) const MAY_WAIT: u64 = 1 << 62;

/// Kinds of messages: each is a handler of ours, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
#[non_exhaustive]
pub enum Kind {
    /// No word.
    Words0,
    /// One.
    Words1,
    /// Two.
    Words2,
    /// Three: as many as travel beside the function.
    Words3,
    /// Four, the last in the payload.
    Words4,
    /// Two words and a double.
    WordsDouble,
    /// A double and two words.
    DoubleWords,
    /// A payload and two words.
    Medium,
    /// A payload that lies in place.
    Store,
    /// Nothing. As a reply it stands for the empty replies to as many requests as its first word says.
    Null,
    /// The same empty replies, in a request that takes no credit and has no reply.
    Returned,
    /// Its sender leaves, and waits for all replies. It takes no credit itself.
    Leave,
}

impl Kind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Kind; 12] = [
        Kind::Words0,
        Kind::Words1,
        Kind::Words2,
        Kind::Words3,
        Kind::Words4,
        Kind::WordsDouble,
        Kind::DoubleWords,
        Kind::Medium,
        Kind::Store,
        Kind::Null,
        Kind::Returned,
        Kind::Leave,
    ];

    /// The name that its handler is registered under.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Words0 => "words 0",
            Kind::Words1 => "words 1",
            Kind::Words2 => "words 2",
            Kind::Words3 => "words 3",
            Kind::Words4 => "words 4",
            Kind::WordsDouble => "words, double",
            Kind::DoubleWords => "double, words",
            Kind::Medium => "medium",
            Kind::Store => "store",
            Kind::Null => "null",
            Kind::Returned => "returned",
            Kind::Leave => "leave",
        }
    }

    /// The kind of a message with so many words and nothing else; `None` beyond four.
    #[inline]
    fn of_words(count: usize) -> Option<Kind> {
        [Kind::Words0, Kind::Words1, Kind::Words2, Kind::Words3, Kind::Words4].get(count).copied()
    }
}

/// A message that no library of ours sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of kind {kind:?} with {payload} bytes of payload, which is none of this layer's")]
#[doc(hidden)]
pub struct Malformed {
    kind: Kind,
    payload: usize,
}

/// A message as it came: which function is to run, with which words of its own.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub struct Message<'a> {
    /// The function. Of [`Kind::Null`] and [`Kind::Returned`] it is the number of replies, and of
    /// [`Kind::Leave`] nothing.
    pub function: Function,
    /// Whether an empty reply to it may be kept back.
    pub may_wait: bool,
    words: [u64; 4],
    kind: Kind,
    payload: &'a [u8],
    landed: Option<(u64, usize)>,
}

impl<'a> Message<'a> {
    /// Reads one. `landed` is where a long message's payload lies, and its length.
    ///
    /// # Errors
    /// [`Malformed`] where payload and kind do not belong together.
    #[inline]
    pub fn parse(
        kind: Kind,
        args: [u64; 4],
        payload: &'a [u8],
        landed: Option<(u64, usize)>,
    ) -> Result<Message<'a>, Malformed> {
        let [function, a, b, c] = args;
        let malformed = Malformed { kind, payload: payload.len() };
        let fourth = match kind {
            Kind::Words4 => u64::from_ne_bytes(payload.try_into().map_err(|_| malformed)?),
            Kind::Medium => 0,
            _ if payload.is_empty() => 0,
            _ => return Err(malformed),
        };
        if landed.is_some() != (kind == Kind::Store) {
            return Err(malformed);
        }
        let runs_nothing = matches!(kind, Kind::Null | Kind::Returned | Kind::Leave);
        let (function, may_wait) = match runs_nothing {
            true => (function, false),
            false => (function & !MAY_WAIT, function & MAY_WAIT != 0),
        };
        Ok(Message { function, may_wait, words: [a, b, c, fourth], kind, payload, landed })
    }

    /// How many requests it replies to, of a message that does nothing else.
    #[inline]
    pub fn returns(&self) -> Option<u64> {
        matches!(self.kind, Kind::Null | Kind::Returned).then_some(self.function)
    }

    /// What its handler is called with; nothing, for a message that is about credits only.
    #[inline]
    pub fn arguments(&self) -> Option<Arguments<'_>> {
        let [a, b, c, _] = self.words;
        Some(match self.kind {
            Kind::Words0 => Arguments::Words(&self.words[..0]),
            Kind::Words1 => Arguments::Words(&self.words[..1]),
            Kind::Words2 => Arguments::Words(&self.words[..2]),
            Kind::Words3 => Arguments::Words(&self.words[..3]),
            Kind::Words4 => Arguments::Words(&self.words),
            Kind::WordsDouble => Arguments::WordsDouble(a, b, f64::from_bits(c)),
            Kind::DoubleWords => Arguments::DoubleWords(f64::from_bits(a), b, c),
            Kind::Medium => Arguments::Medium(self.payload, a, b),
            Kind::Store => {
                let (addr, len) = self.landed?;
                Arguments::Memory { addr, len, arg: a }
            }
            Kind::Null | Kind::Returned | Kind::Leave => return None,
        })
    }
}

/// A message to be sent: its kind, its words, and what of it must go as payload.
pub(super) struct Outgoing {
    pub(super) kind: Kind,
    pub(super) args: [u64; 4],
    pub(super) fourth: Option<[u8; 8]>,
}

impl Outgoing {
    /// The message that has `function` called with these arguments; `None` for those that have a payload of
    /// the user's, or more than four words.
    #[inline]
    pub(super) fn of(function: Function, arguments: &Arguments<'_>) -> Option<Outgoing> {
        let (kind, [a, b, c], fourth) = match *arguments {
            Arguments::Words(words) => {
                let kind = Kind::of_words(words.len())?;
                let mut all = [0; 4];
                all[..words.len()].copy_from_slice(words);
                let [a, b, c, d] = all;
                (kind, [a, b, c], (kind == Kind::Words4).then(|| d.to_ne_bytes()))
            }
            Arguments::WordsDouble(a, b, value) => (Kind::WordsDouble, [a, b, value.to_bits()], None),
            Arguments::DoubleWords(value, a, b) => (Kind::DoubleWords, [value.to_bits(), a, b], None),
            Arguments::Medium(..) | Arguments::Memory { .. } => return None,
        };
        Some(Outgoing { kind, args: [function, a, b, c], fourth })
    }

    /// The payload that goes with it.
    #[inline]
    pub(super) fn payload(&self) -> &[u8] {
        self.fourth.as_ref().map_or(&[], |bytes| &bytes[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(arguments: Arguments<'_>) {
        let outgoing = Outgoing::of(0x4000, &arguments).expect("a message without a payload of the user's");
        let message = Message::parse(outgoing.kind, outgoing.args, outgoing.payload(), None).expect("whole");
        assert_eq!(message.function, 0x4000);
        assert_eq!(message.arguments(), Some(arguments));
    }

    #[test]
    fn what_is_sent_is_what_the_handler_gets() {
        let words = [1, u64::MAX, 3, 1 << 63];
        (0..=4).for_each(|count| there_and_back(Arguments::Words(&words[..count])));
        there_and_back(Arguments::WordsDouble(u64::MAX, 7, -0.5));
        there_and_back(Arguments::DoubleWords(f64::INFINITY, u64::MAX, 1 << 63));
    }

    #[test]
    fn a_kind_stands_at_its_own_number_and_has_a_name_of_its_own() {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert!(Kind::ALL[..number].iter().all(|other| other.name() != kind.name()), "{kind:?}");
        }
    }

    #[test]
    fn a_message_says_whether_its_reply_may_wait() {
        for kind in Kind::ALL {
            let (payload, landed) = match kind {
                Kind::Words4 => (&[0; 8][..], None),
                Kind::Store => (&[][..], Some((0x1000, 16))),
                _ => (&[][..], None),
            };
            let parse = |function| Message::parse(kind, [function, 0, 0, 0], payload, landed).expect("whole");
            let (waits, plain) = (parse(0x4000 | MAY_WAIT), parse(0x4000));
            let runs_nothing = plain.arguments().is_none();
            assert_eq!((waits.may_wait, plain.may_wait), (!runs_nothing, false), "{kind:?}");
            assert_eq!(waits.function == plain.function, !runs_nothing, "{kind:?}");
        }
    }

    #[test]
    fn five_words_are_no_message() {
        assert!(Outgoing::of(1, &Arguments::Words(&[0; 5])).is_none());
    }

    #[test]
    fn payloads_that_do_not_belong_to_their_kind_are_refused() {
        for kind in Kind::ALL {
            for len in [0, 1, 7, 8, 9, 4096] {
                let fits = match kind {
                    Kind::Words4 => len == 8,
                    Kind::Medium => true,
                    Kind::Store => false,
                    _ => len == 0,
                };
                let payload = vec![0; len];
                let parsed = Message::parse(kind, [0; 4], &payload, None);
                assert_eq!(parsed.is_ok(), fits, "{kind:?} with {len} bytes");
            }
            let stored = Message::parse(kind, [0; 4], &[], Some((0x1000, 16)));
            assert_eq!(stored.is_ok(), kind == Kind::Store, "{kind:?} that has landed");
        }
    }
}
