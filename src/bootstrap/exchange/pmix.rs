//! PMIx as a store.

use std::time::{Duration, Instant};

use pmix::Client;

use super::store::Store;
use super::terms::ExchangeError;

/// What the launcher leaves in the environment.
pub(super) const OFFERED: [&str; 2] = ["PMIX_NAMESPACE", "PMIX_RANK"];

/// Texts of PMIx are of any length; long ones are slow to hand on.
const TEXT_MAX: usize = 64 << 10;

/// A connection to the launcher's PMIx server.
pub(crate) struct Pmix(Client);

impl Pmix {
    pub(crate) fn init() -> Result<Pmix, ExchangeError> {
        Ok(Pmix(Client::init()?))
    }
}

impl Store for Pmix {
    const LAUNCHER: &'static str = "PMIx";

    fn rank(&self) -> u32 {
        self.0.rank()
    }

    fn size(&self) -> u32 {
        self.0.size()
    }

    fn text_max(&self) -> usize {
        TEXT_MAX
    }

    fn put(&mut self, key: &str, text: &str, _: Instant) -> Result<(), ExchangeError> {
        Ok(self.0.put(key, text)?)
    }

    fn fence(&mut self, deadline: Instant) -> Result<(), ExchangeError> {
        Ok(self.0.fence(left(deadline))?)
    }

    fn get(&mut self, rank: u32, key: &str, deadline: Instant) -> Result<String, ExchangeError> {
        Ok(self.0.get(rank, key, left(deadline))?)
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
