//! The endpoint, and all memory that it is lent: with [`buffers`](super::buffers), all of this transport that
//! is unsafe.
//!
//! Two kinds of memory are lent to the provider. *Buffers* are given away until their operation has ended, so
//! an operation from one may be given up at any time. *Callers' memory* is lent to copies by key that are
//! long, and has to come back at a deadline. An operation whose peer hangs ends only with its whole endpoint:
//! `net` and `tcp;ofi_rxm` of 1.17 go on with what was posted to a peer that has been removed from the
//! address vector. So it is lent to *auxiliary endpoints* only, to which no peer sends anything, and which
//! can be closed. Others of them are *landings*, by which one peer's long puts come in. Where one cannot be
//! closed that callers' memory is lent to, the process is aborted.
//!
//! Memory that peers may reach is registered where the engine says so, and only after the kernel was asked
//! whether it is there. Providers that pin nothing would believe anything, and die of it when a peer comes.

mod aux_endpoints;
mod receive_buffers;
mod rma_small;

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use engine::registration::RegisterError;
use engine::{Direction, Place};
use fabric::{
    Access, AuxEndpointId, Completion, Desc, Description, Endpoint, Errno, Error, Local, Look, Options,
    PIECES_MAX, PREPARED_MAX, Peer, Post, Provider, Region, Remote, RemotePiece, Sleep, Until,
};
use vm::{Segment, SharedMemory};

use super::buffers::{Buffer, Buffers, Purpose, Size};
use super::keys::draw;
use super::rma_slots::{SlotId, Slots};
use super::wait_set::watch;
use crate::base::limits::DEPTH;

/// How long reads may take to end when the endpoint closes, where it would otherwise have to be left open.
const READS_END: Duration = Duration::from_millis(100);

/// How long nobody tries to make buffers after that was refused.
const MEMORY_PAUSE: Duration = Duration::from_millis(100);

/// There is no memory for buffers.
const NO_MEMORY: Error = Error::Call { call: "fi_mr_regattr", errno: Errno::ENOMEM };

/// Buffers that are made at once.
const BATCH: u64 = 16;

/// Keys that are drawn before one that is free is given up: of 64 bits, the first will do.
const DRAWS: u32 = 8;

/// An operation that has ended.
pub(super) enum Ended {
    /// Its buffer comes back.
    Buffer {
        purpose: Purpose,
        buffer: Buffer,
        /// Bytes received; `Err`: the operation failed, and the buffer holds anything.
        result: Result<usize, ()>,
    },
    /// A small copy's, well or not.
    Small(SlotId, bool),
    /// None that is known: a failure that the provider has no operation for.
    Nameless,
}

/// The result of a [look](NetEndpoint::look) at the endpoint.
pub(super) enum Looked {
    /// Nothing has ended.
    Nothing,
    /// A small copy has, and well.
    Small(SlotId),
    /// Another operation has, or it has failed.
    Ended(Ended),
    /// There is something else, which [`NetEndpoint::poll`] sees to.
    Other,
}

/// An operation on a buffer.
enum Begin<'a> {
    Send(Peer),
    Receive,
    /// A write that ends when the buffer may be used again.
    Write(Remote),
    WritePieces(Peer, &'a [RemotePiece], Until),
    ReadPieces(Peer, &'a [RemotePiece]),
}

/// A piece of a caller's memory.
#[derive(Clone, Copy)]
pub(super) struct Lent {
    pub(super) place: Place,
    pub(super) len: usize,
    /// Its registration, where the provider wants local memory registered.
    pub(super) desc: Desc,
}

/// An operation straight from or to callers' memory that was not started.
pub(super) struct NotStarted {
    /// It may be another time.
    pub(super) busy: bool,
}

/// A buffer that was not lent.
pub(super) struct Kept {
    pub(super) buffer: Buffer,
    /// It may be another time.
    pub(super) busy: bool,
}

/// An endpoint and what is lent to it.
pub(crate) struct NetEndpoint {
    /// `None` once it is closed.
    endpoint: Option<Endpoint>,
    description: Description,
    address: Box<[u8]>,
    pub(super) buffers: Buffers,
    pub(super) slots: Slots,
    /// Auxiliary endpoints that are open; and whether there can be no more for as long as the endpoint is.
    aux_endpoints: Vec<AuxEndpointId>,
    aux_endpoints_end: bool,
    /// To sleep on: the endpoint's descriptor, and all auxiliary endpoints'.
    wait: Option<OwnedFd>,
    /// Buffers for messages that are still to be lent.
    idle: Vec<Buffer>,
    /// The provider refused them: it is not asked again before that time.
    idle_until: Option<Instant>,
    /// There was no memory for buffers at that time, and none was had since.
    refused_at: Option<Instant>,
    /// All memory of buffers: it stays until the endpoint is closed.
    memory: Vec<SharedMemory>,
    #[cfg(test)]
    pub(super) script: super::script::Script,
}

impl NetEndpoint {
    /// Opens an endpoint, and makes it receive messages. With `wait`, there is a
    /// [descriptor](NetEndpoint::wait_fd) to sleep on.
    pub(crate) fn open(provider: &Provider, wait: bool) -> Result<NetEndpoint, Error> {
        let endpoint = Endpoint::open(provider, &Options { depth: DEPTH, wait })?;
        let description = endpoint.description().clone();
        NetEndpoint::over(endpoint, description)?.equip()
    }

    /// Over an endpoint of this description, and without any buffers yet.
    pub(super) fn over(endpoint: Endpoint, description: Description) -> Result<NetEndpoint, Error> {
        debug_assert!(!description.mr_mode.raw, "who chooses the provider refuses those of raw keys");
        let wait = endpoint.wait_fd().map(watch).transpose()?;
        Ok(NetEndpoint {
            address: endpoint.address().into(),
            endpoint: Some(endpoint),
            description,
            buffers: Buffers::default(),
            slots: Slots::default(),
            aux_endpoints: Vec::new(),
            aux_endpoints_end: false,
            wait,
            idle: Vec::new(),
            idle_until: None,
            refused_at: None,
            memory: Vec::new(),
            #[cfg(test)]
            script: super::script::Script::default(),
        })
    }

    /// The address that peers reach it by.
    pub(crate) fn address(&self) -> &[u8] {
        &self.address
    }

    /// The provider's abilities and needs.
    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    pub(super) fn is_open(&self) -> bool {
        self.endpoint.is_some()
    }

    /// Whether there are as many operations under way as the endpoint takes, whoever they are with.
    pub(super) fn is_full(&self) -> bool {
        self.buffers.lent() + PREPARED_MAX >= DEPTH as usize
    }

    /// The descriptor to sleep on, if there is one.
    pub(super) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wait.as_ref()?.as_fd())
    }

    /// Whether the descriptor will become readable when something happens.
    pub(super) fn try_wait(&mut self) -> bool {
        let asleep = |endpoint: &mut Endpoint| matches!(endpoint.try_wait(), Ok(Sleep::Now));
        self.idle.is_empty() && self.endpoint.as_mut().is_some_and(asleep)
    }

    /// Makes a peer known by the address that its endpoint says it has, and by the one at which it was met,
    /// if it was.
    pub(super) fn add_peer(&mut self, address: &[u8], met: Option<SocketAddr>) -> Option<Peer> {
        let added = self.endpoint.as_mut()?.add_peer_met(address, met);
        added.inspect_err(|error| tracing::warn!(%error, "a peer's address cannot be used")).ok()
    }

    /// Forgets a peer that nothing is under way with.
    pub(super) fn forget_peer(&mut self, peer: Peer) {
        if let Some(endpoint) = &mut self.endpoint
            && let Err(error) = endpoint.remove_peer(peer)
        {
            tracing::debug!(%error, "a peer's address stays");
        }
    }

    /// A buffer of this size. `None`: there is no memory.
    #[inline(always)]
    pub(super) fn take(&mut self, size: Size) -> Option<Buffer> {
        self.buffers.take(size).or_else(|| self.make_one(size))
    }

    #[cold]
    fn make_one(&mut self, size: Size) -> Option<Buffer> {
        self.make(size).ok()?;
        self.buffers.take(size)
    }

    /// Makes some more buffers. For a while after that was refused it is not tried: each try asks the system
    /// for memory.
    #[cold]
    fn make(&mut self, size: Size) -> Result<(), Error> {
        if self.refused_at.is_some_and(|at| at.elapsed() < MEMORY_PAUSE) {
            return Err(NO_MEMORY);
        }
        let made = self.make_now(size);
        match &made {
            Ok(()) => self.refused_at = None,
            Err(error) => {
                if self.refused_at.replace(Instant::now()).is_none() {
                    tracing::warn!(%error, "no memory for messages and copies");
                }
            }
        }
        made
    }

    /// Makes some more buffers, registered where the provider wants local memory registered.
    fn make_now(&mut self, size: Size) -> Result<(), Error> {
        #[cfg(test)]
        if self.script.refuse_memory {
            self.script.memory_refused += 1;
            return Err(NO_MEMORY);
        }
        let endpoint = self.endpoint.as_mut().ok_or(NO_MEMORY)?;
        let segment = Segment::create("standpipe-network", BATCH * size.bytes() as u64);
        let segment =
            segment.inspect_err(|error| tracing::debug!(%error, "no segment")).map_err(|_| NO_MEMORY)?;
        let memory = segment.memory().clone();
        let mut desc = Desc::NONE;
        if self.description.mr_mode.local {
            let (addr, len) = (memory.base_addr() as usize, memory.len() as usize);
            let key = draw(&self.description).ok_or(NO_MEMORY)?;
            let addr = std::ptr::with_exposed_provenance_mut(addr);
            // SAFETY: the mapping stays until the endpoint is closed: this keeps it in `memory`, and leaks it
            // where closing fails. No reference to what lies in it is ever made.
            let region = unsafe { endpoint.register(addr, len, Access::LOCAL, key) };
            desc = region?.desc;
        }
        self.buffers.make(&memory, desc, size, BATCH);
        self.memory.push(memory);
        Ok(())
    }

    /// Registers `len` bytes of this process's space from `addr` on, for peers to read and write.
    pub(super) fn register(&mut self, addr: u64, len: u64) -> Result<Region, RegisterError> {
        if !self.description.mr_mode.allocated {
            vm::fault_safe_copy::make_present(addr, len).map_err(|_| RegisterError::Fault)?;
        }
        // SAFETY: it is there now, as the kernel or the provider finds; whoever unmaps it tells the engine
        // before, which takes the registration back.
        unsafe { self.register_there(addr, len) }
    }

    /// Registers a part of a mapping, for peers to read and write: it stays until the endpoint is
    /// closed.
    pub(super) fn register_mapped(
        &mut self,
        memory: &SharedMemory,
        part: Range<u64>,
    ) -> Result<Region, RegisterError> {
        if part.start > part.end || part.end > memory.len() {
            return Err(RegisterError::Fault);
        }
        // SAFETY: the mapping stays until the endpoint is closed: this keeps it in `memory`, and leaks it
        // where closing fails. No reference to what lies in it is ever made.
        let registered =
            unsafe { self.register_there(memory.base_addr() + part.start, part.end - part.start) }?;
        if !self.memory.iter().any(|kept| kept.base_addr() == memory.base_addr()) {
            self.memory.push(memory.clone());
        }
        Ok(registered)
    }

    /// Registers memory that is there.
    ///
    /// # Safety
    /// It is there until the registration or the endpoint is closed.
    unsafe fn register_there(&mut self, addr: u64, len: u64) -> Result<Region, RegisterError> {
        #[cfg(test)]
        if self.script.refuse_regions {
            return Err(RegisterError::Limit);
        }
        let endpoint = self.endpoint.as_mut().ok_or(RegisterError::Limit)?;
        let start = std::ptr::with_exposed_provenance_mut(addr as usize);
        for _ in 0..DRAWS {
            let key = draw(&self.description).ok_or(RegisterError::Limit)?;
            // SAFETY: it is there, by what the caller has promised. Peers may write anywhere in this process
            // by what joining a job means (`Node::open` says so), as they may by cross-memory attach.
            let region = unsafe { endpoint.register(start, len as usize, Access::ALL, key) };
            match region {
                Ok(region) => return Ok(region),
                Err(Error::Call { errno: Errno::ENOKEY, .. }) => {}
                Err(Error::Call { errno: Errno::EFAULT | Errno::EINVAL, .. }) => {
                    return Err(RegisterError::Fault);
                }
                Err(_) => return Err(RegisterError::Limit),
            }
        }
        Err(RegisterError::Limit)
    }

    /// Takes a registration back. Without an endpoint there is none, or it was leaked with that.
    ///
    /// # Errors
    /// The provider's: peers may still reach what it was of.
    pub(super) fn deregister(&mut self, region: fabric::RegionId) -> Result<(), Error> {
        #[cfg(test)]
        if self.script.keep_regions {
            return Err(Error::Call { call: "fi_close", errno: Errno::EBUSY });
        }
        self.endpoint.as_mut().map_or(Ok(()), |endpoint| endpoint.deregister(region))
    }

    /// Sends the first `len` bytes of a buffer as a message, for this purpose.
    pub(super) fn send(&mut self, to: Peer, lent: (Buffer, usize), purpose: Purpose) -> Result<(), Kept> {
        self.lend(lent, purpose, Begin::Send(to))
    }

    /// Writes the first `len` bytes of a buffer to pieces of the peer's memory.
    pub(super) fn write(
        &mut self,
        to: Peer,
        remote: &[RemotePiece],
        lent: (Buffer, usize),
        until: Until,
        purpose: Purpose,
    ) -> Result<(), Kept> {
        let begin = match (remote, until) {
            ([RemotePiece { addr, key, .. }], Until::Reusable) => {
                Begin::Write(Remote { peer: to, addr: *addr, key: *key })
            }
            _ => Begin::WritePieces(to, remote, until),
        };
        self.lend(lent, purpose, begin)
    }

    /// Reads pieces of the peer's memory into the first `len` bytes of a buffer.
    pub(super) fn read(
        &mut self,
        from: Peer,
        remote: &[RemotePiece],
        lent: (Buffer, usize),
        purpose: Purpose,
    ) -> Result<(), Kept> {
        self.lend(lent, purpose, Begin::ReadPieces(from, remote))
    }

    /// Copies straight from or to memory of callers, which stays lent until this operation has ended or the
    /// auxiliary endpoint is closed: nobody may be told before that the copy is over.
    pub(super) fn copy_from_aux_endpoint(
        &mut self,
        aux_endpoint: AuxEndpointId,
        (direction, peer): (Direction, Peer),
        lent: &[Lent],
        remote: &[RemotePiece],
        part: usize,
    ) -> Result<(), NotStarted> {
        #[cfg(test)]
        if self.script.refuse_aux_endpoints {
            return Err(NotStarted { busy: true });
        }
        #[cfg(test)]
        if self.script.swallow_aux_endpoints > 0 {
            return Ok(());
        }
        let mut locals = [Local { addr: std::ptr::null_mut(), len: 0, desc: Desc::NONE }; PIECES_MAX];
        for (local, Lent { place, len, desc }) in locals.iter_mut().zip(lent) {
            let addr = std::ptr::with_exposed_provenance_mut(place.offset as usize);
            *local = Local { addr, len: *len, desc: *desc };
        }
        let (locals, token) = (&locals[..lent.len()], part as u64);
        let endpoint = self.endpoint.as_mut().ok_or(NotStarted { busy: false })?;
        let mut aux_endpoint = endpoint.aux_endpoint(aux_endpoint).map_err(|_| NotStarted { busy: false })?;
        // SAFETY: the engine hands on the pieces that it was given. This library gives it only pieces of a
        // `PieceList`, or of buffers that it keeps until the operation has ended: readable or writable as the
        // direction wants, and used by nothing else. That it has ended the engine is told only after the
        // completion of this has come, or the auxiliary endpoint is closed, as the caller of this function
        // sees to; and registrations stay until then, too.
        let posted = unsafe {
            match direction {
                Direction::Put => aux_endpoint.write_pieces(locals, peer, remote, Until::Delivered, token),
                Direction::Get => aux_endpoint.read_pieces(locals, peer, remote, token),
            }
        };
        match posted {
            Ok(Post::Posted) => Ok(()),
            Ok(Post::Busy) | Err(Error::Call { errno: Errno::ENOTCONN, .. }) => {
                Err(NotStarted { busy: true })
            }
            Err(error) => {
                tracing::debug!(%error, part, "the provider refuses a copy");
                Err(NotStarted { busy: false })
            }
        }
    }

    /// Makes progress at an auxiliary endpoint, and returns the next part of a copy that has ended there, and
    /// whether well.
    pub(super) fn poll_aux_endpoint(&mut self, aux_endpoint: AuxEndpointId) -> Option<(usize, bool)> {
        match self.endpoint.as_mut()?.aux_endpoint(aux_endpoint).ok()?.poll() {
            Ok(completion) => match completion? {
                #[cfg(test)]
                Completion::Done { token, .. } if std::mem::take(&mut self.script.fail_aux_endpoint) => {
                    Some((token as usize, false))
                }
                Completion::Done { token, .. } => Some((token as usize, true)),
                Completion::Failed { operation, failure } => {
                    tracing::debug!(?operation, %failure, "a copy failed");
                    operation.map(|(token, _)| (token as usize, false))
                }
            },
            Err(error) => {
                tracing::error!(%error, "a queue for copies is broken");
                self.close();
                None
            }
        }
    }

    /// Begins an operation on the first `len` bytes of a buffer, which is kept until that has ended.
    #[inline(always)]
    fn lend(
        &mut self,
        (buffer, len): (Buffer, usize),
        purpose: Purpose,
        begin: Begin<'_>,
    ) -> Result<(), Kept> {
        #[cfg(test)]
        if if purpose == Purpose::Receive { self.script.refuse_receives } else { self.script.connects } {
            return Err(Kept { buffer, busy: true });
        }
        let (local, token) = (self.buffers.lend(&buffer, len, purpose), buffer.token());
        let Some(endpoint) = self.willing() else { return Err(self.not_lent(buffer, None)) };
        // SAFETY: the buffer is kept in `buffers`, registered where that is needed, until the operation's
        // completion has come or the endpoint is closed. Nobody else has it, so nobody reads or writes it.
        let posted = unsafe {
            match begin {
                Begin::Send(to) => endpoint.send(local, to, token),
                Begin::Receive => endpoint.receive(local, token),
                Begin::Write(to) => endpoint.write(local, to, token),
                Begin::WritePieces(peer, to, until) => {
                    endpoint.write_pieces(&[local], peer, to, until, token)
                }
                Begin::ReadPieces(peer, from) => endpoint.read_pieces(&[local], peer, from, token),
            }
        };
        if let Ok(Post::Posted) = posted { Ok(()) } else { Err(self.not_lent(buffer, Some(posted))) }
    }

    /// Takes a buffer back whose operation has not begun.
    #[cold]
    #[inline(never)]
    fn not_lent(&mut self, buffer: Buffer, posted: Option<Result<Post, Error>>) -> Kept {
        let lent = self.buffers.returned(buffer.token());
        let busy = posted.is_some_and(|posted| is_busy(posted, lent.map(|(_, purpose)| purpose)));
        Kept { buffer, busy }
    }

    /// The endpoint, if it is open.
    #[inline(always)]
    fn willing(&mut self) -> Option<&mut Endpoint> {
        #[cfg(test)]
        if self.script.refuses() {
            return None;
        }
        self.endpoint.as_mut()
    }

    /// Makes progress, and says whether an operation has ended.
    #[inline(always)]
    pub(super) fn look(&mut self) -> Looked {
        let Some(endpoint) = &mut self.endpoint else { return Looked::Other };
        match endpoint.look() {
            Look::Nothing => Looked::Nothing,
            Look::Done { token, len } => match Slots::named(token) {
                Some(slot) => Looked::Small(slot),
                None => self.ended(token, Ok(len)).map_or(Looked::Other, Looked::Ended),
            },
            Look::Other => Looked::Other,
        }
    }

    /// The operation that has ended, if the token is one's.
    #[inline(never)]
    fn ended(&mut self, token: u64, result: Result<usize, ()>) -> Option<Ended> {
        if let Some(slot) = Slots::named(token) {
            return Some(Ended::Small(slot, result.is_ok()));
        }
        let (buffer, purpose) = self.buffers.returned(token)?;
        #[cfg(test)]
        let result = self.script.judge(purpose == Purpose::Receive, result);
        Some(Ended::Buffer { purpose, buffer, result })
    }

    /// Makes progress, and returns the next operation that has ended. A queue that is broken closes the
    /// endpoint.
    pub(super) fn poll(&mut self) -> Option<Ended> {
        #[cfg(test)]
        if self.script.fails_namelessly {
            return Some(Ended::Nameless);
        }
        let (token, result) = match self.endpoint.as_mut()?.poll() {
            Ok(None) => return None,
            Ok(Some(Completion::Done { token, len, .. })) => (token, Ok(len)),
            Ok(Some(Completion::Failed { operation, failure })) => {
                tracing::debug!(?operation, %failure, "an operation failed");
                let Some((token, _)) = operation else { return Some(Ended::Nameless) };
                (token, Err(()))
            }
            Err(error) => {
                tracing::error!(%error, "the network's queue is broken");
                self.close();
                return None;
            }
        };
        Some(self.ended(token, result).unwrap_or(Ended::Nameless))
    }

    /// Closes the endpoint: nothing comes in or goes out any more.
    pub(super) fn close(&mut self) {
        for aux_endpoint in std::mem::take(&mut self.aux_endpoints) {
            self.close_aux_endpoint(aux_endpoint, true);
        }
        let Some(mut endpoint) = self.endpoint.take() else { return };
        // Reads that were given up may end still.
        let begun = Instant::now();
        while endpoint.cannot_close() && begun.elapsed() < READS_END && endpoint.poll().is_ok() {
            std::thread::yield_now();
        }
        if let Err(error) = endpoint.close() {
            tracing::warn!(%error, "the endpoint cannot be closed; the memory lent to it stays");
            std::mem::forget(std::mem::take(&mut self.memory));
        }
        self.buffers.forget_lent();
    }
}

/// Whether an operation that was not taken may be another time.
#[cold]
fn is_busy(posted: Result<Post, Error>, purpose: Option<Purpose>) -> bool {
    match posted {
        Ok(_) => true,
        // There is no connection, yet or any more: the provider makes one.
        Err(Error::Call { errno: Errno::ENOTCONN, .. }) => true,
        Err(error) => {
            tracing::debug!(%error, ?purpose, "the provider refuses an operation");
            false
        }
    }
}

impl Drop for NetEndpoint {
    fn drop(&mut self) {
        self.close();
    }
}
