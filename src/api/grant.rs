//! Grants: memory that peers reach by a name, until its owner revokes it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use engine::{GRANT_BYTES, GRANTS_MAX, GrantId, Granted, NotGranted, Rank, Rights};

use crate::api::collective::team::Team;
use crate::api::node::Node;
use crate::api::ops::buffer::{Buffer, GetBuffer, PutBuffer};
use crate::base::code::{Code, into_io_error};
use crate::base::debug_is_display::debug_is_display;
use crate::base::error::Error;
use crate::base::grant_name::GrantName;
use crate::runtime::core::NodeCore;
use crate::runtime::grant_users::{self, Kept, Users};

/// The peers that may reach memory that is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audience(Option<Arc<Vec<Rank>>>);

impl Audience {
    /// Every peer that this node has, or will have.
    pub const ALL: Audience = Audience(None);
}

/// These ranks alone, by the numbers that this node has for them.
impl From<&[Rank]> for Audience {
    fn from(ranks: &[Rank]) -> Audience {
        let mut ranks = ranks.to_vec();
        ranks.sort_unstable();
        ranks.dedup();
        Audience(Some(Arc::new(ranks)))
    }
}

/// These ranks alone.
impl<const N: usize> From<[Rank; N]> for Audience {
    fn from(ranks: [Rank; N]) -> Audience {
        Audience::from(&ranks[..])
    }
}

/// The members that the team has now. Members do not come or go later.
impl From<&Team> for Audience {
    fn from(team: &Team) -> Audience {
        let ranks: Vec<Rank> = (0..team.size()).filter_map(|member| team.job_rank(member)).collect();
        Audience::from(&ranks[..])
    }
}

debug_is_display!(GrantError);

/// Why memory is not granted, or a grant cannot be ended or changed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// The memory has no bytes.
    #[error("granting memory of no bytes")]
    Empty,
    /// The memory has more bytes than a grant can have, or than there are addresses behind its start.
    #[error(
        "granting {len} bytes at {addr:#x}: a grant has {most} at most, and ends before the last address"
    )]
    TooLong {
        /// The first byte's address.
        addr: u64,
        /// Bytes.
        len: u64,
        /// Bytes, at most.
        most: u64,
    },
    /// This node has as many grants as there may be.
    #[error("a node has at most {most} grants at a time")]
    Full {
        /// How many.
        most: u64,
    },
    /// A grant can only be re-pointed to memory of the same length.
    #[error("re-pointing grant {grant}: {given} bytes, where it names {expected}")]
    Length {
        /// The grant.
        grant: GrantId,
        /// Bytes given.
        given: u64,
        /// Bytes that it names.
        expected: u64,
    },
    /// The grant has been revoked before.
    #[error("grant {grant} has been revoked")]
    Revoked {
        /// The grant.
        grant: GrantId,
    },
    /// The grant has not been revoked, so that peers may begin to use it at any time.
    #[error("grant {grant} has not been revoked: peers may use it")]
    NotRevoked {
        /// The grant.
        grant: GrantId,
    },
    /// A peer may still reach the memory: it is in an access that it began before, of this grant or another
    /// of this node's. The memory is kept.
    #[error(
        "peer {peer} may still reach the memory of grant {grant}: it is in an access that it began before"
    )]
    StillInUse {
        /// The grant.
        grant: GrantId,
        /// The peer.
        peer: Rank,
    },
    /// The call itself was refused; [`Error::NoSuchPeer`] where it was to be granted to a peer that there is
    /// not.
    #[error(transparent)]
    Node(#[from] Error),
}

impl GrantError {
    /// The kind of error: a number and a name that do not change.
    pub fn code(&self) -> Code {
        match self {
            GrantError::Empty | GrantError::TooLong { .. } | GrantError::Length { .. } => Code::Length,
            GrantError::Full { .. } => Code::NoRoom,
            GrantError::Revoked { .. } => Code::Revoked,
            GrantError::NotRevoked { .. } | GrantError::StillInUse { .. } => Code::InUse,
            GrantError::Node(error) => error.code(),
        }
    }
}

into_io_error!(GrantError);

/// Memory that peers may reach by its [name](Grant::name), until it is revoked. It owns what keeps the
/// memory: a `Vec`, a [`HeapArray`](crate::HeapArray), a [`Foreign`](crate::Foreign), any [`Buffer`].
///
/// [`Grant::revoke`] ends it, and so does dropping this, or the node's end. None of them waits:
/// [`Grant::wait_idle`] does, and gives the memory back. A grant that is dropped while a peer is at its
/// memory leaves that to the library. Later progress of the node, and later calls that grant, wait for or
/// drop a grant of any node of the process, drop the memory once no peer reaches it any more.
///
/// Any thread may hold, revoke and drop it, handlers as well. It does not keep the node open.
#[must_use = "what is granted is revoked when this is dropped"]
pub struct Grant<B: Buffer> {
    core: Weak<NodeCore>,
    users: Arc<Users>,
    name: GrantName,
    /// The epoch that began when it was revoked; 0 while it is not.
    revoked: AtomicU64,
    /// `None`: it was given back.
    memory: Option<B>,
}

/// Granting memory.
impl Node {
    /// Lets peers read or write `memory`, or both, by the name that the grant has. Hand that to them by any
    /// way: in a message, by the [`Directory`](crate::Directory), in a file. A peer of the audience makes it
    /// a [`Remote`](crate::Remote) by [`Remote::granted`](crate::Remote::granted), and puts and gets as with
    /// any other. `rights` say what they may do: [`Rights::Read`] to get, [`Rights::Write`] to put. Nothing
    /// is read, written, copied or pinned here.
    ///
    /// Meanwhile the grant owns the memory: a `Vec`, a [`HeapArray`](crate::HeapArray), or memory of any kind
    /// by [`Foreign`](crate::Foreign), whose maker promises that it is there. Memory may be granted several
    /// times, each time by another name.
    ///
    /// All peers of this host reach all of the heap, whatever is granted: there a grant is a name, and no
    /// protection.
    ///
    /// Under [`ProgressThread::Auto`](crate::ProgressThread::Auto) the first grant of a node that exposes
    /// ranges only starts the progress thread, which then also runs handlers, as peers may have to be served.
    ///
    /// Any thread may call it, handlers as well; it does not wait.
    ///
    /// # Errors
    /// See [`GrantError`]. The memory is dropped then.
    pub fn grant<B: PutBuffer + GetBuffer>(
        &self,
        memory: B,
        rights: Rights,
        to: impl Into<Audience>,
    ) -> Result<Grant<B>, GrantError> {
        self.grant_any(memory, rights, to.into())
    }

    /// As [`Node::grant`], to be read only: by this, memory may be granted that others hold as well, as
    /// `Arc<[T]>` and `Bytes`.
    ///
    /// # Errors
    /// See [`GrantError`].
    pub fn share<B: PutBuffer>(&self, memory: B, to: impl Into<Audience>) -> Result<Grant<B>, GrantError> {
        self.grant_any(memory, Rights::Read, to.into())
    }

    /// As [`Node::share`], of each of a list, in its order.
    ///
    /// # Errors
    /// See [`GrantError`]: of the first that cannot be granted. Then none is, and all are dropped.
    pub fn share_many<B: PutBuffer>(
        &self,
        memory: impl IntoIterator<Item = B>,
        to: impl Into<Audience>,
    ) -> Result<Vec<Grant<B>>, GrantError> {
        self.grant_each(memory.into_iter(), Rights::Read, to.into())
    }

    /// As [`Node::grant`], of each of a list, in its order.
    ///
    /// # Errors
    /// See [`GrantError`]: of the first that cannot be granted. Then none is, and all are dropped.
    pub fn grant_many<B: PutBuffer + GetBuffer>(
        &self,
        memory: impl IntoIterator<Item = B>,
        rights: Rights,
        to: impl Into<Audience>,
    ) -> Result<Vec<Grant<B>>, GrantError> {
        self.grant_each(memory.into_iter(), rights, to.into())
    }
}

impl Node {
    fn grant_any<B: Buffer>(
        &self,
        memory: B,
        rights: Rights,
        mut to: Audience,
    ) -> Result<Grant<B>, GrantError> {
        self.may_grant(&mut to)?;
        self.core.free_unused();
        let mut granted = self.grant_checked(vec![memory], rights, &to)?;
        self.serve_grants();
        Ok(granted.pop().expect("as many as were asked for"))
    }

    fn grant_each<B: Buffer>(
        &self,
        memory: impl Iterator<Item = B>,
        rights: Rights,
        mut to: Audience,
    ) -> Result<Vec<Grant<B>>, GrantError> {
        self.may_grant(&mut to)?;
        self.core.free_unused();
        let granted = self.grant_checked(memory.collect(), rights, &to)?;
        self.serve_grants();
        Ok(granted)
    }

    /// Whether this node may grant anything, and there are such peers.
    fn may_grant(&self, Audience(to): &mut Audience) -> Result<(), GrantError> {
        self.may_call("granting")?;
        let own = self.core.peers.own();
        let is_peer = |rank: &Rank| *rank < own.size || self.core.peers.known(*rank).is_some();
        if let Some(&peer) = to.as_ref().and_then(|ranks| ranks.iter().find(|rank| !is_peer(rank))) {
            return Err(GrantError::Node(Error::NoSuchPeer { peer, size: own.size }));
        }
        // The owner is of every audience.
        if let Some(ranks) = to.as_mut().filter(|ranks| !ranks.contains(&own.rank)) {
            *to = Audience::from(&[&ranks[..], &[own.rank]].concat()[..]).0;
        }
        Ok(())
    }

    /// Grants each of these, or none.
    fn grant_checked<B: Buffer>(
        &self,
        mut memory: Vec<B>,
        rights: Rights,
        Audience(to): &Audience,
    ) -> Result<Vec<Grant<B>>, GrantError> {
        let granted = |memory: &mut B| {
            let start = memory.start().expose_provenance() as u64;
            Granted { start, len: memory.byte_len() as u64, rights, to: to.clone() }
        };
        let granted: Vec<Granted> = memory.iter_mut().map(granted).collect();
        let ids = self.core.grant_all(&granted).map_err(|(why, at)| match why {
            NotGranted::Empty => GrantError::Empty,
            NotGranted::TooLong => {
                let Granted { start: addr, len, .. } = granted[at];
                GrantError::TooLong { addr, len, most: GRANT_BYTES - 1 }
            }
            NotGranted::Full => GrantError::Full { most: GRANTS_MAX.into() },
        })?;
        let users = Arc::new(self.core.users());
        let all = ids.into_iter().zip(granted).zip(memory).map(|((id, granted), memory)| Grant {
            core: Arc::downgrade(&self.core),
            users: Arc::clone(&users),
            name: GrantName::new(id, granted.len),
            revoked: AtomicU64::new(0),
            memory: Some(memory),
        });
        Ok(all.collect())
    }

    /// Sees to it that peers are served who ask for what is granted.
    fn serve_grants(&self) {
        if self.core.threads.may_attend
            && self.core.peers.own().identity.ranges_only
            && let Err(error) = self.core.attend()
        {
            tracing::warn!(%error, "no progress thread: grants are served only while this process makes progress");
        }
    }
}

impl<B: Buffer> Grant<B> {
    /// The name, for peers.
    pub fn name(&self) -> GrantName {
        self.name
    }

    /// Bars all new use, by any peer: an access that begins after this returns ends with
    /// [`Error::Revoked`]. One that began before may still go on: see
    /// [`Grant::wait_idle`]. It never waits; also in handlers.
    ///
    /// # Errors
    /// [`GrantError::Revoked`] where it was revoked before. [`Error::Forked`] in a child.
    pub fn revoke(&self) -> Result<(), GrantError> {
        let grant = self.name.id();
        self.is_own("revoking a grant")?;
        // With its node it has ended.
        let epoch =
            self.its_core().and_then(|core| core.revoke(grant)).ok_or(GrantError::Revoked { grant })?;
        self.revoked.store(epoch, Ordering::Release);
        Ok(())
    }

    /// Gives the memory back once no peer reaches it any more, for which it waits so long at most: no time is
    /// a question. The grant must have been [revoked](Grant::revoke), so that nobody begins to.
    ///
    /// In a handler it does not wait, whatever the time.
    ///
    /// # Errors
    /// [`GrantError::StillInUse`], which names a peer that does, or this node where its network is not done
    /// with it yet: the grant keeps the memory, and the call may be made again. [`GrantError::NotRevoked`].
    /// [`GrantError::Revoked`] where the memory was given back before. [`Error::Forked`] in a child.
    pub fn wait_idle(&mut self, within: Duration) -> Result<B, GrantError> {
        let grant = self.name.id();
        self.is_own("taking a grant's memory back")?;
        if self.its_core().is_some_and(|core| core.is_granted(grant)) {
            return Err(GrantError::NotRevoked { grant });
        }
        self.free_unused();
        self.wait_unused(self.epoch(), within)?;
        self.memory.take().ok_or(GrantError::Revoked { grant })
    }

    /// Whether its node is this process's, as long as that is there.
    fn is_own(&self, call: &'static str) -> Result<(), GrantError> {
        match self.core.upgrade().filter(|core| core.is_forked()) {
            Some(_) => Err(GrantError::Node(Error::Forked { call })),
            None => Ok(()),
        }
    }

    /// Its node, while that is there.
    fn its_core(&self) -> Option<Arc<NodeCore>> {
        self.core.upgrade().filter(|core| !core.is_forked() && !core.has_closed())
    }

    /// A peer that is at memory from afar that it names no more, for as long as the node's network is there.
    fn far_user(&self) -> Option<Rank> {
        let core = self.core.upgrade().filter(|core| !core.is_forked())?;
        core.far_user(self.name.id())
    }

    /// Lets go of memory that was dropped while peers were at it, where they no longer are.
    fn free_unused(&self) {
        match self.its_core() {
            Some(core) => core.free_unused(),
            None => grant_users::free_left(),
        }
    }

    /// The epoch from which on nobody begins to use it, once it is revoked or its node has ended.
    fn epoch(&self) -> u64 {
        match self.revoked.load(Ordering::Acquire) {
            0 => u64::MAX,
            epoch => epoch,
        }
    }

    fn wait_unused(&self, epoch: u64, within: Duration) -> Result<(), GrantError> {
        let core = self.its_core();
        let may_wait = core.as_ref().is_none_or(|core| core.may_wait("waiting for a grant's users").is_ok());
        let within = if may_wait { within } else { Duration::ZERO };
        let make_progress = || {
            if let Some(core) = &core {
                let _ = core.progress(1);
            }
        };
        let grant = self.name.id();
        let waited = self.users.wait(epoch, within, || self.far_user(), make_progress);
        if let (Some(core), Ok(Some(peer)) | Err(peer)) = (&core, waited) {
            core.count_wait(peer, waited.is_err());
        }
        waited.map(drop).map_err(|peer| GrantError::StillInUse { grant, peer })
    }
}

impl<B: PutBuffer + GetBuffer> Grant<B> {
    /// Has the name stand for other memory of the same length from now on, and gives the old memory back once
    /// no peer reaches that any more. A transfer that goes on meanwhile may be done in part to the old, in
    /// part to the new memory. Waits for that so long at most; in a handler not at all.
    ///
    /// # Errors
    /// [`GrantError::Length`], [`GrantError::Revoked`]: then nothing has changed, and `memory` is dropped.
    /// [`GrantError::StillInUse`]: the name stands for the new memory, and the node drops the old one once no
    /// peer reaches it.
    pub fn repoint(&mut self, mut memory: B, within: Duration) -> Result<B, GrantError> {
        let (grant, expected) = (self.name.id(), self.name.len());
        let (start, given) = (memory.start().expose_provenance() as u64, memory.byte_len() as u64);
        if given != expected {
            return Err(GrantError::Length { grant, given, expected });
        }
        self.is_own("re-pointing a grant")?;
        let core = self.its_core().ok_or(GrantError::Revoked { grant })?;
        let epoch = core.repoint(grant, start).ok_or(GrantError::Revoked { grant })?;
        let old = self.memory.replace(memory).ok_or(GrantError::Revoked { grant })?;
        // However this ends: a handler may panic meanwhile.
        let mut old = Left { core: &core, grant, epoch, memory: Some(old) };
        self.wait_unused(epoch, within)?;
        old.memory.take().ok_or(GrantError::Revoked { grant })
    }
}

/// Memory that a grant has left: where it is dropped here, the node keeps it until nobody is at it.
struct Left<'a, B: Buffer> {
    core: &'a NodeCore,
    grant: GrantId,
    epoch: u64,
    memory: Option<B>,
}

impl<B: Buffer> Drop for Left<'_, B> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.core.keep_revoked(self.grant, self.epoch, Box::new(memory));
        }
    }
}

impl<B: Buffer> fmt::Debug for Grant<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<B: Buffer> Drop for Grant<B> {
    fn drop(&mut self) {
        let _ = self.revoke();
        self.free_unused();
        let Some(memory) = self.memory.take() else { return };
        let core = self.core.upgrade();
        let user = || self.users.any(self.epoch()).or_else(|| self.far_user());
        // A child made by `fork` has a copy of the memory, which no peer is at.
        if core.as_ref().is_some_and(|core| core.is_forked()) || user().is_none() {
            return drop(memory);
        }
        let (grant, epoch) = (self.name.id(), self.epoch());
        match core {
            Some(core) if !core.has_closed() || self.far_user().is_some() => {
                core.keep_revoked(grant, epoch, Box::new(memory));
            }
            _ => {
                let users = Users::clone(&self.users);
                grant_users::leave(Kept { grant, epoch, users, memory: Box::new(memory) });
            }
        }
    }
}
