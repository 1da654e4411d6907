//! What a live study's command asks of a job, and what that answers: a line each.

use serde::{Deserialize, Serialize};

/// What a job is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Case {
    /// Puts to random places of so much memory, each complete at its target before the next; once each place
    /// has been put to, so that what is registered has come to rest.
    Random {
        /// Bytes of a put.
        len: u64,
        /// Bytes of the memory that they go to.
        working_set: u64,
        /// How many are timed.
        puts: u64,
        /// Decides the places.
        seed: u64,
    },
    /// Puts, each complete at its target before the next, of which so many of a hundred go from one place to
    /// one place. The others go round many more, from and to a place of its own each; once round before any
    /// is timed.
    Mixture {
        /// Bytes of a put.
        len: u64,
        /// Puts to the one place, in percent.
        hits: u64,
        /// Places that the others go to.
        places: u64,
        /// How many are timed.
        puts: u64,
    },
    /// Active Messages there and back, of which those there have so many bytes of payload.
    RoundTrips {
        /// Bytes.
        payload: usize,
        /// How many are timed.
        times: u32,
    },
    /// Writes by bare libfabric, each complete at its target before the next.
    Writes {
        /// Bytes of each.
        len: usize,
        /// How many are timed.
        times: u32,
    },
    /// Registrations by bare libfabric, and their ends.
    Registrations {
        /// Pages of each.
        pages: usize,
        /// How many are timed.
        times: u32,
    },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// Of [`Case::Random`] and [`Case::Mixture`].
    Puts(Puts),
    /// What one took, in ns: a mean of [`Case::RoundTrips`] and [`Case::Writes`].
    Took(f64),
    /// What a registration and its end took, in ns: medians.
    Registered {
        /// To register.
        register_ns: f64,
        /// To deregister.
        deregister_ns: f64,
        /// Whether the provider takes local ends that are not registered.
        locally_free: bool,
    },
}

/// Puts that were timed, and what happened meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Puts {
    /// What one took on average, in ns.
    pub(crate) mean_ns: f64,
    /// How many.
    pub(crate) puts: u64,
    /// Those whose memory at the owner was not held: it had to be asked for.
    pub(crate) misses: u64,
    /// At the owner.
    pub(crate) owner: Owner,
}

/// What the owner of the memory counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    /// Registrations made.
    pub(crate) registrations: u64,
    /// Registrations that were wanted and there.
    pub(crate) found: u64,
    /// Registrations given up to make room.
    pub(crate) evictions: u64,
    /// Bytes registered now.
    pub(crate) registered_bytes: u64,
    /// The most bytes ever registered.
    pub(crate) registered_peak_bytes: u64,
    /// Bytes that the kernel counts as pinned by the process (`VmPin`).
    pub(crate) pinned_bytes: u64,
}

impl Owner {
    /// As words of a message.
    pub(crate) fn to_words(self) -> [u64; 6] {
        [
            self.registrations,
            self.found,
            self.evictions,
            self.registered_bytes,
            self.registered_peak_bytes,
            self.pinned_bytes,
        ]
    }

    /// From these words.
    pub(crate) fn from_words(words: [u64; 6]) -> Owner {
        let [registrations, found, evictions, registered_bytes, registered_peak_bytes, pinned_bytes] = words;
        Owner { registrations, found, evictions, registered_bytes, registered_peak_bytes, pinned_bytes }
    }

    /// What has happened since `before`; amounts are those of now.
    pub(crate) fn since(self, before: Owner) -> Owner {
        Owner {
            registrations: self.registrations - before.registrations,
            found: self.found - before.found,
            evictions: self.evictions - before.evictions,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survival::survive;

    #[test]
    fn what_is_asked_and_answered_arrives() {
        survive(vec![
            Case::Random { len: 8, working_set: 1 << 20, puts: 7, seed: 3 },
            Case::Mixture { len: 8, hits: 50, places: 3, puts: 7 },
            Case::RoundTrips { payload: 9, times: 2 },
        ]);
        let owner = Owner { registrations: 5, pinned_bytes: 4096, ..Owner::default() };
        assert_eq!(Owner::from_words(owner.to_words()), owner);
        survive(vec![Answer::Puts(Puts { mean_ns: 1.5, owner, ..Puts::default() }), Answer::Took(0.1)]);
    }

    #[test]
    fn events_are_counted_from_before_and_amounts_are_of_now() {
        let at =
            |registrations, registered_bytes| Owner { registrations, registered_bytes, ..Owner::default() };
        assert_eq!(at(9, 100).since(at(4, 700)), at(5, 100));
    }
}
