//! A job of another launcher's: the processes of each host meet at a broker in the lowest rank there.
//!
//! That rank therefore stays until all others of its host have left: its node's end waits for theirs, as the end of MPI
//! may. If it is killed, the others of its host are told that all there are lost, which is also when launchers end a
//! job.

use std::os::unix::process::parent_id;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::broker::{Broker, BrokerError};
use super::env::{JobEnv, JobEnvError};
use super::exchange::{Exchange, ExchangeError, from_env};
use super::host_id::HostId;
use crate::readable::debug_is_display;

/// How long a broker keeps the place of a process that has met the others and does not join.
const JOIN_WITHIN: Duration = Duration::from_secs(30);

debug_is_display!(HostError);

/// Why a job that another launcher has started did not come together.
#[derive(thiserror::Error)]
pub enum HostError {
    /// The processes could not tell each other where they are.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// What another process told of itself is not what this library tells.
    #[error("rank {rank} tells of itself what this version of the library cannot read")]
    Card {
        /// The other process.
        rank: u32,
    },
    /// The lowest rank of a host could not start its broker.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The invitation that the host's lowest rank sent is none.
    #[error("the invitation to the job cannot be read: {0}")]
    Invitation(#[from] JobEnvError),
}

/// What a broker's [`JobEnv::vars`] are.
type Invitation = Vec<(String, String)>;

/// This process's part in such a job. Dropping it, which comes after the node has left the job, waits at the lowest rank
/// of a host until all others there have.
pub(crate) struct Host {
    /// This host's, and the whole job's: rank 0's.
    env: JobEnv,
    job: JobEnv,
    broker: Option<Broker>,
    /// By rank, whether it is on this host.
    here: Vec<bool>,
    /// Kept to the end: closing it tells the launcher that this process ends as it should.
    exchange: Box<dyn Exchange>,
}

impl Host {
    /// Meets the other processes of the job that the environment's launcher has started; `None` where none has.
    pub(crate) fn meet(deadline: Instant) -> Result<Option<Host>, HostError> {
        match from_env(deadline)? {
            Some(exchange) => Host::meet_by(exchange, deadline).map(Some),
            None => Ok(None),
        }
    }

    fn meet_by(mut exchange: Box<dyn Exchange>, deadline: Instant) -> Result<Host, HostError> {
        let (rank, size) = (exchange.rank(), exchange.size());
        let own = HostId::own();
        let hosts: Vec<HostId> = gather(&mut *exchange, &own, deadline)?;
        let here: Vec<bool> = hosts.iter().map(|host| *host == own).collect();
        let lowest = (0..).zip(&here).find(|(_, here)| **here).map_or(rank, |(lowest, _)| lowest);
        let broker = if rank == lowest { Some(Broker::start_among(size, parent_id())?) } else { None };
        let own = broker.as_ref().map_or(Vec::new(), invitation);
        let invited: Vec<Invitation> = gather(&mut *exchange, &own, deadline)?;
        let (env, job) = (accept(&invited, lowest, rank)?, accept(&invited, 0, rank)?);
        Ok(Host { env, job, broker, here, exchange })
    }

    /// The invitation to this host's broker.
    pub(crate) fn env(&self) -> &JobEnv {
        &self.env
    }

    /// What only the processes of the job know, on all its hosts.
    pub(crate) fn secret(&self) -> &[u8] {
        self.job.secret()
    }

    /// The lowest rank of this host.
    pub(crate) fn lowest(&self) -> u32 {
        (0..)
            .zip(&self.here)
            .find_map(|(rank, here)| here.then_some(rank))
            .expect("this process is on its host")
    }

    /// Whether some of the job's processes are on other hosts, or cannot be reached but as if they were.
    pub(crate) fn is_spread(&self) -> bool {
        !self.here.iter().all(|here| *here)
    }

    /// What each process of another host tells of itself, by rank; `None` for those of this one. All must call it.
    pub(crate) fn tell<T>(&mut self, own: &T, deadline: Instant) -> Result<Box<[Option<T>]>, HostError>
    where
        T: Serialize + for<'a> Deserialize<'a>,
    {
        let all = gather(&mut *self.exchange, own, deadline)?;
        Ok(all.into_iter().zip(&self.here).map(|(told, here)| (!here).then_some(told)).collect())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(broker) = self.broker.take() {
            let here = (0..).zip(&self.here).filter(|(_, here)| **here).map(|(rank, _)| rank);
            broker.retire(here.collect(), JOIN_WITHIN);
        }
    }
}

fn invitation(broker: &Broker) -> Invitation {
    broker.env(0).vars().into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The invitation of rank `of`, as `rank` takes it.
fn accept(invited: &[Invitation], of: u32, rank: u32) -> Result<JobEnv, HostError> {
    let vars = invited.get(of as usize).ok_or(HostError::Card { rank: of })?;
    let lookup = |name: &str| {
        if name == JobEnv::RANK {
            return Some(rank.to_string().into());
        }
        vars.iter().find(|(key, _)| key == name).map(|(_, value)| value.into())
    };
    JobEnv::from_lookup(lookup)?.ok_or(HostError::Card { rank: of })
}

/// What each process tells, by rank.
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
        let rounds = vec![
            told([&apart, &here, &here]),
            told([&invitation(&zero), &nothing, &nothing]),
            told([&"zero".to_owned(), &String::new(), &"two".to_owned()]),
        ];
        let mut host = Host::meet_by(Box::new(Told { rounds }), Instant::now()).expect("two hosts");
        assert!(host.is_spread() && host.broker.is_some());
        assert_eq!((host.env().rank(), host.env().size()), (1, 3));
        assert!(!host.env().is_same_job(&zero.env(1)));
        assert_eq!(host.secret(), zero.env(1).secret());
        let cards = host.tell(&"one".to_owned(), Instant::now()).expect("all tell");
        assert_eq!(*cards, [Some("zero".to_owned()), None, None]);
        // Nobody joins: it is not to be waited for.
        drop(host.broker.take());
    }

    #[test]
    fn nonsense_is_no_invitation() {
        let here = HostId::own();
        let rounds = vec![told([&here; 3]), told([&here; 3])];
        let error = Host::meet_by(Box::new(Told { rounds }), Instant::now()).err().expect("no invitation");
        assert!(matches!(error, HostError::Card { .. } | HostError::Invitation(_)), "{error}");
    }
}
