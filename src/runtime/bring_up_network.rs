//! The network of a node: from when it opens in a job that needs one, and outside a job from when the first
//! far peer comes.

use std::sync::Arc;

use engine::{OpError, Rank};
use vm::fault_safe_copy::CheckedCopy;

use crate::base::error::Error;
use crate::base::lock::lock;
use crate::job::unlaunched::Listen;
use crate::runtime::core::NodeCore;
use crate::transport::contract::{Members, NodeTransport as _, Outsider, Party, Setup};
use crate::transport::list::{NetworkPlan, OpenEndpoint, open_to_all};
use crate::transport::net_wakeup::NetWakeup;
use crate::transport::ofi::provider::NetworkError;
use crate::transport::peers::Card;
use crate::transport::shm::OwnMemory;

/// Gives a node a network over an open endpoint: for these members of its job, and for those from outside
/// that it [meets](meet).
pub(crate) fn set_up(
    core: &NodeCore,
    plan: &NetworkPlan,
    endpoint: OpenEndpoint,
    members: Members,
) -> std::io::Result<()> {
    // Memory that the network is told of must stay where it is.
    vm::program_heap::keep_pages();
    let peers = &core.peers;
    // The launcher tells of those on this host. A process that makes no progress by itself may be silent for
    // as long as it computes.
    let (known, silence) = (Arc::clone(peers), plan.silence);
    let expects = move |rank| known.elsewhere(rank).filter(|card| card.attends).and(silence);
    let setup = Setup {
        members,
        memory: OwnMemory::new(Arc::clone(peers.itself()), CheckedCopy::new()?),
        heap: Arc::clone(&core.heap),
        silence: Box::new(expects),
        strategy: plan.strategy,
        pin_bytes: plan.pin_bytes,
    };
    let (network, registers) = endpoint.into_network(setup);
    let wait_fd = network.wait_fd().map(|fd| fd.try_clone_to_owned()).transpose()?;
    let net_wakeup = Arc::new(NetWakeup::new(wait_fd)?);
    let mut engine = core.engine();
    core.set_network(&mut engine, network, net_wakeup);
    if let Some(settings) = registers {
        engine.register_by(settings, peers.own().places);
    }
    Ok(())
}

/// The card of a node outside any job, which has a network from now on, for far peers. The error says why it
/// has none.
pub(crate) fn introduce(core: &Arc<NodeCore>, plan: &NetworkPlan) -> Result<Card, String> {
    let _opening = lock(&core.opening.lock);
    let failed = |error: &dyn std::fmt::Display| format!("it cannot open the network: {error}");
    if !core.has_network() {
        let endpoint =
            open_to_all(&plan.transport, plan.listen).map_err(|error| match (&error, plan.listen) {
                (NetworkError::NoProvider { .. } | NetworkError::Provider { .. }, Listen::At(at))
                    if !at.ip().is_unspecified() =>
                {
                    failed(&format_args!(
                        "at {}, as STANDPIPE_LISTEN says, which is to be an address of this host's: {error}",
                        at.ip()
                    ))
                }
                _ => failed(&error),
            })?;
        let own = core.peers.own();
        own.control.set_endpoint(endpoint.address(), &endpoint.protocol());
        let find = Box::new(|rank| Err(OpError::Protocol { peer: rank, what: "nobody has met it" }));
        let party = Party { rank: own.rank, incarnation: 0 };
        let members = Members { secret: Box::new([]), own: party, incarnations: vec![0], find };
        set_up(core, plan, endpoint, members).map_err(|error| failed(&error))?;
        // A thread that sleeps sleeps on the doorbell alone.
        core.wake_from_afar();
    }
    // Unless they run already: there may have been no thread for them when the network was opened.
    core.listen().and_then(|()| core.attend()).map_err(|error| failed(&error))?;
    Ok(core.peers.card(0, plan.attends))
}

/// Makes a node from outside, which this one has met, a peer by a number that none has had. The error says
/// what is wrong with it.
pub(crate) fn meet(
    core: &Arc<NodeCore>,
    number: Rank,
    card: &Card,
    outsider: &Outsider,
) -> Result<(), Error> {
    let peer = core.peers.far_by_card(number, card)?;
    // With the engine held no message of its is looked at before it is known.
    let mut engine = core.engine();
    if !engine.transport().meet(number, outsider) {
        let at = outsider.met.map_or_else(String::new, |met| format!(", though it was met at {}", met.ip()));
        let what = format!("an endpoint that cannot be reached from here{at}");
        return Err(Error::Protocol { peer: number, what });
    }
    tracing::debug!(peer = number, "connected over the network");
    core.peers.admit_far(number, peer)?;
    drop(engine);
    // Somebody may sleep until there is a peer.
    core.wake_from_afar();
    Ok(())
}
