//! Connecting: as a client with a server, and between equals.

use std::time::{Duration, Instant};

use standpipe::{Error, Rank};

use super::address::Host;
use super::error::ViaError;
use super::hosts::Hosts;
use super::meeting::{Asked, Equal, Request, Waiter, agree};
use super::port::Via;
use super::shared::handler;
use super::state::State;
use super::vi::ViState;
use super::wire::{DISCRIMINATOR_MAX, Greeting, Link, Message, Terms};

/// Where a VI is to be reached: `VIP_NET_ADDRESS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetAddress {
    /// The process.
    pub host: Host,
    /// It tells one address of the process from another.
    pub discriminator: Vec<u8>,
}

/// A client that wants to be connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The connection's number, for [`Via::accept`] and [`Via::reject`].
    pub connection: u32,
    /// Where the client is.
    pub address: NetAddress,
    /// Its VI's attributes.
    pub terms: Terms,
}

/// Clients and servers.
impl Via {
    /// Refuses an address that is not of this process, or too long.
    fn check_local(&self, local: &NetAddress) -> Result<(), ViaError> {
        let is_own = local.host == self.own_host() || local.host == Host::Any;
        let fits = local.discriminator.len() <= DISCRIMINATOR_MAX;
        if is_own && fits { Ok(()) } else { Err(ViaError::InvalidParameter) }
    }

    /// The processes that an address may mean, with each of which there is contact.
    fn candidates(&self, remote: &NetAddress) -> Result<Vec<Rank>, ViaError> {
        let (own, size) = self.rank_and_size();
        if remote.discriminator.len() > DISCRIMINATOR_MAX {
            return Err(ViaError::InvalidParameter);
        }
        match (remote.host, self.hosts.get()) {
            (Host::Rank(rank), None) if rank < size => Ok(vec![rank]),
            (Host::Process(number), Some(hosts)) => {
                hosts.peer(&self.node, number).map(|peer| vec![peer]).ok_or(ViaError::NotReachable)
            }
            (Host::Any, Some(hosts)) => {
                Ok(hosts.all().into_iter().filter_map(|number| hosts.peer(&self.node, number)).collect())
            }
            // Others first: a process mostly does not mean itself.
            (Host::Any, None) => {
                let others = self.node.near_ranks().into_iter().filter(|rank| *rank != own);
                Ok(others.chain([own]).collect())
            }
            _ => Err(ViaError::NotReachable),
        }
    }

    /// Whether a process has VIA open; makes the first contact.
    fn reach(&self, peer: Rank, within: Option<Duration>) -> Result<bool, ViaError> {
        let node = within.map_or_else(|| self.node.clone(), |within| self.node.within(within));
        node.has_handler(peer, handler()).map_err(|error| match error {
            Error::Timeout { .. } => ViaError::Timeout,
            Error::InHandler { .. } => ViaError::InvalidState,
            _ => ViaError::NotReachable,
        })
    }

    /// This process's number, for those whom it greets.
    fn process(&self) -> u32 {
        self.hosts.get().map_or(0, Hosts::own)
    }

    /// Waits for a client that asks for that address: `VipConnectWait`. `None` waits for ever.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`] for no NIC, and an address of another process; [`ViaError::Timeout`].
    pub fn wait_for_client(
        &self,
        nic: u32,
        local: &NetAddress,
        within: Option<Duration>,
    ) -> Result<Caller, ViaError> {
        self.check_nic(nic)?;
        self.check_local(local)?;
        let id = self.shared.with(|state| {
            let id = state.new_id();
            let discriminator = local.discriminator.clone();
            state.meeting.waiters.push(Waiter { id, nic, discriminator, came: None });
            id
        });
        let waited = self.wait(within, |state| match came(state, id) {
            Some(connection) => Ok(connection),
            None if state.nics.contains_key(&nic) => Err(ViaError::NotDone),
            None => Err(ViaError::InvalidParameter),
        });
        self.shared.with(|state| {
            // One may have come just as the time was over.
            let waited = waited.or_else(|error| came(state, id).ok_or(error));
            state.meeting.waiters.retain(|waiter| waiter.id != id);
            let connection = waited?;
            let request = state.meeting.requests.get(&connection).ok_or(ViaError::Timeout)?;
            let Greeting { terms, process, own, .. } = request.greeting.clone();
            let host = if process == 0 { Host::Rank(request.peer) } else { Host::Process(process) };
            let address = NetAddress { host, discriminator: own };
            Ok(Caller { connection, address, terms })
        })
    }

    /// Connects a client with a VI: `VipConnectAccept`. Waits for the client's process to say that it has
    /// heard. Where the attributes do not match the client hears nothing, and the call may be made again.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`] for no connection or VI; [`ViaError::InvalidState`] unless the VI is
    /// idle; [`ViaError::InvalidReliability`], [`ViaError::InvalidMtu`], [`ViaError::InvalidQos`] where these
    /// are not the client's; [`ViaError::Timeout`] where the client waits no more.
    pub fn accept(&self, connection: u32, id: u32) -> Result<(), ViaError> {
        let (peer, attempt) = self.shared.with(|state| {
            let vi = state.vis.get_mut(&id).ok_or(ViaError::InvalidParameter)?;
            // A client that has withdrawn leaves a number that is none.
            let request = state.meeting.requests.get(&connection).ok_or(ViaError::Timeout)?;
            if vi.state != ViState::Idle {
                return Err(ViaError::InvalidState);
            }
            let terms = vi.attributes.terms;
            agree(&terms, &request.greeting.terms)?;
            vi.attempt = vi.attempt.wrapping_add(1);
            let attempt = vi.attempt;
            let Request { peer, link, greeting, .. } = request.clone();
            state.meeting.requests.remove(&connection);
            // Before the client hears of it: its first send may be the next that comes.
            state.connect_vi(id, peer, link);
            state.meeting.accepting.insert(id, (attempt, None));
            let (own, wanted, process) = (greeting.wanted, greeting.own, self.process());
            let own = Greeting { terms, process, own, wanted };
            let from = Link { vi: id, attempt };
            state.send(&self.node, peer, Message::Accept { to: link, from }, &own.to_bytes());
            Ok((peer, attempt))
        })?;
        let heard = self.wait(None, |state| match state.meeting.accepting.get(&id) {
            Some((of, Some(is_wanted))) if *of == attempt => Ok(*is_wanted),
            Some((of, None)) if *of == attempt && !self.node.is_lost(peer) => Err(ViaError::NotDone),
            _ => Ok(false),
        });
        self.shared.with(|state| {
            state.meeting.accepting.remove(&id);
            if heard == Ok(true) {
                return Ok(());
            }
            state.idle_vi(id);
            Err(ViaError::Timeout)
        })
    }

    /// Sends a client away: `VipConnectReject`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn reject(&self, connection: u32) -> Result<(), ViaError> {
        self.shared.with(|state| {
            let request = state.meeting.requests.remove(&connection).ok_or(ViaError::InvalidParameter)?;
            let to = request.link;
            state.send(&self.node, request.peer, Message::Reject { to }, &[]);
            Ok(())
        })
    }

    /// Asks a server for a connection: `VipConnectRequest`. Waits for its answer; `None` for ever. Gives the
    /// attributes of the server's VI.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`] for no VI, an address of another process as the local one, and no time.
    /// [`ViaError::InvalidState`] unless the VI is idle. [`ViaError::NoMatch`], at once, where nobody waits
    /// for that address. [`ViaError::Reject`], [`ViaError::Timeout`]. [`ViaError::NotReachable`] for no
    /// process, or one that is lost.
    pub fn request(
        &self,
        id: u32,
        local: &NetAddress,
        remote: &NetAddress,
        within: Option<Duration>,
    ) -> Result<Terms, ViaError> {
        if within.is_some_and(|within| within.is_zero()) {
            return Err(ViaError::InvalidParameter);
        }
        self.check_local(local)?;
        self.check_idle(id)?;
        let begun = Instant::now();
        let is_any = remote.host == Host::Any;
        for peer in self.candidates(remote)? {
            let left = within.map(|within| within.saturating_sub(begun.elapsed()));
            match self.request_of(id, peer, (local, remote), left) {
                Err(ViaError::NoMatch) => {}
                // Of several processes one may just have ended.
                Err(ViaError::NotReachable) if is_any => {}
                answer => return answer,
            }
        }
        Err(ViaError::NoMatch)
    }

    /// Asks one process for a connection.
    fn request_of(
        &self,
        id: u32,
        peer: Rank,
        (local, remote): (&NetAddress, &NetAddress),
        within: Option<Duration>,
    ) -> Result<Terms, ViaError> {
        self.begin(id, local, vec![peer], None)?;
        let begun = Instant::now();
        match self.reach(peer, within) {
            Ok(true) => {}
            unreachable => {
                self.shared.with(|state| state.end_attempt(&self.node, id));
                return Err(unreachable.err().unwrap_or(ViaError::NoMatch));
            }
        }
        self.shared.with(|state| {
            let from = state.link_of(id);
            let Some(vi) = state.vis.get(&id) else { return };
            let (terms, process) = (vi.attributes.terms, self.process());
            let (own, wanted) = (local.discriminator.clone(), remote.discriminator.clone());
            let greeting = Greeting { terms, process, own, wanted };
            state.send(&self.node, peer, Message::Connect { from }, &greeting.to_bytes());
        });
        let left = within.map(|within| within.saturating_sub(begun.elapsed()));
        self.wait(left, |state| answer(state, id)).inspect_err(|error| {
            if *error == ViaError::Timeout {
                self.shared.with(|state| state.end_attempt(&self.node, id));
            }
        })
    }

    /// Refuses a VI that is none, or not idle.
    fn check_idle(&self, id: u32) -> Result<(), ViaError> {
        let state = self.shared.state();
        let vi = state.vis.get(&id).ok_or(ViaError::InvalidParameter)?;
        if vi.state == ViState::Idle { Ok(()) } else { Err(ViaError::InvalidState) }
    }

    /// Has a VI be waiting for a connection.
    fn begin(
        &self,
        id: u32,
        local: &NetAddress,
        peers: Vec<Rank>,
        equal: Option<Equal>,
    ) -> Result<(), ViaError> {
        self.check_local(local)?;
        self.shared.with(|state| {
            let vi = state.vis.get_mut(&id).ok_or(ViaError::InvalidParameter)?;
            if vi.state != ViState::Idle {
                return Err(ViaError::InvalidState);
            }
            vi.state = ViState::ConnectPending;
            vi.attempt = vi.attempt.wrapping_add(1);
            let asked = Asked { peers, attempt: vi.attempt, equal, answer: None };
            state.meeting.asked.insert(id, asked);
            Ok(())
        })
    }

    /// Takes a VI's connection down: `VipDisconnect`. It is idle then, and what was posted has ended,
    /// flushed. Of an idle VI nothing changes.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn disconnect(&self, id: u32) -> Result<(), ViaError> {
        self.shared.with(|state| {
            if !state.vis.contains_key(&id) {
                return Err(ViaError::InvalidParameter);
            }
            state.disconnect(&self.node, id);
            Ok(())
        })?;
        // When this returns, no bytes are being moved any more.
        self.shared.pump_after_others(&self.node);
        self.node.wake();
        Ok(())
    }
}

/// Equals.
impl Via {
    /// Asks for a connection with a VI that asks for this one: `VipConnectPeerRequest`. Waits for the first
    /// contact with its process alone. `None` is for ever.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`], [`ViaError::InvalidState`], [`ViaError::NotReachable`],
    /// [`ViaError::Timeout`] at the first contact.
    pub fn request_equal(
        &self,
        id: u32,
        local: &NetAddress,
        remote: &NetAddress,
        within: Option<Duration>,
    ) -> Result<(), ViaError> {
        if within.is_some_and(|within| within.is_zero()) {
            return Err(ViaError::InvalidParameter);
        }
        let equal = Equal {
            own: local.discriminator.clone(),
            wanted: remote.discriminator.clone(),
            until: within.and_then(|within| Instant::now().checked_add(within)),
            is_any: remote.host == Host::Any,
            process: self.process(),
            told: Vec::new(),
        };
        self.check_local(local)?;
        self.check_idle(id)?;
        let peers = self.candidates(remote)?;
        let is_any = equal.is_any;
        self.begin(id, local, peers.clone(), Some(equal))?;
        self.shared.with(|state| state.meet_stranger(&self.node, id));
        for peer in peers {
            match self.reach(peer, within) {
                Ok(true) => self.shared.with(|state| {
                    if state.meeting.asked.get(&id).is_some_and(|asked| asked.is_open_to(peer)) {
                        state.tell_equal(&self.node, id, peer);
                    }
                }),
                // A process that has not opened VIA yet is told when it asks.
                Ok(false) => {}
                Err(_) if is_any => {}
                Err(error) => {
                    self.shared.with(|state| state.end_attempt(&self.node, id));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Whether the equals are connected: `VipConnectPeerDone`. Gives the other VI's attributes.
    ///
    /// # Errors
    /// [`ViaError::NotDone`]; [`ViaError::InvalidParameter`] for no VI; [`ViaError::InvalidState`] for one
    /// that has not asked; [`ViaError::Timeout`]; [`ViaError::NotReachable`] where the other process is lost;
    /// [`ViaError::InvalidReliability`], [`ViaError::InvalidMtu`], [`ViaError::InvalidQos`] where these
    /// differ.
    pub fn equal_done(&self, id: u32) -> Result<Terms, ViaError> {
        self.poll(|state| equal_answer(state, id)).or_else(|error| self.late(id, error))
    }

    /// The same, and waits: `VipConnectPeerWait`.
    ///
    /// # Errors
    /// As for [`Via::equal_done`].
    pub fn equal_wait(&self, id: u32) -> Result<Terms, ViaError> {
        let until = self.shared.state().meeting.asked.get(&id).and_then(|asked| asked.equal.as_ref()?.until);
        let within = until.map(|until| until.saturating_duration_since(Instant::now()));
        self.wait(within, |state| equal_answer(state, id)).or_else(|error| self.late(id, error))
    }

    /// Ends an attempt whose time is over.
    fn late<R>(&self, id: u32, error: ViaError) -> Result<R, ViaError> {
        if error == ViaError::Timeout {
            self.shared.with(|state| state.end_attempt(&self.node, id));
        }
        Err(error)
    }
}

/// The client that has come for a call that waits.
fn came(state: &State, waiter: u32) -> Option<u32> {
    state.meeting.waiters.iter().find(|of| of.id == waiter)?.came
}

/// The answer that a VI has had, which it has once.
fn answer(state: &mut State, id: u32) -> Result<Terms, ViaError> {
    let asked = state.meeting.asked.get(&id).ok_or(ViaError::InvalidState)?;
    let answer = asked.answer.ok_or(ViaError::NotDone)?;
    state.meeting.asked.remove(&id);
    answer
}

fn equal_answer(state: &mut State, id: u32) -> Result<Terms, ViaError> {
    if !state.vis.contains_key(&id) {
        return Err(ViaError::InvalidParameter);
    }
    let asked = state.meeting.asked.get(&id).ok_or(ViaError::InvalidState)?;
    let Some(equal) = &asked.equal else { return Err(ViaError::InvalidState) };
    if asked.answer.is_none() && equal.until.is_some_and(|until| Instant::now() >= until) {
        return Err(ViaError::Timeout);
    }
    answer(state, id)
}
