//! PMIx as a store.
//!
//! Its calls are made [by a thread of their own](crate::job::plumbing::blocking_call): servers may ignore
//! the time that they are given.

use std::time::{Duration, Instant};

use pmix::{Client, PmixError, TEXT_MAX};

use super::common::ExchangeError;
use super::store::Store;
use crate::job::plumbing::blocking_call::{BlockingCaller, Unanswered, once};

/// The variables that the launcher leaves in the environment.
pub(super) const OFFERED: [&str; 2] = ["PMIX_NAMESPACE", "PMIX_RANK"];

/// How long a server may take beyond the time that it was given, to say so: it counts whole seconds.
const GRACE: Duration = Duration::from_secs(2);

/// A connection to the launcher's PMIx server.
pub(crate) struct Pmix {
    client: BlockingCaller<Client>,
    rank: u32,
    size: u32,
}

impl Pmix {
    pub(crate) fn init(deadline: Instant) -> Result<Pmix, ExchangeError> {
        let mut client =
            BlockingCaller::start(|| Client::init(aside), deadline).map_err(unanswered("PMIx_Init"))??;
        let place = client.run(|client| (client.rank(), client.size()), deadline);
        let (rank, size) = place.map_err(unanswered("PMIx"))?;
        Ok(Pmix { client, rank, size })
    }

    fn run<R: Send + 'static>(
        &mut self,
        call: &str,
        deadline: Instant,
        errand: impl FnOnce(&mut Client) -> Result<R, PmixError> + Send + 'static,
    ) -> Result<R, ExchangeError> {
        Ok(self.client.run(errand, deadline + GRACE).map_err(unanswered(call))??)
    }
}

impl Store for Pmix {
    const LAUNCHER: &'static str = "PMIx";
    /// A program's MPI library has the same connection, and was seen to fail when it joins after a leave.
    const LEAVES_EARLY: bool = false;

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn text_max(&self) -> usize {
        TEXT_MAX
    }

    fn put(&mut self, key: &str, text: &str, deadline: Instant) -> Result<(), ExchangeError> {
        let (key, text) = (key.to_owned(), text.to_owned());
        self.run("PMIx_Put", deadline, move |client| client.put(&key, &text))
    }

    fn fence(&mut self, deadline: Instant) -> Result<(), ExchangeError> {
        self.run("PMIx_Fence, for which all processes of the job must come", deadline, move |client| {
            client.fence(left(deadline))
        })
    }

    fn get(&mut self, rank: u32, key: &str, deadline: Instant) -> Result<String, ExchangeError> {
        let key = key.to_owned();
        self.run("PMIx_Get", deadline, move |client| client.get(rank, &key, left(deadline)))
    }
}

/// Without a thread, or in time, there is no leave: the launcher notices by itself.
fn aside(call: Box<dyn FnOnce() + Send>, within: Duration) {
    let _ = once(call, Instant::now() + within);
}

fn unanswered(call: &str) -> impl Fn(Unanswered) -> ExchangeError + use<> {
    let waited_for = format!("the launcher's answer ({call})");
    move |why| match why {
        Unanswered::Late => ExchangeError::Timeout { waited_for: waited_for.clone() },
        Unanswered::NoThread(source) => {
            ExchangeError::Io { with: format!("a thread to wait for {waited_for}"), source }
        }
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
