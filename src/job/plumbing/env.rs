//! A process's environment, in which its starter tells it about its job.

use std::ffi::OsString;
use std::sync::Arc;

use super::secret::{SECRET_BYTES, Secret, from_hex, random_bytes, to_hex};
use crate::base::debug_is_display::debug_is_display;

/// The most ranks one host's job can have.
pub const RANKS_MAX: u32 = 1024;

/// Random bytes that a name stands for.
pub(in crate::job) const NAME_BYTES: usize = 16;

/// Bytes by which those who look find a node that nobody launched.
const LISTENER_BYTES: usize = NAME_BYTES + SECRET_BYTES;

const JOB: &str = "STANDPIPE_JOB";
const SECRET: &str = "STANDPIPE_SECRET";
const RANK: &str = "STANDPIPE_RANK";
const SIZE: &str = "STANDPIPE_SIZE";

/// One process's invitation to a job: where the broker listens, the secret it wants to see, and which rank
/// this process is. It travels in four environment variables, and whoever can read those can join: the kernel
/// shows a process's environment to its own user only.
#[derive(Clone, Debug)]
pub struct JobEnv {
    pub(in crate::job) name: JobName,
    pub(in crate::job) secret: Secret,
    pub(in crate::job) rank: u32,
    pub(in crate::job) size: u32,
}

/// The random part of the name of a socket that a broker listens at, or a node for others: no two have the
/// same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobName(Arc<str>);

impl JobName {
    pub(crate) fn random() -> rustix::io::Result<Self> {
        random_bytes().map(|bytes| Self::of(&bytes))
    }

    /// The name that these bytes stand for.
    pub(crate) fn of(bytes: &[u8; NAME_BYTES]) -> Self {
        Self(to_hex(bytes).into())
    }

    /// The bytes that it stands for.
    pub(crate) fn bytes(&self) -> [u8; NAME_BYTES] {
        from_hex(&self.0).expect("made of as many bytes, or checked to be")
    }

    fn parse(text: &str) -> Option<Self> {
        from_hex::<NAME_BYTES>(text).map(|_| Self(text.into()))
    }

    /// The socket's name in the abstract namespace.
    pub(crate) fn socket_name(&self) -> Vec<u8> {
        format!("standpipe-{}", self.0).into_bytes()
    }
}

debug_is_display!(JobEnvError);

/// Why the environment does not describe a job.
#[derive(thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobEnvError {
    /// One of the variables is set and another, without which it means nothing, is not.
    #[error("{variable} is not set although STANDPIPE_JOB is")]
    Missing {
        /// The variable that is missing.
        variable: &'static str,
    },
    /// A variable holds something that no launcher writes. The value is not shown: it may be the secret.
    #[error("{variable} is not {expected}")]
    Malformed {
        /// The variable at fault.
        variable: &'static str,
        /// A description of right values.
        expected: &'static str,
    },
    /// The rank is not below the size, or the size is zero or above [`RANKS_MAX`].
    #[error("rank {rank} of {size}: the size must be 1 to {RANKS_MAX} and the rank below it")]
    OutOfRange {
        /// `STANDPIPE_RANK`.
        rank: u32,
        /// `STANDPIPE_SIZE`.
        size: u32,
    },
}

impl JobEnv {
    /// The variable that differs from rank to rank.
    pub(in crate::job) const RANK: &str = RANK;

    /// Reads this process's environment. `None` means that no launcher started it: it is a job of one.
    ///
    /// # Errors
    /// When the variables are there in part only, or hold what no launcher writes.
    pub fn from_env() -> Result<Option<Self>, JobEnvError> {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    /// As [`from_env`](Self::from_env), with `lookup` in place of the environment.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, JobEnvError> {
        let Some(job) = lookup(JOB) else { return Ok(None) };
        let get = |variable| lookup(variable).ok_or(JobEnvError::Missing { variable });
        let name = parse(JOB, "32 hexadecimal digits", Some(job), JobName::parse)?;
        let secret = parse(SECRET, "64 hexadecimal digits", Some(get(SECRET)?), Secret::from_hex)?;
        let rank = parse(RANK, "a number", Some(get(RANK)?), |text| text.parse().ok())?;
        let size = parse(SIZE, "a number", Some(get(SIZE)?), |text| text.parse().ok())?;
        if rank >= size || size > RANKS_MAX {
            return Err(JobEnvError::OutOfRange { rank, size });
        }
        Ok(Some(Self { name, secret, rank, size }))
    }

    /// The way for those who only look to a node that nobody launched: the name of its listener, and the
    /// secret for them.
    pub(crate) fn of_listener(peer_listener: &[u8; LISTENER_BYTES]) -> Self {
        let (name, secret) = peer_listener.split_at(NAME_BYTES);
        let name = JobName::of(name.try_into().expect("split there"));
        let secret = Secret::of(secret.try_into().expect("the rest of the listener's bytes"));
        Self { name, secret, rank: 0, size: 1 }
    }

    /// The variables that hand this invitation to a process about to be started.
    pub fn vars(&self) -> [(&'static str, String); 4] {
        [
            (JOB, self.name.0.to_string()),
            (SECRET, self.secret.to_hex()),
            (RANK, self.rank.to_string()),
            (SIZE, self.size.to_string()),
        ]
    }

    /// The job's name: random, and no secret.
    pub(crate) fn name(&self) -> &str {
        &self.name.0
    }

    /// The name of the socket at which it listens, in the abstract namespace.
    pub(crate) fn socket_name(&self) -> Vec<u8> {
        self.name.socket_name()
    }

    /// Whether both are invitations to the same job.
    pub(crate) fn is_same_job(&self, other: &Self) -> bool {
        self.name == other.name
    }

    /// The rank that the invited process has in the job.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The secret that only the job's members know.
    pub(crate) fn secret(&self) -> &[u8] {
        self.secret.bytes()
    }

    /// How many ranks the job has.
    pub fn size(&self) -> u32 {
        self.size
    }
}

fn parse<T>(
    variable: &'static str,
    expected: &'static str,
    value: Option<OsString>,
    read: impl Fn(&str) -> Option<T>,
) -> Result<T, JobEnvError> {
    value
        .as_deref()
        .and_then(|value| value.to_str())
        .and_then(read)
        .ok_or(JobEnvError::Malformed { variable, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> JobEnv {
        JobEnv {
            name: JobName::random().expect("the kernel has random bytes"),
            secret: Secret::random().expect("the kernel has random bytes"),
            rank: 2,
            size: 3,
        }
    }

    fn read(vars: &[(&'static str, String)]) -> Result<Option<JobEnv>, JobEnvError> {
        JobEnv::from_lookup(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn vars_go_there_and_back() {
        let env = sample();
        let back = read(&env.vars()).expect("well formed").expect("a job");
        assert_eq!((back.rank, back.size, &back.name), (2, 3, &env.name));
        assert!(back.secret.matches(&env.secret));
    }

    #[test]
    fn without_the_job_variable_there_is_no_job() {
        assert!(read(&sample().vars()[1..]).expect("nothing to misread").is_none());
    }

    #[test]
    fn a_missing_variable_is_named() {
        let vars = sample().vars();
        for missing in 1..vars.len() {
            let mut left = vars.to_vec();
            let (variable, _) = left.remove(missing);
            assert_eq!(read(&left).expect_err("incomplete"), JobEnvError::Missing { variable });
        }
    }

    #[test]
    fn nonsense_is_refused_and_not_repeated() {
        for (index, bad) in [(0, "zz"), (1, "00"), (2, "-1"), (3, "4294967296")] {
            let mut vars = sample().vars();
            vars[index].1 = bad.into();
            let error = read(&vars).expect_err("malformed");
            assert!(matches!(error, JobEnvError::Malformed { variable, .. } if variable == vars[index].0));
            assert!(!error.to_string().contains(bad));
        }
    }

    #[test]
    fn the_rank_must_lie_below_a_bounded_size() {
        for (rank, size) in [(0, 0), (3, 3), (0, RANKS_MAX + 1)] {
            let mut vars = sample().vars();
            vars[2].1 = rank.to_string();
            vars[3].1 = size.to_string();
            assert_eq!(read(&vars).expect_err("out of range"), JobEnvError::OutOfRange { rank, size });
        }
    }
}
