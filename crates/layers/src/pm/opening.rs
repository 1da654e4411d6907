//! Opening PM, its contexts, and its end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use standpipe::{AllMemory, GlobalPtr, Node};

use super::arrived::Arrived;
use super::error::PmError;
use super::locks::{LockBy, Locks};
use super::transfers::Transfers;
use super::wire::{CHANNELS_MAX, Message, WORDS_MAX};
use super::{Context, Launched, Pm, Started, State};

/// What PM's names begin with among others'.
const NAMESPACE: &str = "pm";

/// How long the end of PM waits for the network to take the rest.
const LINGER: Duration = Duration::from_secs(5);

/// Why PM cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmOpenError {
    /// A call to the other processes failed.
    #[error(transparent)]
    Node(#[from] standpipe::Error),
    /// The heap has no room for the table of locked memory.
    #[error(transparent)]
    Heap(#[from] standpipe::HeapError),
}

impl Pm {
    /// Opens PM on a node of its own client, whose progress is [`Off`](standpipe::ProgressThread::Off). All
    /// processes of the job do, and wait for each other.
    ///
    /// # Errors
    /// See [`PmOpenError`].
    pub fn open(node: Node, memory: AllMemory, by: LockBy) -> Result<Pm, PmOpenError> {
        let arrived = Arc::new(Mutex::new(Arrived::new(node.size())));
        let taking = Arc::clone(&arrived);
        let handler = node.register(NAMESPACE, "message", move |call| {
            taking.lock().unwrap_or_else(PoisonError::into_inner).take(call);
        })?;
        // Before they meet: after that, one may have left already.
        for peer in 0..node.size() {
            node.connect(peer)?;
        }
        let mut locks = Locks::new(&node, by)?;
        let mut tables = vec![[0_u64; 2]; node.size() as usize];
        // It is a barrier as well: all have registered once anybody has them.
        node.world_of(NAMESPACE)?.all_gather(&[locks.place().to_words()], &mut tables)?;
        locks.learn(tables.into_iter().map(GlobalPtr::from_words).collect());
        Ok(Pm {
            node,
            memory,
            handler,
            arrived,
            contexts: (0..CHANNELS_MAX).map(|_| None).collect(),
            launched: Launched::default(),
            due: Vec::new(),
            locks,
            transfers: Transfers::default(),
            ended: Vec::new(),
            idle: 0,
            is_reset: false,
            are_alone: false,
            refused_told: 0,
        })
    }

    /// Opens the context of a channel. What has come there before is there.
    ///
    /// # Errors
    /// [`PmError::Invalid`] for [`CHANNELS_MAX`] and beyond, [`PmError::Busy`] where it is open.
    pub fn open_context(&mut self, channel: u16, is_composite: bool) -> Result<Context, PmError> {
        let state = self.contexts.get_mut(usize::from(channel)).ok_or(PmError::Invalid)?;
        if state.is_some() {
            return Err(PmError::Busy);
        }
        *state = Some(State {
            is_composite,
            sending: None,
            short_out: vec![0; WORDS_MAX / size_of::<u64>()],
            short_in: vec![0; WORDS_MAX / size_of::<u64>()],
            pending: VecDeque::new(),
            received: None,
            failed: [None; 3],
            written: Vec::new(),
        });
        Ok(Context(channel))
    }

    /// Closes a context: a buffer that was not sent is given back, a message that was received is released.
    ///
    /// # Errors
    /// [`PmError::Invalid`] where it is not open; [`PmError::Busy`] while something that it launched or
    /// started is under way, after it has made progress.
    pub fn close_context(&mut self, context: Context) -> Result<(), PmError> {
        if self.is_busy(context)? {
            return Err(PmError::Busy);
        }
        if self.state(context)?.received.is_some() {
            self.release(context)?;
        }
        self.contexts[usize::from(context.0)] = None;
        Ok(())
    }

    /// Whether something that the context launched or started is under way; makes progress first.
    ///
    /// # Errors
    /// [`PmError::Invalid`] where it is not open.
    pub fn is_busy(&mut self, context: Context) -> Result<bool, PmError> {
        self.progress();
        let all = [Started::Sends, Started::Writes, Started::Reads];
        all.into_iter().try_fold(false, |is_busy, started| Ok(is_busy | !self.has_ended(context, started)?))
    }

    /// Sends what waits to be sent, tells the peers that this process leaves in order, and lets go of the
    /// node. What was launched arrives: this waits until its receivers have taken it, have left or are lost,
    /// and takes nothing for itself meanwhile but drops what comes. Gives the number of messages that it
    /// dropped because their receivers are gone.
    pub fn close(mut self) -> u64 {
        let before = self.launched.dropped;
        while self.launched.pending > 0 || !self.transfers.is_empty() {
            self.discard();
            self.progress();
        }
        let own = self.node.rank();
        for peer in (0..self.node.size()).filter(|peer| *peer != own) {
            while !self.is_gone(peer) {
                match self.node.try_request(peer, self.handler, Message::Leave.words()) {
                    Ok(false) => {
                        self.discard();
                        self.progress();
                    }
                    Ok(true) | Err(_) => break,
                }
            }
        }
        let dropped = self.launched.dropped - before;
        let Pm { node, locks, transfers, contexts, .. } = self;
        drop((contexts, transfers));
        // A failure here is a peer's that is gone: there is nobody to tell.
        let _ = node.close(LINGER);
        drop(locks);
        dropped
    }
}
