//! Near peers: whom shared memory reaches, their heaps as memory of this process, and a team of them.

use bytemuck::Pod;
use engine::Rank;
use engine::node::TeamId;

use crate::api::collective::team::Team;
use crate::api::node::Node;
use crate::base::error::Error;
use crate::base::pointers::GlobalPtr;
use crate::transport::peers::Peer;
use crate::transport::shm::copy::heap_fault;

/// Near peers.
impl Node {
    /// Whether shared memory reaches a peer: it runs on this host, and no network was chosen for it
    /// ([`Transport`](crate::Transport)). Of ranks of a job that is known before the first contact; of others
    /// from when they have come. This node is near to itself. Any thread, and handlers; it never waits.
    pub fn is_near(&self, peer: Rank) -> bool {
        let (own, peers) = (self.core.peers.own(), &self.core.peers);
        if peer < own.size { !peers.is_far(peer) } else { matches!(peers.known(peer), Some(Peer::Near(_))) }
    }

    /// The ranks of the job that are [near](Node::is_near), in rising order, this one included: whether they
    /// live is not looked at. Takes time in proportion to the job's size.
    pub fn near_ranks(&self) -> Vec<Rank> {
        (0..self.size()).filter(|rank| self.is_near(*rank)).collect()
    }

    /// The team of the job's ranks that are [near](Node::near_ranks), in their order. No message is sent to
    /// make it, and it is there as long as the node. Each call gives a handle on the same team, which meets
    /// only itself, and which other calls on other handles must keep in step with.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn near_team(&self) -> Result<Team, Error> {
        self.may_call("a team of near ranks")?;
        let (size, me) = self.core.engine().team(TeamId::NEAR).expect("it is made with the node");
        Ok(Team::new(self, TeamId::NEAR, size, me))
    }

    /// Where `len` values of a near peer's heap lie in this process, or of its own heap; `None` where the
    /// peer is far. That peer's memory itself is there: loads and stores reach it with nothing in between.
    ///
    /// The pointer may be used for as long as any handle on this node is there, closed or not, and whatever
    /// becomes of the peer. Others write there at the same time: only atomics (`AtomicU64::from_ptr` and the
    /// like) are sound unless the program knows that nobody does. After the peer has freed the block, it is
    /// another's memory, or reads as zeros.
    ///
    /// It connects at the first contact with the peer, which may wait; from then on it never does, and
    /// handlers may call it.
    ///
    /// # Errors
    /// [`Error::Fault`] where the values are not all in the live part of the heap. [`Error::Unaligned`] where
    /// the pointer is not aligned as a `T` must be. At the first contact what [`Node::connect`] says;
    /// [`Error::PeerLost`], [`Error::NoSuchPeer`].
    pub fn local_ptr<T: Pod>(&self, ptr: GlobalPtr<T>, len: usize) -> Result<Option<*mut T>, Error> {
        self.may_call("a local pointer")?;
        let Peer::Near(near) = self.core.peers.get(ptr.peer(), self.timeout)? else { return Ok(None) };
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        let heap = ptr.offset().checked_add(bytes).and_then(|end| near.heap_up_to(end));
        let heap = heap.ok_or_else(|| self.core.error_of(heap_fault(near, ptr.offset(), bytes)))?;
        let at = heap.base_addr() + ptr.offset();
        if !at.is_multiple_of(align_of::<T>() as u64) {
            let size = align_of::<T>() as u64;
            return Err(Error::Unaligned { peer: ptr.peer(), offset: ptr.offset(), size });
        }
        Ok(Some(std::ptr::with_exposed_provenance_mut(at as usize)))
    }
}
