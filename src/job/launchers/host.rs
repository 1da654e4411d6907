//! A job of another launcher's: the processes of each host meet at a broker in the lowest rank there.
//!
//! That rank therefore stays until all others of its host have left: its node's end waits for theirs, as the
//! end of MPI may. The broker stays as long as its process: a process that opens its node anew meets the
//! others there, as the launcher lets processes tell each other where they are only once. If it is killed,
//! the others of its host are told that all there are lost, which is also when launchers end a job.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::parent_id;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::exchange::{Exchange, ExchangeError, from_env};
use crate::base::debug_is_display::debug_is_display;
use crate::base::lock::lock;
use crate::job::launched::{Broker, BrokerError};
use crate::job::plumbing::addresses::{self, Other, REMEDY, listed};
use crate::job::plumbing::env::{JobEnv, JobEnvError};
use crate::job::plumbing::host_id::HostId;

/// How long a broker keeps the place of a process that has met the others and does not join.
const JOIN_WITHIN: Duration = Duration::from_secs(30);

debug_is_display!(HostError);

/// Why a job that another launcher has started did not come together.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The processes could not tell each other where they are.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// Another process's words about itself are not this library's.
    #[error("rank {rank} tells of itself what this version of the library cannot read")]
    Card {
        /// The other process.
        rank: u32,
    },
    /// The user names an interface that this host has not.
    #[error("{0}")]
    Interface(String),
    /// The lowest rank of a host could not start its broker.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// This process has had a node of the job, which is on several hosts: they would have to meet anew, and
    /// launchers let them only once.
    #[error(
        "this process has had its node: of a job on several hosts that another launcher has started, a process opens one node"
    )]
    Again,
    /// The invitation that the host's lowest rank sent is none.
    #[error("the invitation to the job cannot be read: {0}")]
    Invitation(#[from] JobEnvError),
}

/// The variables of a broker's [`JobEnv::vars`].
type Invitation = Vec<(String, String)>;

/// The first words of each process: where it is, and by which addresses others may reach it.
type Whereabouts = (HostId, Vec<IpAddr>);

/// Its next words: how to join at its host, if it has the broker there; of rank 0, its address, or why it has
/// none.
type Terms = (Invitation, Option<Result<IpAddr, String>>);

/// This process's knowledge of such a job, from its first node there on.
#[derive(Clone)]
struct Known {
    /// This host's, and the whole job's: rank 0's.
    env: JobEnv,
    job: JobEnv,
    broker: Option<Arc<Broker>>,
    /// By rank, whether it is on this host.
    here: Vec<bool>,
    /// The address of this host that processes of others reach it by; or why there is none.
    at: Result<SocketAddr, String>,
}

/// This process's, and of which [generation](vm::forks::generation) it is: a child made by `fork` has none,
/// and finds the lock as some thread of its parent's left it.
static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
static KNOWN_BY: AtomicU32 = AtomicU32::new(0);

/// This process's part in such a job. Dropping it, which comes after the node has left the job, waits at the
/// lowest rank of a host until all others there have.
pub(crate) struct Host {
    known: Known,
    /// The round of the job that the node has joined; `None` before.
    round: Option<u32>,
    /// Until the node has opened, or to its end: see [`Host::take_leave`]. `None` for one opened again.
    exchange: Option<Box<dyn Exchange>>,
}

impl Host {
    /// Meets the other processes of the job that the environment's launcher has started; `None` where none
    /// has. Others are to reach it by the `interface` of that name or address, if one is given.
    pub(crate) fn meet(interface: Option<&str>, deadline: Instant) -> Result<Option<Host>, HostError> {
        let generation = vm::forks::generation();
        if KNOWN_BY.load(Ordering::SeqCst) == generation
            && let Some(known) = lock(&KNOWN).clone()
        {
            let host = Host { known, round: None, exchange: None };
            return if host.is_spread() { Err(HostError::Again) } else { Ok(Some(host)) };
        }
        let Some(exchange) = from_env(deadline)? else { return Ok(None) };
        let host = Host::meet_by(exchange, interface, deadline)?;
        if KNOWN_BY.compare_exchange(0, generation, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            *lock(&KNOWN) = Some(host.known.clone());
        }
        Ok(Some(host))
    }

    fn meet_by(
        mut exchange: Box<dyn Exchange>,
        interface: Option<&str>,
        deadline: Instant,
    ) -> Result<Host, HostError> {
        let (rank, size) = (exchange.rank(), exchange.size());
        let own = (HostId::own(), addresses::own(interface).map_err(HostError::Interface)?);
        let all: Vec<Whereabouts> = gather(&mut *exchange, &own, deadline)?;
        let here: Vec<bool> = all.iter().map(|(host, _)| *host == own.0).collect();
        let lowest = (0..).zip(&here).find(|(_, here)| **here).map_or(rank, |(lowest, _)| lowest);
        let starts = rank == lowest;
        let broker = if starts { Some(Arc::new(Broker::start_among(size, parent_id())?)) } else { None };
        let named = interface.is_some();
        let zero = (rank == 0).then(|| address_of_rank_0(&*exchange, &own, named, &all));
        let own_terms: Terms = (broker.as_deref().map_or(Vec::new(), invitation), zero);
        let terms: Vec<Terms> = gather(&mut *exchange, &own_terms, deadline)?;
        let (env, job) = (accept(&terms, lowest, rank)?, accept(&terms, 0, rank)?);
        let zero = terms.first().and_then(|(_, zero)| zero.clone()).ok_or(HostError::Card { rank: 0 })?;
        let at = zero.and_then(|zero| own_address(&*exchange, &own.1, named, zero));
        let known = Known { env, job, broker, here, at };
        Ok(Host { known, round: None, exchange: Some(exchange) })
    }

    /// Takes note of which round of the job the node has joined.
    pub(crate) fn set_round(&mut self, round: u32) {
        self.round = Some(round);
    }

    /// Takes leave of the launcher now that all has been told, if that may come so early. To hydra a process
    /// that ends without it has crashed, and all others are ended at once: none would hear of a loss.
    pub(crate) fn take_leave(&mut self) {
        self.exchange.take_if(|exchange| exchange.may_leave_early());
    }

    /// The invitation to this host's broker.
    pub(crate) fn env(&self) -> &JobEnv {
        &self.known.env
    }

    /// The secret that only the processes of the job know, on all its hosts.
    pub(crate) fn secret(&self) -> &[u8] {
        self.known.job.secret()
    }

    /// The lowest rank of this host.
    pub(crate) fn lowest(&self) -> u32 {
        (0..)
            .zip(&self.known.here)
            .find_map(|(rank, here)| here.then_some(rank))
            .expect("this process is on its host")
    }

    /// Whether some of the job's processes are on other hosts, or cannot be reached but as if they were.
    pub(crate) fn is_spread(&self) -> bool {
        !self.known.here.iter().all(|here| *here)
    }

    /// The address of this host that leads to and from the others, with a port of nought; or why there is
    /// none.
    pub(crate) fn address(&self) -> Result<SocketAddr, String> {
        self.known.at.clone()
    }

    /// The card of each process of another host, by rank; `None` for those of this one. All must call it.
    pub(crate) fn tell<T>(&mut self, own: &T, deadline: Instant) -> Result<Box<[Option<T>]>, HostError>
    where
        T: Serialize + for<'a> Deserialize<'a>,
    {
        let exchange = self.exchange.as_mut().ok_or(HostError::Again)?;
        let all = gather(&mut **exchange, own, deadline)?;
        Ok(all.into_iter().zip(&self.known.here).map(|(told, here)| (!here).then_some(told)).collect())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A first node that did not open leaves others waiting for its broker.
        let round = self.round.or(self.exchange.as_ref().map(|_| 0));
        if let (Some(broker), Some(round)) = (&self.known.broker, round) {
            let here = (0..).zip(&self.known.here).filter(|(_, here)| **here).map(|(rank, _)| rank);
            broker.await_leave(round, here.collect(), JOIN_WITHIN);
        }
    }
}

fn invitation(broker: &Broker) -> Invitation {
    broker.env(0).vars().into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The address of this process, which is rank 0, for those of other hosts.
fn address_of_rank_0(
    exchange: &dyn Exchange,
    (host, own): &Whereabouts,
    named: bool,
    all: &[Whereabouts],
) -> Result<IpAddr, String> {
    let mut others = Vec::new();
    for (rank, (other, told)) in (0..).zip(all) {
        if !other.shares_sockets(host) {
            others.push(Other { reached: exchange.met_at(rank).map(|at| at.ip()), told });
        }
    }
    // A process that it cannot tell from this host, and that has come by loopback, is here.
    let all_here = || others.iter().all(|other| other.reached.is_some_and(|ip| ip.is_loopback()));
    if others.is_empty() || !host.is_known() && all_here() {
        return addresses::within_host();
    }
    addresses::of_rank_0(own, named, &others).ok_or_else(|| {
        let theirs: Vec<String> = others.iter().map(|other| listed(other.told)).collect();
        let (own, theirs) = (listed(own), theirs.join(", or of "));
        format!("no way leads from rank 0's host, of {own}, to another, of {theirs}; {REMEDY}")
    })
}

/// The address of this process that leads to rank 0's, with the scope that it has here if it means something
/// on one link only.
fn own_address(
    exchange: &dyn Exchange,
    own: &[IpAddr],
    named: bool,
    zero: IpAddr,
) -> Result<SocketAddr, String> {
    let of_a_link = matches!(zero, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let mut met = (0..exchange.size()).filter_map(|rank| exchange.met_at(rank));
    let mut at = match met.find(|at| of_a_link && at.is_ipv6()) {
        Some(at) => at,
        None => SocketAddr::new(addresses::towards_rank_0(own, named, zero)?, 0),
    };
    at.set_port(0);
    Ok(at)
}

/// The invitation of rank `of`, as `rank` takes it.
fn accept(terms: &[Terms], of: u32, rank: u32) -> Result<JobEnv, HostError> {
    let (vars, _) = terms.get(of as usize).ok_or(HostError::Card { rank: of })?;
    let lookup = |name: &str| {
        if name == JobEnv::RANK {
            return Some(rank.to_string().into());
        }
        vars.iter().find(|(key, _)| key == name).map(|(_, value)| value.into())
    };
    JobEnv::from_lookup(lookup)?.ok_or(HostError::Card { rank: of })
}

/// The words of each process, by rank.
fn gather<T: Serialize + for<'a> Deserialize<'a>>(
    exchange: &mut dyn Exchange,
    own: &T,
    deadline: Instant,
) -> Result<Vec<T>, HostError> {
    let own = postcard::to_stdvec(own).expect("plain values can be written");
    let all = exchange.all_gather(&own, deadline)?;
    let read =
        |(rank, bytes): (u32, &Vec<u8>)| postcard::from_bytes(bytes).map_err(|_| HostError::Card { rank });
    (0..).zip(&all).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rank 1 of a job whose other processes say these things, round by round.
    struct Told {
        rounds: Vec<Vec<Vec<u8>>>,
    }

    impl Exchange for Told {
        fn rank(&self) -> u32 {
            1
        }

        fn size(&self) -> u32 {
            3
        }

        fn all_gather(&mut self, own: &[u8], _: Instant) -> Result<Vec<Vec<u8>>, ExchangeError> {
            let mut all = self.rounds.remove(0);
            all[1] = own.to_vec();
            Ok(all)
        }
    }

    fn told<T: Serialize>(all: [&T; 3]) -> Vec<Vec<u8>> {
        all.map(|value| postcard::to_stdvec(value).expect("plain")).to_vec()
    }

    #[test]
    fn each_host_has_a_broker_in_its_lowest_rank_and_all_have_rank_0s_secret() {
        let here = HostId::own();
        assert!(!here.boot.is_empty() && here.network != 0);
        let apart = HostId { network: here.network + 1, ..here.clone() };
        let (zero, nothing) = (Broker::start(3).expect("a broker"), Invitation::new());
        let ip = addresses::within_host().expect("loopback");
        let reached = vec![ip];
        let rounds = vec![
            told([&(apart, reached), &(here.clone(), vec![]), &(here, vec![])]),
            told::<Terms>([&(invitation(&zero), Some(Ok(ip))), &(nothing.clone(), None), &(nothing, None)]),
            told([&"zero".to_owned(), &String::new(), &"two".to_owned()]),
        ];
        let mut host = Host::meet_by(Box::new(Told { rounds }), None, Instant::now()).expect("two hosts");
        assert_eq!(host.address(), Ok(SocketAddr::new(ip, 0)), "what leads to rank 0");
        assert!(host.is_spread() && host.known.broker.is_some());
        assert_eq!((host.env().rank(), host.env().size()), (1, 3));
        assert!(!host.env().is_same_job(&zero.env(1)));
        assert_eq!(host.secret(), zero.env(1).secret());
        let cards = host.tell(&"one".to_owned(), Instant::now()).expect("all tell");
        assert_eq!(*cards, [Some("zero".to_owned()), None, None]);
        // Nobody joins: it is not to be waited for.
        drop(host.known.broker.take());
    }

    #[test]
    fn nonsense_is_no_invitation() {
        let here = HostId::own();
        let rounds = vec![told([&(here.clone(), Vec::<IpAddr>::new()); 3]), told([&here; 3])];
        let error =
            Host::meet_by(Box::new(Told { rounds }), None, Instant::now()).err().expect("no invitation");
        assert!(matches!(error, HostError::Card { .. } | HostError::Invitation(_)), "{error}");
    }
}
