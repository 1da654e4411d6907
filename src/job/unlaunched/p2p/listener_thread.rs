//! The listener's thread: lets callers in, and notices which peers are gone.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::dial::{CallError, handles_of, watch};
use super::peer_ids::{Asked, PeerConnection, Who, Wire};
use super::state::{Arrival, ListenerState, PeerRoute};
use super::tcp_acceptor::TcpAcceptor;
use crate::job::launched::connection::Handles;
use crate::job::launched::member::{JoinError, Notice};
use crate::job::launched::roster::{Candidate, Roster};
use crate::job::launched::socket::{Received, receive};
use crate::job::launched::unauthenticated::{Applicant, Unauthenticated};
use crate::job::launched::watchers::Watchers;
use crate::job::launched::wire::{Decline, How, Refusal, Reply, Request, decode, short_reason};
use crate::job::plumbing::env::JobName;
use crate::job::plumbing::poll::poll_until;

/// How long to leave all alone when the kernel has no memory for a poll.
const STARVED_PAUSE: Duration = Duration::from_millis(10);

/// Words of one peer that are read before others get their turn.
const WORDS_MAX: usize = 16;

/// The owner of a ready file descriptor.
#[derive(Clone, Copy)]
enum Source {
    Waker,
    Listener,
    TcpAcceptor,
    UnauthenticatedConnection(u64),
    PeerConnection(u32),
    Process(u32),
    Watcher(u64),
    /// A node that was called, by its place in the list of those that have not answered.
    Asked(usize),
}

struct ListenerThread {
    shared: Arc<ListenerState>,
    unauthenticated: Unauthenticated,
    tcp_acceptor: TcpAcceptor,
    watchers: Watchers,
    /// Those who look see this process, and no other.
    roster: Roster<Handles>,
}

pub(super) fn start(
    shared: Arc<ListenerState>,
    unauthenticated: Unauthenticated,
    tcp_acceptor: TcpAcceptor,
) -> io::Result<JoinHandle<()>> {
    let (watchers, roster) = (Watchers::default(), alone(&shared)?);
    let keeper = ListenerThread { shared, unauthenticated, tcp_acceptor, watchers, roster };
    vm::threads::spawn("standpipe-p2p", move || keeper.run())
}

/// This process as the only one there is.
fn alone(shared: &ListenerState) -> io::Result<Roster<Handles>> {
    let handles: Handles = [shared.config.segments[0].try_clone()?].into();
    let itself = Candidate { rank: 0, size: 1, pid: std::process::id(), program: String::new(), handles };
    let mut roster = Roster::new(1);
    roster.join(itself, 0).expect("nobody else has joined");
    Ok(roster)
}

impl ListenerThread {
    fn run(mut self) {
        while !self.shared.peer_ids().is_closed() {
            let (lines, unanswered) = {
                let peer_ids = self.shared.peer_ids();
                (peer_ids.lines(), peer_ids.unanswered())
            };
            for source in self.sleep(&lines, &unanswered) {
                match source {
                    Source::Waker => self.shared.waker.clear(),
                    Source::Listener => self.unauthenticated.accept(Instant::now()),
                    Source::TcpAcceptor => self.tcp_acceptor.accept(&self.shared),
                    Source::UnauthenticatedConnection(id) => {
                        if let Some(applicant) = self.unauthenticated.hear(id) {
                            self.consider(applicant);
                        }
                    }
                    Source::PeerConnection(number) => self.hear(number),
                    Source::Process(number) => {
                        // It may have taken leave just before it ended.
                        self.hear(number);
                        self.shared.lose(number, How::Vanished);
                    }
                    Source::Asked(at) => self.shared.hear_late(&unanswered[at].0),
                    Source::Watcher(id) => self.watchers.hear(id, Instant::now()),
                }
            }
            self.unauthenticated.expire(Instant::now());
            self.tcp_acceptor.expire(Instant::now());
            self.serve_watchers(Instant::now());
        }
    }

    /// Has the node show its counters where somebody looks, and tells them so.
    fn serve_watchers(&mut self, now: Instant) {
        if self.watchers.is_look_due(now) {
            (self.shared.config.tell)(Notice::Look);
        }
        self.watchers.tell(&self.roster, now);
    }

    /// Sleeps until something is ready or due.
    fn sleep(&self, lines: &[(u32, Arc<PeerConnection>)], unanswered: &[(Who, Arc<Asked>)]) -> Vec<Source> {
        let mut sources = vec![Source::Waker];
        let mut fds = vec![PollFd::new(&self.shared.waker, PollFlags::IN)];
        let mut add_for = |source, fd, flags| {
            sources.push(source);
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        };
        for (id, socket, flags) in self.watchers.sockets() {
            add_for(Source::Watcher(id), socket.as_fd(), flags);
        }
        let mut add = |source, fd| add_for(source, fd, PollFlags::IN);
        if let Some(listener) = self.unauthenticated.listener() {
            add(Source::Listener, listener.as_fd());
        }
        if let Some(listener) = self.tcp_acceptor.listener() {
            add(Source::TcpAcceptor, listener.as_fd());
        }
        for (id, socket) in self.unauthenticated.sockets() {
            add(Source::UnauthenticatedConnection(id), socket.as_fd());
        }
        for (number, line) in lines {
            add(Source::PeerConnection(*number), line.socket());
            if let Some(process) = line.process() {
                add(Source::Process(*number), process);
            }
        }
        for (at, (_, asked)) in unanswered.iter().enumerate() {
            add(Source::Asked(at), asked.socket.as_fd());
        }
        let until = self.unauthenticated.expire_at().into_iter().chain(self.tcp_acceptor.expire_at());
        let until = until.chain(self.watchers.due_at()).min();
        if let Err(error) = poll_until(&mut fds, until) {
            // For want of memory; there is nobody to tell, and it may be over soon.
            tracing::warn!(%error, "the listener cannot poll");
            std::thread::sleep(STARVED_PAUSE);
        }
        let ready = sources.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        ready.map(|(source, _)| *source).collect()
    }

    /// Lets an unauthenticated connection in, or says why not.
    fn consider(&mut self, mut applicant: Applicant) {
        if let Ok(Request::Watch { secret }) = &applicant.request {
            return match secret.matches(&self.shared.looking) {
                true => self.watchers.admit(applicant, &self.roster),
                false => applicant.refuse(Refusal::Secret),
            };
        }
        let request = std::mem::replace(&mut applicant.request, Err(Refusal::Malformed));
        let (secret, who, place, places) = match request {
            Ok(Request::Meet { secret, node, proof, place, places }) => {
                (secret, Who { node: JobName::of(&node), proof }, place, places)
            }
            Ok(_) => return applicant.refuse(Refusal::Malformed),
            Err(refusal) => return applicant.refuse(refusal),
        };
        let (fds, pid) = (std::mem::take(&mut applicant.fds), applicant.pid);
        let Some(handles) = handles_of(pid, fds) else {
            return applicant.answer(&Reply::Declined(Decline::NoDescriptors));
        };
        let expected = match secret.matches(&self.shared.secret) {
            true => self.shared.expect(&who),
            false => Err(Decline::Secret),
        };
        match expected {
            Err(decline) => applicant.answer(&Reply::Declined(decline)),
            // It has given up: nobody need take its memory for a peer's.
            Ok(number) if applicant.has_hung_up() => {
                self.shared.peer_ids().give_back(number);
                self.shared.settle(&who);
            }
            Ok(number) => {
                let arrival = Arrival { number, place, places, way: PeerRoute::Near(handles) };
                if let Err(decline) = self.let_in(&who, arrival, &applicant) {
                    // Nobody has used its number.
                    self.shared.peer_ids().give_back(number);
                    applicant.answer(&Reply::Declined(decline));
                }
                self.shared.settle(&who);
            }
        }
    }

    /// Makes it a peer, and tells it so; or says why not. Where this node is closing, or is its peer already,
    /// it hears that the connection ends.
    fn let_in(&self, who: &Who, arrival: Arrival, applicant: &Applicant) -> Result<(), Decline> {
        let (shared, number, pid) = (&*self.shared, arrival.number, applicant.pid);
        let unfit = |error: &dyn std::fmt::Display| Decline::Unfit { what: short_reason(&error.to_string()) };
        let socket = applicant.socket.try_clone().map_err(|error| unfit(&error))?;
        let process = watch(&applicant.socket, pid).map_err(|error| match error {
            CallError::Join(JoinError::Io(error)) => {
                unfit(&format!("it cannot watch process {pid}: {error}"))
            }
            _ => Decline::Unseen { pid },
        })?;
        let line = PeerConnection { who: who.clone(), wire: Wire::Near { socket, process } };
        let met = Reply::Met { place: number, places: shared.config.places };
        match shared.enter(line, arrival, Some(&met)) {
            Err(CallError::Unfit(what)) => Err(unfit(&what)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Reads what a peer says.
    fn hear(&self, number: u32) {
        for _ in 0..WORDS_MAX {
            let Some(line) = self.shared.peer_ids().line(number) else { return };
            let socket = match &line.wire {
                Wire::Near { socket, .. } => socket,
                Wire::Far(stream) => return self.hear_far(number, stream),
            };
            match receive(socket) {
                Received::Nothing => return,
                Received::Datagram { bytes, fds } if fds.is_empty() => match decode(&bytes) {
                    Ok(Request::Serve { .. }) => (self.shared.config.tell)(Notice::Serve),
                    Ok(Request::Leave) => return self.shared.lose(number, How::Left),
                    Ok(_) | Err(_) => return self.cut_off(number),
                },
                Received::Closed => return self.shared.lose(number, How::Vanished),
                Received::Datagram { .. } | Received::TooLong => return self.cut_off(number),
            }
        }
    }

    /// A far peer has nothing to say by its connection: it can end.
    fn hear_far(&self, number: u32, mut stream: &TcpStream) {
        match stream.read(&mut [0]) {
            Ok(0) => self.shared.lose(number, How::Vanished),
            Ok(_) => self.cut_off(number),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => {
                tracing::debug!(peer = number, %error, "the peer's connection has broken");
                self.shared.lose(number, How::Vanished);
            }
        }
    }

    fn cut_off(&self, number: u32) {
        tracing::warn!(peer = number, "the peer breaks the rules of its connection; it is cut off");
        self.shared.lose(number, How::Vanished);
    }
}
