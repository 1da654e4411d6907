//! How connections come about and end, as the messages of both ends have it.

use std::collections::HashMap;

use standpipe::{Node, Rank};

use super::descriptor::status;
use super::error::{ErrorCode, ViaError};
use super::meeting::{Asked, Equal, Request, STRANGERS_MAX, agree};
use super::state::State;
use super::vi::{Connection, ViState};
use super::wire::{Cause, Greeting, Link, Message, Terms};

impl State {
    /// Connects a VI with the other end's.
    pub(super) fn connect_vi(&mut self, id: u32, peer: Rank, link: Link) {
        if let Some(vi) = self.vis.get_mut(&id) {
            vi.state = ViState::Connected;
            vi.connection = Some(Connection { peer, link, found: HashMap::new() });
        }
    }

    /// Has a VI be idle again: what was posted ends, and messages of this attempt are of none.
    pub(super) fn idle_vi(&mut self, id: u32) {
        self.meeting.asked.remove(&id);
        self.meeting.accepting.remove(&id);
        let Some(vi) = self.vis.get_mut(&id) else { return };
        let had = vi.state;
        vi.state = ViState::Idle;
        vi.attempt = vi.attempt.wrapping_add(1);
        vi.connection = None;
        if matches!(had, ViState::Connected | ViState::Error) {
            self.flush(id, status::FLUSHED);
        }
    }

    /// An attempt has come to nothing: the VI is idle, and receives that were posted stay.
    fn give_up(&mut self, id: u32) {
        if let Some(vi) = self.vis.get_mut(&id).filter(|vi| vi.state == ViState::ConnectPending) {
            vi.state = ViState::Idle;
            vi.attempt = vi.attempt.wrapping_add(1);
        }
    }

    /// The VI's end of its connection, as the other end is told.
    pub(super) fn link_of(&self, id: u32) -> Link {
        Link { vi: id, attempt: self.vis.get(&id).map_or(0, |vi| vi.attempt) }
    }

    /// Takes down a VI's connection, or what it has asked for, and tells the other end.
    pub(super) fn disconnect(&mut self, node: &Node, id: u32) {
        let from = self.link_of(id);
        let Some(vi) = self.vis.get(&id) else { return };
        let connected = vi.connection.as_ref().map(|other| (other.peer, other.link));
        let has_to_tell = vi.state == ViState::Connected;
        let is_writing = vi.send.works.is_writing();
        let mut to_withdraw = self.meeting.asked.get(&id).map_or(Vec::new(), |asked| asked.peers.clone());
        to_withdraw.extend(connected.map(|(peer, _)| peer));
        self.idle_vi(id);
        if let (Some((peer, to)), true) = (connected, has_to_tell) {
            let message = match is_writing {
                true => Message::Broke { to, cause: Cause::WriteAborted },
                false => Message::Disconnect { to },
            };
            self.send(node, peer, message, &[]);
        }
        // It may have been between equals, and the other end does not know of it yet.
        for peer in to_withdraw {
            self.send(node, peer, Message::Withdraw { from }, &[]);
        }
    }

    /// A client asks: the answer, where nobody waits for it.
    pub(super) fn on_connect(&mut self, peer: Rank, from: Link, greeting: Greeting) -> Option<Message> {
        let mut waiters = self.meeting.waiters.iter_mut();
        let waits =
            waiters.position(|waiter| waiter.came.is_none() && waiter.discriminator == greeting.wanted);
        let Some(place) = waits else { return Some(Message::NoMatch { to: from }) };
        let number = self.new_id();
        let waiter = &mut self.meeting.waiters[place];
        waiter.came = Some(number);
        let request = Request { nic: waiter.nic, peer, link: from, greeting };
        self.meeting.requests.insert(number, request);
        None
    }

    /// An attempt of this process's has been answered with a refusal.
    pub(super) fn on_refusal(&mut self, to: Link, peer: Rank, why: ViaError) {
        let asked = self.meeting.asked.get_mut(&to.vi);
        let is_open = |asked: &&mut Asked| asked.attempt == to.attempt && asked.is_open_to(peer);
        if let Some(asked) = asked.filter(is_open) {
            asked.answer = Some(Err(why));
            self.give_up(to.vi);
        }
    }

    /// A server has accepted an attempt of this process's: whether it is still wanted.
    pub(super) fn on_accept(&mut self, peer: Rank, to: Link, from: Link, terms: Terms) -> bool {
        let asked = self.meeting.asked.get_mut(&to.vi);
        let is_open = |asked: &&mut Asked| {
            asked.attempt == to.attempt && asked.is_open_to(peer) && asked.equal.is_none()
        };
        let Some(asked) = asked.filter(is_open) else { return false };
        asked.answer = Some(Ok(terms));
        self.connect_vi(to.vi, peer, from);
        true
    }

    /// A client has heard that it is accepted.
    pub(super) fn on_accepted(&mut self, to: Link, is_wanted: bool) {
        if let Some((attempt, heard)) = self.meeting.accepting.get_mut(&to.vi)
            && *attempt == to.attempt
        {
            *heard = Some(is_wanted);
        }
    }

    /// A process does not want what it has asked for any more.
    pub(super) fn on_withdraw(&mut self, peer: Rank, from: Link) {
        self.meeting.requests.retain(|_, request| (request.peer, request.link) != (peer, from));
        self.meeting.strangers.retain(|(rank, link, _)| (*rank, *link) != (peer, from));
        let is_its = |other: &Connection| other.peer == peer && other.link == from;
        let mut vis = self.vis.iter();
        let of_it =
            vis.find(|(_, vi)| vi.state == ViState::Connected && vi.connection.as_ref().is_some_and(is_its));
        if let Some(id) = of_it.map(|(id, _)| *id) {
            self.break_vi(id, status::FLUSHED);
            self.tell_vi_error(id, ErrorCode::ConnectionLost);
        }
    }

    /// An equal asks for a connection, for which this process has asked, or may ask later.
    pub(super) fn on_peer_connect(&mut self, node: &Node, peer: Rank, from: Link, greeting: Greeting) {
        let mut all: Vec<_> = self.meeting.asked.iter().collect();
        all.sort_by_key(|(id, _)| **id);
        let is_met = |asked: &Asked| {
            let is_its = |equal: &Equal| equal.own == greeting.wanted && equal.wanted == greeting.own;
            asked.is_open_to(peer) && asked.equal.as_ref().is_some_and(is_its)
        };
        // A VI is no equal of its own.
        let own = (node.rank() == peer).then_some(from.vi);
        match all.into_iter().find(|(id, asked)| Some(**id) != own && is_met(asked)).map(|(id, _)| *id) {
            Some(id) => self.meet(node, id, (peer, from), greeting.terms),
            None if self.meeting.strangers.len() < STRANGERS_MAX => {
                self.meeting.strangers.push((peer, from, greeting));
            }
            None => {}
        }
    }

    /// Whether an equal has asked before for what a VI asks for now: connects them then.
    pub(super) fn meet_stranger(&mut self, node: &Node, id: u32) {
        let Some(asked) = self.meeting.asked.get(&id) else { return };
        let Some(equal) = &asked.equal else { return };
        let mut strangers = self.meeting.strangers.iter();
        let place = strangers.position(|(peer, link, greeting)| {
            asked.is_open_to(*peer)
                && greeting.wanted == equal.own
                && greeting.own == equal.wanted
                && (*peer, link.vi) != (node.rank(), id)
        });
        if let Some(place) = place {
            let (peer, link, greeting) = self.meeting.strangers.remove(place);
            self.meet(node, id, (peer, link), greeting.terms);
        }
    }

    /// Connects two equals, if they agree; each finds the same.
    fn meet(&mut self, node: &Node, id: u32, (peer, link): (Rank, Link), terms: Terms) {
        self.tell_equal(node, id, peer);
        let from = self.link_of(id);
        let Some(own) = self.vis.get(&id).map(|vi| vi.attributes.terms) else { return };
        let Some(asked) = self.meeting.asked.get_mut(&id) else { return };
        let agreed = agree(&own, &terms);
        asked.answer = Some(agreed.map(|()| terms));
        let told = asked.equal.as_mut().map_or(Vec::new(), |equal| std::mem::take(&mut equal.told));
        asked.peers = vec![peer];
        for other in told.into_iter().filter(|other| *other != peer) {
            self.send(node, other, Message::Withdraw { from }, &[]);
        }
        match agreed {
            Ok(()) => self.connect_vi(id, peer, link),
            Err(_) => self.give_up(id),
        }
    }

    /// Tells another process that a VI wants to be connected with an equal, unless it has been told.
    pub(super) fn tell_equal(&mut self, node: &Node, id: u32, peer: Rank) {
        let from = self.link_of(id);
        let Some(terms) = self.vis.get(&id).map(|vi| vi.attributes.terms) else { return };
        let equal = self.meeting.asked.get_mut(&id).and_then(|asked| asked.equal.as_mut());
        let Some(equal) = equal.filter(|equal| !equal.told.contains(&peer)) else { return };
        equal.told.push(peer);
        let (own, wanted) = (equal.own.clone(), equal.wanted.clone());
        let greeting = Greeting { terms, process: equal.process, own, wanted };
        self.send(node, peer, Message::PeerConnect { from }, &greeting.to_bytes());
    }

    /// Ends an attempt whose time has passed, or whose peer is lost, and tells the other end.
    pub(super) fn end_attempt(&mut self, node: &Node, id: u32) {
        let from = self.link_of(id);
        let Some(asked) = self.meeting.asked.remove(&id) else { return };
        self.give_up(id);
        for peer in asked.peers {
            self.send(node, peer, Message::Withdraw { from }, &[]);
        }
    }

    /// A peer is lost: who waits for it waits in vain.
    pub(super) fn on_lost_asked(&mut self, peer: Rank) {
        self.meeting.requests.retain(|_, request| request.peer != peer);
        self.meeting.strangers.retain(|(rank, _, _)| *rank != peer);
        let is_in_vain = |asked: &Asked| asked.is_open_to(peer) && asked.peers == [peer];
        let is_any = |asked: &Asked| asked.equal.as_ref().is_some_and(|equal| equal.is_any);
        let of_it = self.meeting.asked.iter();
        let of_it = of_it.filter(|(_, asked)| is_in_vain(asked) && !is_any(asked));
        let links: Vec<Link> = of_it.map(|(id, asked)| Link { vi: *id, attempt: asked.attempt }).collect();
        for link in links {
            self.on_refusal(link, peer, ViaError::NotReachable);
        }
    }
}
