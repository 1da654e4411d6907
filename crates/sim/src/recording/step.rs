//! One thing that a rank did, and how it is written down.

use serde::{Deserialize, Serialize};

/// What a rank did, and how long it computed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// Processor time between the end of the rank's last step and the start of this one, in nanoseconds.
    pub compute_ns: u64,
    /// What it did then.
    pub action: Action,
}

/// What a rank did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// It put bytes into a peer's memory.
    Put(Transfer),
    /// It got bytes out of a peer's memory.
    Get(Transfer),
    /// It waited for all ranks to come to the same barrier.
    Barrier,
    /// It gave a peer a signal.
    Signal {
        /// The rank that gets it.
        peer: u32,
    },
    /// It waited for a signal of a peer, and used it up.
    Wait {
        /// The rank that gives it.
        peer: u32,
    },
}

/// Bytes between this rank and another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The other rank.
    pub peer: u32,
    /// The address in the peer's address space.
    pub remote: u64,
    /// The address in this rank's address space.
    pub local: u64,
    /// How many bytes, at least one.
    pub len: u64,
}

/// No step takes more bytes: a kind, four numbers of 64 bits and one of 32, at most 7 bits of each in a byte.
pub const STEP_BYTES_MAX: usize = 1 + 4 * 10 + 5;

/// A step as it lies in the file.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Stored {
    Put { compute_ns: u64, peer: u32, remote: i64, local: i64, len: u64 },
    Get { compute_ns: u64, peer: u32, remote: i64, local: i64, len: u64 },
    Barrier { compute_ns: u64 },
    Signal { compute_ns: u64, peer: u32 },
    Wait { compute_ns: u64, peer: u32 },
}

/// Where a rank's last transfer ended, at both ends: what the next one's addresses are counted from.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    remote: u64,
    local: u64,
}

impl Cursor {
    /// Writes the next step into `buffer` and gives the part used.
    pub(super) fn encode<'a>(&mut self, step: &Step, buffer: &'a mut [u8; STEP_BYTES_MAX]) -> &'a [u8] {
        let compute_ns = step.compute_ns;
        let stored = match step.action {
            Action::Put(Transfer { peer, remote, local, len }) => {
                let (remote, local) = self.distances(remote, local, len);
                Stored::Put { compute_ns, peer, remote, local, len }
            }
            Action::Get(Transfer { peer, remote, local, len }) => {
                let (remote, local) = self.distances(remote, local, len);
                Stored::Get { compute_ns, peer, remote, local, len }
            }
            Action::Barrier => Stored::Barrier { compute_ns },
            Action::Signal { peer } => Stored::Signal { compute_ns, peer },
            Action::Wait { peer } => Stored::Wait { compute_ns, peer },
        };
        postcard::to_slice(&stored, buffer).expect("the buffer has room for the longest step")
    }

    /// Reads the next step from the start of `bytes`; gives it and how many bytes it takes, `None` if none is
    /// there.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> Option<(Step, usize)> {
        let (stored, rest) = postcard::take_from_bytes::<Stored>(bytes).ok()?;
        let (compute_ns, action) = match stored {
            Stored::Put { compute_ns, peer, remote, local, len } => {
                (compute_ns, Action::Put(self.transfer(peer, remote, local, len)))
            }
            Stored::Get { compute_ns, peer, remote, local, len } => {
                (compute_ns, Action::Get(self.transfer(peer, remote, local, len)))
            }
            Stored::Barrier { compute_ns } => (compute_ns, Action::Barrier),
            Stored::Signal { compute_ns, peer } => (compute_ns, Action::Signal { peer }),
            Stored::Wait { compute_ns, peer } => (compute_ns, Action::Wait { peer }),
        };
        Some((Step { compute_ns, action }, bytes.len() - rest.len()))
    }

    fn distances(&mut self, remote: u64, local: u64, len: u64) -> (i64, i64) {
        let distances = (remote.wrapping_sub(self.remote), local.wrapping_sub(self.local));
        self.advance(remote, local, len);
        (distances.0.cast_signed(), distances.1.cast_signed())
    }

    fn transfer(&mut self, peer: u32, remote: i64, local: i64, len: u64) -> Transfer {
        let remote = self.remote.wrapping_add_signed(remote);
        let local = self.local.wrapping_add_signed(local);
        self.advance(remote, local, len);
        Transfer { peer, remote, local, len }
    }

    /// Wraps where a transfer does, which the reader then refuses by itself.
    fn advance(&mut self, remote: u64, local: u64, len: u64) {
        self.remote = remote.wrapping_add(len);
        self.local = local.wrapping_add(len);
    }
}
