//! Two nodes, of which the first puts into the memory of the second.

use engine::Direction;
use engine::node::RegistrationCounters;
use engine::registration::{Settings, Strategy};

use crate::cluster::{Cluster, Plan};
use crate::costs::Costs;
use crate::replay::{Act, Ran, ReplayError, replay};
use crate::space::Access;
use crate::transport::Reach;

/// The two, and where their memories are.
pub(super) struct Pair {
    cluster: Cluster,
    local: u64,
    remote: u64,
}

/// A put of the first node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Put {
    /// From where in its own memory.
    pub(super) from: u64,
    /// To where in the other's.
    pub(super) to: u64,
    pub(super) len: u64,
}

impl Pair {
    /// Two nodes that register by `strategy`, which makes its own of `settings`, with so many bytes of
    /// memory.
    pub(super) fn new(
        costs: &Costs,
        strategy: Strategy,
        settings: Settings,
        local_bytes: u64,
        remote_bytes: u64,
    ) -> Pair {
        let reach = if strategy == Strategy::Hardware { Reach::Everything } else { Reach::Heap };
        let plan = Plan {
            handlers: 1,
            reach,
            registration: strategy.settings(settings),
            ..Plan::new(2, costs.clone())
        };
        let mut cluster = Cluster::new(plan);
        let local = cluster.map(0, local_bytes, Access::Full).offset;
        let remote = cluster.map(1, remote_bytes, Access::Full).offset;
        Pair { cluster, local, remote }
    }

    /// Does one put after the other, each complete before the next.
    pub(super) fn put(&mut self, puts: impl IntoIterator<Item = Put>) -> Result<Ran, ReplayError> {
        let (local, remote) = (self.local, self.remote);
        let act = |put: Put| Act::Transfer {
            direction: Direction::Put,
            peer: 1,
            remote: remote + put.to,
            local: local + put.from,
            len: put.len,
        };
        let first = Some(puts.into_iter().map(act)).into_iter().flatten();
        let second = None.into_iter().flatten();
        replay(&mut self.cluster, vec![first, second])
    }

    /// What the target has counted.
    pub(super) fn target_counters(&mut self) -> RegistrationCounters {
        self.cluster.node(1).registration_counters()
    }
}
