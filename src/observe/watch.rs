//! Looking at a running job of this user from outside: how much each rank does, and by which mechanism.
//!
//! ```no_run
//! for job in standpipe::watch::jobs()? {
//!     let mut watch = job.watch()?;
//!     for rank in watch.look()?.ranks {
//!         println!("{}: {} puts", rank.rank, rank.stats().total(standpipe::Operation::Put).count);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A rank copies its counters into memory that the watcher reads when it is told that somebody looks, and not
//! otherwise: a job that nobody watches does nothing for this. Watching cannot change anything in a job. It
//! needs the job's secret. [`jobs()`] finds it where the processes of the same user have it: in their
//! environment, or, of a node that nobody launched, in the memory that it shares with peers.

mod elsewhere;
mod jobs;
mod rates;

use std::time::{Duration, Instant};

pub use self::elsewhere::{Elsewhere, elsewhere};
pub use self::jobs::{Job, jobs};
pub use self::rates::{Rate, Rates};
pub use crate::job::launched::{How, JoinError, LookError};
pub use crate::transport::shm::stats_page::peers::{Busiest, GrantPeers, Peers};
pub use engine::GrantPeerCounters;
pub use engine::node::RegistrationCounters;
pub use engine::registration::{PeerCounters, TableCounters};

use crate::counters::latency::Latencies;
use crate::counters::stats::Stats;
use crate::job::launched::Watcher;
use crate::job::plumbing::JobEnv;
use crate::transport::shm::stats_page::latencies::read_latencies;
use crate::transport::shm::stats_page::peers::{read_grant_peers, read_peers};
use crate::transport::shm::stats_page::{self, PageSnapshot, Part};
use engine::{Counters, Nanos, Rank};

/// How long being let in may take.
const ATTACH_MAX: Duration = Duration::from_secs(5);
/// How long a look waits for ranks that compute, or do not run.
const ANSWER_MAX: Duration = Duration::from_millis(200);
/// The first and longest pause between two looks whether they have answered.
const PAUSES: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(20));

/// A job being watched. It may be watched by one thread at a time; dropping it ends that, and the job does
/// not notice.
#[derive(Debug)]
pub struct Watch {
    watcher: Watcher,
    /// The counters that each rank has shown so far, in the order of [`PARTS`].
    shown: Vec<[Option<PageSnapshot>; 2]>,
    /// When each rank was first seen to show anything, on its own clock.
    since: Vec<Option<Nanos>>,
    /// The counters that each rank has shown of its peers.
    peers: Vec<Option<Peers>>,
    grant_peers: Vec<Option<GrantPeers>>,
    latencies: Vec<Option<Latencies>>,
    /// The numbers of peers are below this.
    peers_end: u32,
    ended: bool,
}

const PARTS: [Part; 2] = [Part::Direct, Part::Engine];

/// The state of a job at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The process that started the job; zero where it is out of sight.
    pub launcher_pid: u32,
    /// Whether the job is over: no later look gives anything else.
    pub ended: bool,
    /// Every rank, in order.
    pub ranks: Vec<RankView>,
}

/// The state of one rank at one time.
#[derive(Clone, Debug)]
pub struct RankView {
    /// Its number.
    pub rank: Rank,
    /// Its process, once it has joined.
    pub pid: Option<u32>,
    /// Its fate.
    pub state: State,
    shown: [Option<PageSnapshot>; 2],
    /// When this watch first saw anything of it, on its own clock.
    since: Option<Nanos>,
    peers: Option<Peers>,
    grant_peers: Option<GrantPeers>,
    latencies: Option<Latencies>,
}

/// The fate of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It has not joined yet.
    Awaited,
    /// It is a member of the job.
    Running,
    /// It is a member, but did not answer this look: it is stopped, or has no core to run on, or shows
    /// nothing.
    Silent,
    /// It is gone. Its figures are those of its end, unless it did not come to show them.
    Over(How),
}

impl Watch {
    /// Watches the job that `env` invites to, whatever rank that is for.
    ///
    /// # Errors
    /// When there is no such job any more, or its launcher refuses.
    pub fn attach(env: &JobEnv) -> Result<Watch, JoinError> {
        let watcher = Watcher::attach(env, Instant::now() + ATTACH_MAX)?;
        let shown = watcher.places().iter().map(|_| [None, None]).collect();
        let since = watcher.places().iter().map(|_| None).collect();
        let peers = watcher.places().iter().map(|_| None).collect();
        let grant_peers = watcher.places().iter().map(|_| None).collect();
        let latencies = watcher.places().iter().map(|_| None).collect();
        let peers_end = watcher.places().len() as u32;
        Ok(Watch { watcher, shown, since, peers, grant_peers, latencies, peers_end, ended: false })
    }

    /// The same for a node that nobody launched: it numbers its peers itself.
    fn of_node(self) -> Watch {
        Watch { peers_end: u32::MAX, ..self }
    }

    /// The process that started the job; zero where it is out of sight.
    pub fn launcher_pid(&self) -> u32 {
        self.watcher.launcher_pid()
    }

    /// How many ranks the job has.
    pub fn size(&self) -> u32 {
        self.watcher.places().len() as u32
    }

    /// Looks at all ranks. Takes a few hundred microseconds where all make progress, wait or move data, and
    /// up to 200 ms where one computes or does not run. Between two looks the job does nothing for the
    /// watcher.
    ///
    /// # Errors
    /// When the launcher says what no launcher says, or the system refuses to talk to it. The end of the job
    /// is no error: [`Snapshot::ended`] tells of it.
    pub fn look(&mut self) -> Result<Snapshot, LookError> {
        let deadline = Instant::now() + ANSWER_MAX;
        self.ended = self.ended || !self.watcher.look(deadline)?;
        let answered = self.gather(deadline);
        for (since, [direct, _]) in self.since.iter_mut().zip(&self.shown) {
            *since = since.or(direct.as_ref().map(|shown| shown.at));
        }
        let places = self.watcher.places().iter().zip(answered).enumerate();
        let ranks = places.map(|(at, (place, answered))| {
            let state = match (place.over, place.pid) {
                (Some(how), _) => State::Over(how),
                (None, None) => State::Awaited,
                (None, Some(_)) if answered => State::Running,
                (None, Some(_)) => State::Silent,
            };
            RankView {
                rank: at as Rank,
                pid: place.pid,
                state,
                shown: self.shown[at].clone(),
                since: self.since[at],
                peers: self.peers[at].clone(),
                grant_peers: self.grant_peers[at].clone(),
                latencies: self.latencies[at].clone(),
            }
        });
        Ok(Snapshot { launcher_pid: self.launcher_pid(), ended: self.ended, ranks: ranks.collect() })
    }

    /// Reads what the ranks show, again and again until all that still run have shown something new or the
    /// time is over. Returns which ranks' watching threads have.
    fn gather(&mut self, deadline: Instant) -> Vec<bool> {
        let mut answered = vec![[false; PARTS.len()]; self.shown.len()];
        let (mut pause, peers_end) = (PAUSES.0, self.peers_end);
        loop {
            let mut missing = false;
            for (at, (place, answered)) in self.watcher.places().iter().zip(&mut answered).enumerate() {
                let Some(page) = &place.page else { continue };
                for ((part, shown), answered) in PARTS.iter().zip(&mut self.shown[at]).zip(answered) {
                    if !*answered {
                        *answered = update(shown, stats_page::read(page, *part));
                        missing |= !*answered && place.over.is_none();
                        match part {
                            Part::Engine if *answered => {
                                self.peers[at] = read_peers(page, peers_end);
                                self.grant_peers[at] = read_grant_peers(page, peers_end);
                            }
                            Part::Direct if *answered => self.latencies[at] = read_latencies(page),
                            Part::Engine | Part::Direct => {}
                        }
                    }
                }
            }
            if !missing || self.ended || Instant::now() >= deadline {
                return answered.iter().map(|[direct, _]| *direct).collect();
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}

/// Whether there is something new.
fn update(known: &mut Option<PageSnapshot>, read: Option<PageSnapshot>) -> bool {
    let news = read.is_some() && read.as_ref().map(|new| new.at) != known.as_ref().map(|old| old.at);
    if news {
        *known = read;
    }
    news
}

impl RankView {
    /// The rank's counters by then, as its own [`Node::stats`](crate::Node::stats) has them. Messages, and
    /// all that goes by them, enter the engine: those counts are as of the rank's last call that waited or
    /// made progress; see [`away`](Self::away).
    pub fn stats(&self) -> Stats {
        let mut sum = Counters::default();
        for shown in self.shown.iter().flatten() {
            sum.merge(&shown.figures.counters());
        }
        Stats::new(sum)
    }

    /// Its counts of registration; all zero where its transport needs none, as shared memory.
    pub fn registration(&self) -> RegistrationCounters {
        self.shown[1].as_ref().map(|shown| shown.figures.registration()).unwrap_or_default()
    }

    /// Its counts of registration with each of its peers, as of its counts of messages. `None` where it has
    /// shown nothing, or nothing that can be; empty where its transport registers no memory.
    pub fn peers(&self) -> Option<&Peers> {
        self.peers.as_ref()
    }

    /// Its counts of peers that it refused, or waited for as it took granted memory back, as of its counts of
    /// messages. `None` where it has shown nothing, or nothing that can be.
    pub fn grant_peers(&self) -> Option<&GrantPeers> {
        self.grant_peers.as_ref()
    }

    /// How long its calls took, of those that wait for others or the kernel, as
    /// [`Node::latencies`](crate::Node::latencies) tells it. `None` where it has shown nothing.
    pub fn latencies(&self) -> Option<&Latencies> {
        self.latencies.as_ref()
    }

    /// How old its counts of messages are. More than a moment means that it has not waited or made progress
    /// since. Where it has never shown any, how long this watch has seen it make none. `None` where it has
    /// shown nothing at all.
    pub fn away(&self) -> Option<Duration> {
        let [direct, engine] = &self.shown;
        let last = engine.as_ref().map_or(self.since?, |shown| shown.at);
        Some(Duration::from_nanos(direct.as_ref()?.at.saturating_sub(last)))
    }

    /// How much it did a second since `earlier`, another look at the same rank.
    pub fn rates_since(&self, earlier: &RankView) -> Rates {
        let mut rates = Rates::default();
        for (then, now) in earlier.shown.iter().zip(&self.shown) {
            if let (Some(then), Some(now)) = (then, now) {
                rates.add(then, now);
            }
        }
        rates
    }
}
