//! The node's calls about the job's barrier; what is done with these is in [`barrier`](crate::node::barrier).

use crate::node::Node;
use crate::op_id::OpId;
use crate::{Nanos, Transport};

impl<T: Transport> Node<T> {
    /// Arrives at the next barrier, or waits on for the one whose wait ended early by timeout or
    /// cancellation. The outcome is `Ok` once every rank has arrived, and [`OpError::PeerLost`] if one cannot
    /// come any more, then and ever after. The barrier is that of the processes that the job began with, and
    /// a process that takes the place of a lost one has none.
    ///
    /// Call it again only after the outcome of the call before.
    ///
    /// [`OpError::PeerLost`]: crate::OpError::PeerLost
    pub fn barrier(&mut self, deadline: Option<Nanos>) -> OpId {
        let (barrier, mut lent) = self.barrier_lent();
        let op = barrier.wait(&mut lent, deadline);
        self.work();
        op
    }

    /// Arrives at the next barrier without an operation, or is there already: for whoever polls for it
    /// anyway, and asks [`Node::is_open`] of the barrier that is returned, between polls. [`Node::barrier`]
    /// waits on for the same one, unless it is open by then. `None`: there is nothing to poll for.
    pub fn arrive_polling(&mut self) -> Option<u64> {
        let (barrier, mut lent) = self.barrier_lent();
        let epoch = barrier.arrive_at_next(&mut lent);
        self.work();
        epoch
    }

    /// Whether that barrier, which this rank has arrived at, is open. It is passed then.
    pub fn is_open(&mut self, epoch: u64) -> bool {
        let (barrier, mut lent) = self.barrier_lent();
        let is_open = barrier.is_open(&mut lent, epoch);
        if is_open {
            self.work();
        }
        is_open
    }

    /// Tells all others again which barrier has opened last: for the counter's keeper, before it leaves and
    /// takes that with it. Somebody may still wait for the word of whoever came last.
    pub fn retell_barrier(&mut self) {
        let (barrier, mut lent) = self.barrier_lent();
        barrier.retell(&mut lent);
    }
}
