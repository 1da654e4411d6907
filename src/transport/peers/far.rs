//! A peer that the network reaches, on whichever host: none of its memory is mapped here.

use std::sync::atomic::{AtomicBool, Ordering};

use engine::{HandlerKey, Rank};
use serde::{Deserialize, Serialize};

use super::attendance::Attendance;
use super::handlers::KnownHandlers;

/// What this process keeps of it. How messages and copies go there, its link knows.
pub(crate) struct Far {
    pub(crate) rank: Rank,
    /// The address of its endpoint in the network.
    pub(crate) endpoint: Box<[u8]>,
    /// Where its share of the directory lies in its heap.
    pub(crate) directory: u64,
    pub(crate) handlers: KnownHandlers,
    pub(super) attendance: Attendance,
    lost: AtomicBool,
}

impl Far {
    pub(super) fn new(
        rank: Rank,
        endpoint: Box<[u8]>,
        directory: u64,
        handlers: &[HandlerKey],
        unattended: bool,
    ) -> Far {
        let (handlers, lost) = (KnownHandlers::told_of(handlers), AtomicBool::new(false));
        Far { rank, endpoint, directory, handlers, attendance: Attendance::of(unattended), lost }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// From now on it is not reached.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }
}

/// What a process of another host has told of itself. It shares nothing with this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Card {
    /// The address of its endpoint in the network.
    pub(crate) endpoint: Vec<u8>,
    /// libfabric's name of the provider that the endpoint is of.
    pub(crate) provider: String,
    /// Its handlers, each by its number and its check.
    pub(crate) handlers: Vec<(u32, u32)>,
    /// Where its share of the directory lies in its heap.
    pub(crate) directory: u64,
    /// The lowest rank of its host, in a job.
    pub(crate) host: Rank,
    /// It is heard from whatever it does: it has a progress thread.
    pub(crate) attends: bool,
}

impl Card {
    /// Its handlers.
    pub(super) fn handlers(&self) -> Vec<HandlerKey> {
        self.handlers.iter().map(|(number, check)| HandlerKey { number: *number, check: *check }).collect()
    }
}
