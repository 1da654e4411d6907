//! The broker's loop: sleeps until something happens at the listener, an unauthenticated connection, a
//! member's connection or a member's process, and never waits for anyone in particular.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use vm::spawn::peer_process;

use crate::base::lock::lock;
use crate::job::launched::broker::forgotten::Forgotten;
use crate::job::launched::broker::round::{Command, Round};
use crate::job::launched::connection::{Connection, Handles, STARVED_PAUSE};
use crate::job::launched::roster::{Candidate, Mail, Roster, Standing};
use crate::job::launched::socket::{HANDLES, Received, listen_at, receive};
use crate::job::launched::unauthenticated::{Applicant, Unauthenticated};
use crate::job::launched::watchers::Watchers;
use crate::job::launched::wire::{How, ROUNDS_MAX, Refusal, Reply, Request, decode};
use crate::job::plumbing::env::JobName;
use crate::job::plumbing::poll::{Waker, poll_until};
use crate::job::plumbing::secret::Secret;

/// Connections that have not joined: one for each rank, and some for strangers.
const STRANGERS_MAX: usize = 64;
/// How long the launcher may take to say how a process ended whose connection has gone. It takes well under a
/// millisecond; a process that the launcher did not start itself is declared to have vanished after this.
const VERDICT_MAX: Duration = Duration::from_millis(30);

/// The facts that decide how a broker serves.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) size: u32,
    pub(super) secret: Secret,
    /// The launcher tells how each process ended.
    pub(super) supervised: bool,
    /// The process that the members descend from.
    pub(super) launcher_pid: u32,
    /// Which round of the job it is, from 0.
    pub(super) round: u32,
}

/// The ranks whose process or connection has gone, or that have taken leave, each once, in the order in which
/// the broker noticed: it does before any member hears of it.
pub(super) type Departed = Mutex<Vec<u32>>;

/// Serves a round of a job.
pub(super) fn serve(
    terms: Terms,
    forgotten: Arc<Forgotten>,
    departed: Arc<Departed>,
) -> std::io::Result<Round> {
    let name = JobName::random()?;
    let listener = listen_at(&name)?;
    let waker = Arc::new(Waker::new()?);
    let (commands, inbox) = channel();
    let service = Service::new(terms, listener, inbox, Arc::clone(&waker), forgotten, departed);
    let rounds = Arc::clone(&service.forgotten);
    let thread = vm::threads::spawn("standpipe-broker", || service.run())?;
    // Before anybody can tell it of an end.
    rounds.add_round();
    Ok(Round { name, commands, waker, thread: Some(thread) })
}

struct Service {
    roster: Roster<Handles>,
    terms: Terms,
    unauthenticated: Unauthenticated,
    members: BTreeMap<u32, Member>,
    watchers: Watchers,
    inbox: Receiver<Command>,
    waker: Arc<Waker>,
    /// Ranks whose processes have ended, as the launcher says, and of which it is to be told once they are
    /// forgotten.
    ended: BTreeSet<u32>,
    forgotten: Arc<Forgotten>,
    departed: Arc<Departed>,
    /// How each process ended that the launcher has told of.
    ends: Vec<(u32, u32, How)>,
    /// How each rank ended without leave, where no launcher tells.
    gone: Vec<(u32, How)>,
    /// The job's next round, once a rank that has left this one opens its node anew.
    next: Option<Round>,
    /// Set while somebody waits until all have left: who may still join, and until when.
    awaited: Option<Awaited>,
}

/// Somebody waits until all have left.
struct Awaited {
    /// The ranks that may still join, and until when.
    ranks: Vec<u32>,
    joined_by: Instant,
    /// A process that waits hears that it is dropped.
    _left: Sender<()>,
}

struct Member {
    line: Connection,
    /// Tells of the process's end even where a child of its own holds the connection open.
    process: OwnedFd,
    /// Set once connection or process has gone: when to stop waiting for the launcher's account.
    verdict_by: Option<Instant>,
}

impl Member {
    /// Whether a leave is among the letters that a member whose connection has gone had sent, which are at
    /// most so many.
    fn has_taken_leave(&self, letters_max: usize) -> bool {
        (0..letters_max)
            .map_while(|_| match receive(&self.line.socket) {
                Received::Datagram { bytes, .. } => Some(matches!(decode(&bytes), Ok(Request::Leave))),
                Received::Nothing | Received::Closed | Received::TooLong => None,
            })
            .any(|is_leave| is_leave)
    }
}

/// The owner of a ready file descriptor.
#[derive(Clone, Copy)]
enum Source {
    Waker,
    Listener,
    UnauthenticatedConnection(u64),
    Connection(u32),
    Process(u32),
    Watcher(u64),
}

type Mails = Vec<Mail<Handles>>;

impl Service {
    fn new(
        terms: Terms,
        listener: OwnedFd,
        inbox: Receiver<Command>,
        waker: Arc<Waker>,
        forgotten: Arc<Forgotten>,
        departed: Arc<Departed>,
    ) -> Self {
        let unauthenticated = Unauthenticated::new(Some(listener), terms.size as usize + STRANGERS_MAX);
        let (members, watchers) = (BTreeMap::new(), Watchers::default());
        let roster = Roster::new(terms.size);
        let ended = BTreeSet::new();
        Self {
            roster,
            terms,
            unauthenticated,
            members,
            watchers,
            inbox,
            waker,
            ended,
            forgotten,
            departed,
            ends: Vec::new(),
            gone: Vec::new(),
            next: None,
            awaited: None,
        }
    }

    /// Serves until told to stop.
    fn run(mut self) {
        loop {
            for source in self.sleep() {
                match source {
                    Source::Waker => {
                        if self.obey().is_break() {
                            // How the last ranks ended.
                            return self.watchers.tell(&self.roster, Instant::now());
                        }
                    }
                    Source::Listener => self.unauthenticated.accept(Instant::now()),
                    Source::UnauthenticatedConnection(id) => {
                        if let Some(applicant) = self.unauthenticated.hear(id) {
                            self.consider(applicant);
                        }
                    }
                    Source::Connection(rank) => self.serve(rank),
                    Source::Process(rank) => {
                        // It may have taken leave just before it ended.
                        self.serve(rank);
                        self.miss(rank);
                    }
                    Source::Watcher(id) => self.watchers.hear(id, Instant::now()),
                }
            }
            self.expire(Instant::now());
            self.tell_forgotten();
            if self.have_left(Instant::now()) {
                self.awaited = None;
            }
        }
    }

    /// Whether all have left, and somebody waits for that.
    fn have_left(&self, now: Instant) -> bool {
        let Some(Awaited { ranks, joined_by, .. }) = &self.awaited else { return false };
        let is_open = |rank: &u32| self.roster.is_open(*rank);
        self.members.is_empty() && (now >= *joined_by || !ranks.iter().any(is_open))
    }

    /// Sleeps until something is ready or due.
    fn sleep(&self) -> Vec<Source> {
        let mut sources = vec![Source::Waker];
        let mut fds = vec![PollFd::new(&*self.waker, PollFlags::IN)];
        let mut until = self.unauthenticated.expire_at();
        let mut add = |source, fd, flags| {
            sources.push(source);
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        };
        if let Some(listener) = self.unauthenticated.listener() {
            add(Source::Listener, listener.as_fd(), PollFlags::IN);
        }
        for (id, socket) in self.unauthenticated.sockets() {
            add(Source::UnauthenticatedConnection(id), socket.as_fd(), PollFlags::IN);
        }
        for (rank, member) in &self.members {
            until = until.into_iter().chain(member.line.flush_at()).chain(member.verdict_by).min();
            if member.verdict_by.is_none() {
                let room = if member.line.wants_room() { PollFlags::OUT } else { PollFlags::empty() };
                add(Source::Connection(*rank), member.line.socket.as_fd(), PollFlags::IN | room);
                add(Source::Process(*rank), member.process.as_fd(), PollFlags::IN);
            }
        }
        for (id, socket, flags) in self.watchers.sockets() {
            add(Source::Watcher(id), socket.as_fd(), flags);
        }
        let awaited = self.awaited.as_ref().map(|awaited| awaited.joined_by);
        let awaited = awaited.filter(|_| self.members.is_empty());
        until = until.into_iter().chain(self.watchers.due_at()).chain(awaited).min();
        if let Err(error) = poll_until(&mut fds, until) {
            // For want of memory; there is nobody to tell, and it may be over soon.
            tracing::warn!(%error, "the broker cannot poll");
            std::thread::sleep(STARVED_PAUSE);
        }
        let ready = sources.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        ready.map(|(source, _)| *source).collect()
    }

    /// Carries out what the owner of the broker asked for.
    fn obey(&mut self) -> std::ops::ControlFlow<()> {
        self.waker.clear();
        while let Ok(command) = self.inbox.try_recv() {
            match command {
                Command::Ended { rank, pid, how } => {
                    self.ended(rank, pid, how);
                    self.ends.push((rank, pid, how));
                    // Its next round has it no more either, whether it has come there or not.
                    self.next.iter().for_each(|next| next.tell(Command::Ended { rank, pid, how }));
                }
                Command::Gone { rank, how } => self.bury(rank, how),
                Command::AwaitLeave { round: 0, ranks, joined_by, left } => {
                    self.awaited = Some(Awaited { ranks, joined_by, _left: left });
                }
                Command::AwaitLeave { round, ranks, joined_by, left } => {
                    let command = Command::AwaitLeave { round: round - 1, ranks, joined_by, left };
                    // A round that has not begun has nobody to wait for.
                    if let Some(next) = &self.next {
                        next.tell(command);
                    }
                }
                Command::Stop => return std::ops::ControlFlow::Break(()),
            }
        }
        std::ops::ControlFlow::Continue(())
    }

    /// A process that the launcher started has ended. If another process has joined in its stead (a shell
    /// started it, say), that one's end is what counts.
    fn ended(&mut self, rank: u32, pid: u32, how: How) {
        self.serve(rank);
        if self.roster.pid(rank).is_some_and(|joined| joined != pid) {
            return self.forgotten.tell(rank);
        }
        self.bury(rank, how);
        self.ended.insert(rank);
    }

    /// Tells the launcher of ended processes that no member reaches by number any more.
    fn tell_forgotten(&mut self) {
        let (roster, forgotten) = (&self.roster, &self.forgotten);
        self.ended.retain(|rank| {
            let is_forgotten = roster.is_forgotten(*rank);
            if is_forgotten {
                forgotten.tell(*rank);
            }
            !is_forgotten
        });
    }

    fn consider(&mut self, mut applicant: Applicant) {
        if let Ok(Request::Watch { secret }) = &applicant.request {
            return match secret.matches(&self.terms.secret) {
                true if self.members.is_empty() && self.next.is_some() => self.send_on(applicant),
                true => self.watchers.admit(applicant, &self.roster),
                false => applicant.refuse(Refusal::Secret),
            };
        }
        match self.examine(&mut applicant) {
            Err(refusal) => match self.once_looked(refusal) {
                Refusal::RankOver { how: How::Left, .. } => self.send_on(applicant),
                refusal => applicant.refuse(refusal),
            },
            Ok((candidate, process)) => {
                let rank = candidate.rank;
                let line = Connection::new(applicant.socket, self.roster.mail_max());
                let mails = self.roster.join(candidate, self.terms.launcher_pid).expect("examined above");
                self.members.insert(rank, Member { line, process, verdict_by: None });
                self.watchers.note(rank);
                // It may have left an earlier round.
                lock(&self.departed).retain(|departed| *departed != rank);
                self.deliver(mails);
            }
        }
    }

    /// The state of a rank that seems to be taken. Its process may have ended just now, without anybody
    /// having looked, or be waiting for the launcher's account of its end.
    fn once_looked(&mut self, refusal: Refusal) -> Refusal {
        let Refusal::RankTaken { rank, .. } = refusal else { return refusal };
        self.serve(rank);
        let has_ended = |member: &Member| {
            let mut process = [PollFd::new(&member.process, PollFlags::IN)];
            poll_until(&mut process, Some(Instant::now())).is_ok() && !process[0].revents().is_empty()
        };
        if self.members.get(&rank).is_some_and(has_ended) {
            self.miss(rank);
        }
        match self.roster.standing(rank) {
            Standing::Over(how) => Refusal::RankOver { rank, how },
            _ if self.members.get(&rank).is_some_and(|member| member.verdict_by.is_some()) => {
                Refusal::RankOver { rank, how: How::Vanished }
            }
            _ => refusal,
        }
    }

    /// Sends whoever has left this round on to the next one, which begins if it has not.
    fn send_on(&mut self, applicant: Applicant) {
        if self.terms.round + 1 == ROUNDS_MAX {
            return applicant.refuse(Refusal::Rounds { most: ROUNDS_MAX });
        }
        let next = match self.next.take() {
            Some(next) => Ok(next),
            None => self.begin_next(),
        };
        match next {
            Ok(next) => {
                applicant.answer(&Reply::Next { name: next.name.bytes() });
                self.next = Some(next);
            }
            Err(error) => {
                tracing::warn!(%error, "the job's next round cannot begin");
                let errno = error.raw_os_error().unwrap_or_else(|| Errno::NOMEM.raw_os_error());
                applicant.refuse(Refusal::NoRound { errno });
            }
        }
    }

    fn begin_next(&self) -> std::io::Result<Round> {
        let terms = Terms { round: self.terms.round + 1, ..self.terms.clone() };
        let (forgotten, departed) = (Arc::clone(&self.forgotten), Arc::clone(&self.departed));
        let next = serve(terms, forgotten, departed)?;
        let told = |(rank, pid, how): &(u32, u32, How)| Command::Ended { rank: *rank, pid: *pid, how: *how };
        self.ends.iter().map(told).for_each(|end| next.tell(end));
        let gone = |(rank, how): &(u32, How)| Command::Gone { rank: *rank, how: *how };
        self.gone.iter().map(gone).for_each(|end| next.tell(end));
        Ok(next)
    }

    fn examine(&self, applicant: &mut Applicant) -> Result<(Candidate<Handles>, OwnedFd), Refusal> {
        let request = std::mem::replace(&mut applicant.request, Err(Refusal::Malformed))?;
        let Request::Join { secret, rank, size, program } = request else { return Err(Refusal::Malformed) };
        if !secret.matches(&self.terms.secret) {
            return Err(Refusal::Secret);
        }
        self.roster.judge(rank, size)?;
        let handles = std::mem::take(&mut applicant.fds);
        if handles.len() != HANDLES {
            return Err(Refusal::Malformed);
        }
        let pid = applicant.pid;
        let process =
            peer_process(applicant.socket.as_fd(), pid).map_err(|error| {
                match Errno::from_io_error(&error) {
                    Some(Errno::SRCH | Errno::INVAL) | None => Refusal::Unseen { pid },
                    Some(errno) => Refusal::Unwatched { pid, errno: errno.raw_os_error() },
                }
            })?;
        Ok((Candidate { rank, size, pid, program, handles: handles.into() }, process))
    }

    /// Reads what `rank` says and sends what waits for it.
    fn serve(&mut self, rank: u32) {
        // An honest member has no more than this on its way; others get their turn before more is read.
        for _ in 0..self.roster.mail_max() {
            let Some(member) = self.members.get_mut(&rank) else { return };
            let bytes = match receive(&member.line.socket) {
                Received::Datagram { bytes, fds } if fds.is_empty() => bytes,
                Received::Nothing => break,
                Received::Closed => return self.miss(rank),
                Received::Datagram { .. } | Received::TooLong => return self.expel(rank),
            };
            match decode(&bytes) {
                Ok(Request::Leave) => return self.bury(rank, How::Left),
                Ok(Request::Connect { peer }) => match self.roster.connect(rank, peer) {
                    Ok(mail) => self.deliver(mail.into_iter().collect()),
                    Err(_) => return self.expel(rank),
                },
                Ok(Request::Serve { peer }) => match self.roster.serve(peer) {
                    Ok(mail) => self.deliver(mail.into_iter().collect()),
                    Err(_) => return self.expel(rank),
                },
                Ok(Request::Heard { rank: gone }) => {
                    if self.roster.heard(rank, gone).is_err() {
                        return self.expel(rank);
                    }
                }
                Ok(Request::Join { .. } | Request::Meet { .. } | Request::Watch { .. } | Request::Look)
                | Err(_) => {
                    return self.expel(rank);
                }
            }
        }
        if let Some(member) = self.members.get_mut(&rank)
            && member.line.flush(Instant::now()).is_err()
        {
            self.miss(rank);
        }
    }

    /// A member broke the protocol.
    fn expel(&mut self, rank: u32) {
        tracing::warn!(rank, "a member broke the joining protocol and is out");
        self.bury(rank, How::Vanished);
    }

    /// A member's connection or process has gone without leave.
    fn miss(&mut self, rank: u32) {
        let mails = self.notice_missing(rank);
        self.deliver(mails);
    }

    fn notice_missing(&mut self, rank: u32) -> Mails {
        let letters_max = self.roster.mail_max();
        let Some(member) = self.members.get_mut(&rank) else { return Vec::new() };
        // Others may find that it reads no more before its last words are here.
        if member.has_taken_leave(letters_max) {
            return self.remove(rank, How::Left);
        }
        if !self.terms.supervised {
            return self.remove(rank, How::Vanished);
        }
        member.verdict_by.get_or_insert_with(|| Instant::now() + VERDICT_MAX);
        self.note_departed(rank);
        Vec::new()
    }

    fn note_departed(&self, rank: u32) {
        let mut departed = lock(&self.departed);
        if !departed.contains(&rank) {
            departed.push(rank);
        }
    }

    fn bury(&mut self, rank: u32, how: How) {
        let mails = self.remove(rank, how);
        self.deliver(mails);
    }

    fn remove(&mut self, rank: u32, how: How) -> Mails {
        self.members.remove(&rank);
        self.note_departed(rank);
        if how != How::Left && !self.terms.supervised {
            // No launcher tells the next round.
            self.gone.push((rank, how));
            self.next.iter().for_each(|next| next.tell(Command::Gone { rank, how }));
        }
        self.watchers.note(rank);
        tracing::debug!(rank, %how, "a rank is over");
        self.roster.over(rank, how)
    }

    /// Posts the mails, and those that follow from a member turning out to be unreachable.
    fn deliver(&mut self, mails: Mails) {
        let mut mails = VecDeque::from(mails);
        while let Some(Mail { to, reply, handles }) = mails.pop_front() {
            let Some(member) = self.members.get_mut(&to) else { continue };
            if member.verdict_by.is_none() && member.line.post(&reply, handles).is_err() {
                mails.extend(self.notice_missing(to));
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        self.unauthenticated.expire(now);
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let ranks: Vec<u32> = self.members.keys().copied().collect();
        for rank in ranks {
            let Some(member) = self.members.get(&rank) else { continue };
            if due(member.verdict_by) {
                self.bury(rank, How::Vanished);
            } else if due(member.line.flush_at()) {
                self.serve(rank);
            }
        }
        if self.watchers.is_look_due(now) {
            // A process that stands still needs no reminder for each time that somebody looked meanwhile.
            self.members.values_mut().for_each(|member| member.line.offer(&Reply::Look));
        }
        self.watchers.tell(&self.roster, now);
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;
    use crate::job::launched::socket::send;
    use crate::job::launched::wire::encode;

    /// A broker with one member, rank 0 of 2, whose end of the connection this returns.
    fn with_member(supervised: bool) -> (Service, OwnedFd) {
        let listener = listen_at(&JobName::random().expect("random")).expect("a socket");
        let (_, inbox) = std::sync::mpsc::channel();
        let waker = Arc::new(Waker::new().expect("an event"));
        let secret = Secret::random().expect("random");
        let forgotten = Arc::new(Forgotten::new().expect("an event"));
        let terms = Terms { size: 2, secret, supervised, launcher_pid: 1, round: 0 };
        let mut service = Service::new(terms, listener, inbox, waker, forgotten, Arc::default());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair");
        let process = pidfd_open(getpid(), PidfdFlags::empty()).expect("ourselves");
        let line = Connection::new(ours, service.roster.mail_max());
        let candidate = Candidate { rank: 0, size: 2, pid: 1, program: String::new(), handles: [].into() };
        service.roster.join(candidate, 1).expect("open");
        service.members.insert(0, Member { line, process, verdict_by: None });
        (service, theirs)
    }

    #[test]
    fn whoever_took_leave_has_left_even_if_a_letter_to_it_is_the_first_to_notice() {
        for supervised in [false, true] {
            let (mut service, theirs) = with_member(supervised);
            for request in [Request::Connect { peer: 1 }, Request::Leave] {
                send(&theirs, &encode(&request), &[]).expect("room");
            }
            drop(theirs);
            service.deliver(vec![Mail {
                to: 0,
                reply: Reply::Lost { rank: 1, how: How::Left },
                handles: None,
            }]);
            assert!(matches!(service.roster.standing(0), Standing::Over(How::Left)), "{supervised}");
        }
    }

    #[test]
    fn a_rank_whose_process_has_ended_is_over_for_who_comes_in_its_place() {
        let taken = Refusal::RankTaken { rank: 0, pid: 1, program: String::new() };
        for supervised in [false, true] {
            let (mut service, theirs) = with_member(supervised);
            assert_eq!(service.once_looked(taken.clone()), taken, "it runs");
            let mut child = std::process::Command::new("true").spawn().expect("a child");
            let number = rustix::process::Pid::from_child(&child);
            let process =
                pidfd_open(number, PidfdFlags::empty()).expect("it is there until it is waited for");
            child.wait().expect("its end");
            service.members.get_mut(&0).expect("a member").process = process;
            let over = Refusal::RankOver { rank: 0, how: How::Vanished };
            assert_eq!(service.once_looked(taken.clone()), over, "the process has ended");
            drop(theirs);
            let (mut service, theirs) = with_member(supervised);
            send(&theirs, &encode(&Request::Leave), &[]).expect("room");
            drop(theirs);
            let left = Refusal::RankOver { rank: 0, how: How::Left };
            assert_eq!(service.once_looked(taken.clone()), left, "it took leave");
        }
    }

    #[test]
    fn whoever_did_not_take_leave_is_missed() {
        let (mut service, theirs) = with_member(false);
        drop(theirs);
        service.deliver(vec![Mail { to: 0, reply: Reply::Look, handles: None }]);
        assert!(matches!(service.roster.standing(0), Standing::Over(How::Vanished)));
    }
}
