//! A peer that the network reaches, on whichever host: none of its memory is mapped here.

use std::sync::atomic::{AtomicBool, Ordering};

use engine::{HandlerKey, Rank};
use serde::{Deserialize, Serialize};

use super::attendance::Attendance;
use super::handlers::KnownHandlers;
use crate::transport::protocol::NetProtocol;
use crate::transport::shm::control::{ENDPOINT_MAX, HANDLERS_MAX};

/// This process's state of it. How messages and copies go there, its link knows.
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

/// The card of a process of another host. It shares nothing with this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Card {
    /// The version of the engine's messages that it speaks.
    pub(crate) messages: u8,
    /// The address of its endpoint in the network.
    pub(crate) endpoint: Vec<u8>,
    /// The endpoint's protocol.
    pub(crate) protocol: NetProtocol,
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
    /// Whether a node may say all this of itself; the error says what is wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        let Card { endpoint, handlers, directory, .. } = self;
        if handlers.len() > HANDLERS_MAX {
            return Err(format!("{} handlers; a node has at most {HANDLERS_MAX}", handlers.len()));
        }
        if endpoint.len() > ENDPOINT_MAX {
            let len = endpoint.len();
            return Err(format!("an endpoint's address of {len} bytes; it has at most {ENDPOINT_MAX}"));
        }
        if !directory.is_multiple_of(size_of::<u64>() as u64) {
            return Err(format!("a share of the directory at offset {directory:#x}, which no word has"));
        }
        Ok(())
    }

    /// Its handlers.
    pub(super) fn handlers(&self) -> Vec<HandlerKey> {
        self.handlers.iter().map(|(number, check)| HandlerKey { number: *number, check: *check }).collect()
    }
}
