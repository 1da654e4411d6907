//! An exchange over a launcher's store of texts by key.

use std::time::Instant;

use super::common::{Exchange, ExchangeError};
use crate::job::plumbing::secret::to_hex;

/// A launcher's store for the processes of a job: short texts, by key.
pub(crate) trait Store: Send + Sync {
    /// The launcher, for messages.
    const LAUNCHER: &'static str;

    /// As [`Exchange::may_leave_early`].
    const LEAVES_EARLY: bool;

    fn rank(&self) -> u32;

    fn size(&self) -> u32;

    /// The longest text, in bytes.
    fn text_max(&self) -> usize;

    /// Leaves a text, for others to find after the next fence. Each process leaves it under keys of its own.
    fn put(&mut self, key: &str, text: &str, deadline: Instant) -> Result<(), ExchangeError>;

    /// Waits until all have come.
    fn fence(&mut self, deadline: Instant) -> Result<(), ExchangeError>;

    /// The text that process `rank` has left.
    fn get(&mut self, rank: u32, key: &str, deadline: Instant) -> Result<String, ExchangeError>;
}

/// The exchange over such a store: bytes as hexadecimal digits, in as many texts as it takes.
pub(crate) struct Stored<S> {
    store: S,
    round: u32,
}

impl<S: Store> Stored<S> {
    pub(crate) fn new(store: S) -> Stored<S> {
        Stored { store, round: 0 }
    }

    fn key(&self, rank: u32, part: usize) -> String {
        format!("standpipe-{}-{rank}-{part}", self.round)
    }

    fn put(&mut self, own: &[u8], deadline: Instant) -> Result<(), ExchangeError> {
        let rank = self.store.rank();
        let digits = to_hex(own);
        let mut parts = digits.as_bytes().chunks(self.store.text_max());
        // How many digits follow goes ahead of them.
        self.store.put(&self.key(rank, 0), &digits.len().to_string(), deadline)?;
        parts.try_fold(1, |part, text| {
            let text = std::str::from_utf8(text).expect("digits");
            self.store.put(&self.key(rank, part), text, deadline).map(|()| part + 1)
        })?;
        Ok(())
    }

    fn get(&mut self, rank: u32, deadline: Instant) -> Result<Vec<u8>, ExchangeError> {
        let head = self.store.get(rank, &self.key(rank, 0), deadline)?;
        let garbled = |command: &str, answer: &str| ExchangeError::Answer {
            launcher: S::LAUNCHER,
            command: format!("get {command}"),
            answer: answer.to_owned(),
        };
        let wanted: usize = head.parse().map_err(|_| garbled(&self.key(rank, 0), &head))?;
        let mut digits = String::new();
        for part in 1.. {
            if digits.len() >= wanted {
                break;
            }
            let key = self.key(rank, part);
            let text = self.store.get(rank, &key, deadline)?;
            if text.is_empty() {
                return Err(garbled(&key, &text));
            }
            digits.push_str(&text);
        }
        from_digits(&digits)
            .filter(|_| digits.len() == wanted)
            .ok_or_else(|| garbled(&self.key(rank, 0), &head))
    }
}

impl<S: Store> Exchange for Stored<S> {
    fn rank(&self) -> u32 {
        self.store.rank()
    }

    fn size(&self) -> u32 {
        self.store.size()
    }

    fn may_leave_early(&self) -> bool {
        S::LEAVES_EARLY
    }

    fn all_gather(&mut self, own: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.put(own, deadline)?;
        self.store.fence(deadline)?;
        let all = (0..self.store.size()).map(|rank| self.get(rank, deadline)).collect();
        self.round += 1;
        all
    }
}

fn from_digits(digits: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| Some(nibble(pair[0])? << 4 | nibble(pair[1])?);
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::{Arc, Barrier, Mutex};

    use super::*;

    struct Shared {
        texts: Mutex<HashMap<String, String>>,
        fence: Barrier,
    }

    struct Seat(Arc<Shared>, u32);

    impl Store for Seat {
        const LAUNCHER: &'static str = "a test";
        const LEAVES_EARLY: bool = false;

        fn rank(&self) -> u32 {
            self.1
        }

        fn size(&self) -> u32 {
            2
        }

        fn text_max(&self) -> usize {
            5
        }

        fn put(&mut self, key: &str, text: &str, _: Instant) -> Result<(), ExchangeError> {
            assert!(text.len() <= 5, "{text}");
            let old = self.0.texts.lock().expect("no panic").insert(key.to_owned(), text.to_owned());
            assert_eq!(old, None, "{key} twice");
            Ok(())
        }

        fn fence(&mut self, _: Instant) -> Result<(), ExchangeError> {
            self.0.fence.wait();
            Ok(())
        }

        fn get(&mut self, _: u32, key: &str, _: Instant) -> Result<String, ExchangeError> {
            Ok(self.0.texts.lock().expect("no panic").get(key).cloned().unwrap_or_default())
        }
    }

    #[test]
    fn whatever_is_told_arrives_in_each_round() {
        let shared = Arc::new(Shared { texts: Mutex::default(), fence: Barrier::new(2) });
        let told = |rank: u32| -> [Vec<u8>; 3] {
            [vec![], vec![rank as u8; 1 + rank as usize], (0..=255).map(|n| n ^ rank as u8).collect()]
        };
        let ends = [0, 1].map(|rank| {
            let mut seat = Stored::new(Seat(Arc::clone(&shared), rank));
            std::thread::spawn(move || {
                told(rank).map(|own| seat.all_gather(&own, Instant::now()).expect("nothing fails"))
            })
        });
        for end in ends {
            let heard = end.join().expect("no panic");
            for (round, all) in heard.iter().enumerate() {
                assert_eq!(*all, [told(0)[round].clone(), told(1)[round].clone()]);
            }
        }
    }

    #[test]
    fn what_is_cut_short_or_no_digits_is_no_answer() {
        for texts in
            [vec![("standpipe-0-0-0", "x")], vec![("standpipe-0-0-0", "4"), ("standpipe-0-0-1", "abc")]]
        {
            let texts = texts.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
            let shared = Arc::new(Shared { texts: Mutex::new(texts), fence: Barrier::new(1) });
            let result = Stored::new(Seat(shared, 1)).get(0, Instant::now());
            assert!(matches!(result, Err(ExchangeError::Answer { .. })), "{result:?}");
        }
    }
}
