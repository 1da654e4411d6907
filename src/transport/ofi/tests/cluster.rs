//! Whole jobs of engines over libfabric, in one process, driven by one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance::Cluster;
use conformance::cluster::HANDLERS;
use engine::registration::Settings;
use engine::{Counters, Nanos, Node, Place, Rank};
use fabric::{Endpoint, Fabric, Hints, Options, Provider};
use vm::fault_safe_copy::CheckedCopy;

use crate::api::config::Config;
use crate::api::open::Seat;
use crate::job::launched::Broker;
use crate::transport::contract::{Members, NodeTransport as _, Party};
use crate::transport::ofi::buffers::Size;
use crate::transport::ofi::chores::Chore;
use crate::transport::ofi::endpoint::NetEndpoint;
use crate::transport::ofi::link::PARTS;
use crate::transport::ofi::rma_state::Part;
use crate::transport::ofi::transport::OfiTransport;
use crate::transport::shm::OwnMemory;
use crate::transport::tests::{Memory, NOWHERE, read_only};

/// How long ranks may take to be introduced: processes may be paused for a minute.
pub(super) const LIMIT: Duration = Duration::from_secs(100);

const HEAP_BYTES: u64 = 16 << 20;

/// What the tests' jobs share.
pub(super) const SECRET: &[u8] = b"known to members only";

/// Providers that Standpipe may use and that need no hardware, by names that find them in any version: each
/// once.
pub(super) fn providers() -> Vec<Provider> {
    let fabric = match Fabric::load() {
        Ok(fabric) => fabric,
        Err(error) => {
            testbed::skip(&error);
            return Vec::new();
        }
    };
    let mut found: Vec<Provider> = Vec::new();
    let named = std::env::var(testbed::PROVIDERS).ok();
    for name in named.as_deref().unwrap_or("tcp;ofi_rxm,net,tcp").split(',') {
        let hints = Hints {
            provider: Some(name.into()),
            source: named.is_none().then(|| "127.0.0.1".into()),
            delivery: true,
            manual: true,
            ..Hints::default()
        };
        match fabric.providers(&hints).expect("a list").into_iter().next() {
            None if named.is_some() => panic!("no provider {name}"),
            None => testbed::skip(format_args!("no provider {name}")),
            Some(provider) => {
                let known =
                    |other: &Provider| other.description().provider == provider.description().provider;
                if !found.iter().any(known) {
                    found.push(provider);
                }
            }
        }
    }
    found
}

/// What a job runs with.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) provider: &'a Provider,
    /// What is registered; `None`: nothing, and all goes by message.
    pub(super) registration: Option<Settings>,
    /// As if the provider did not say when a write has arrived.
    pub(super) confirms: bool,
    /// As if the provider wanted local memory registered.
    pub(super) registers_local: bool,
    /// As if the provider pinned what is registered: heaps are registered page by page.
    pub(super) pins: bool,
    pub(super) send_timeout: Duration,
}

/// One process's part, were it a process. The node goes before what its peers reach.
struct Member {
    node: Node<OfiTransport>,
    /// Losses that the engine has not been told.
    losses: Vec<Rank>,
    memory: Memory,
    seat: Seat,
}

/// Nodes over [`OfiTransport`], each with an endpoint and segments of its own.
pub(super) struct OfiCluster {
    members: Vec<Member>,
    epoch: Instant,
    _broker: Broker,
}

impl OfiCluster {
    /// A job whose ranks know each other.
    pub(super) fn new(size: u32, setting: Setting<'_>) -> OfiCluster {
        let mut cluster = OfiCluster::strangers(size, setting);
        cluster.introduce();
        cluster
    }

    /// A job whose ranks have not said a word.
    pub(super) fn strangers(size: u32, setting: Setting<'_>) -> OfiCluster {
        let broker = Broker::start(size).expect("a broker");
        let ports: Vec<NetEndpoint> = (0..size).map(|_| open(setting)).collect();
        let all: Vec<(Box<[u8]>, u32)> =
            ports.iter().map(|endpoint| (endpoint.address().into(), 0)).collect();
        let member = |(rank, endpoint)| Member::join(&broker, rank as Rank, endpoint, all.clone(), setting);
        let members = ports.into_iter().enumerate().map(member).collect();
        OfiCluster { members, epoch: Instant::now(), _broker: broker }
    }

    /// The suite counts rounds of polling, and connections take time.
    fn introduce(&mut self) {
        let (size, start) = (self.members.len() as Rank, Instant::now());
        for rank in 0..size {
            for peer in (0..size).filter(|peer| *peer != rank) {
                let transport = self.transport(rank);
                transport.link(peer).expect("nobody is lost");
                transport.send_credits(peer).expect("there is memory");
            }
        }
        while (0..size).any(|rank| self.transport(rank).chores.has(Chore::Stuck)) {
            (0..size).for_each(|rank| self.transport(rank).progress());
            assert!(start.elapsed() < LIMIT, "the ranks cannot be introduced");
        }
    }

    pub(super) fn transport(&mut self, rank: Rank) -> &mut OfiTransport {
        self.member(rank).node.transport()
    }

    /// As a crash does, but nobody is told.
    pub(super) fn crash(&mut self, rank: Rank) {
        self.transport(rank).endpoint.close();
    }

    /// Frees everything that a rank has of its heap.
    pub(super) fn free_heap(&mut self, rank: Rank) {
        self.member(rank).memory.free_heap();
    }

    /// Bytes of a rank's heap that have memory.
    pub(super) fn heap_resident(&mut self, rank: Rank) -> u64 {
        self.member(rank).seat.heap.segment().resident_bytes().expect("a segment")
    }

    fn member(&mut self, rank: Rank) -> &mut Member {
        &mut self.members[rank as usize]
    }
}

/// What `rank` is told of a job whose ranks have these addresses.
pub(super) fn members(rank: Rank, addresses: Vec<Box<[u8]>>) -> Members {
    let incarnations = vec![0; addresses.len()];
    let find = Box::new(move |rank: Rank| Ok(addresses[rank as usize].clone()));
    Members { secret: SECRET.into(), own: Party { rank, incarnation: 0 }, incarnations, find }
}

fn open(setting: Setting<'_>) -> NetEndpoint {
    const OFFERED: &str = "the provider was offered";
    if !setting.registers_local {
        return NetEndpoint::open(setting.provider, true).expect(OFFERED);
    }
    let endpoint = Endpoint::open(setting.provider, &Options::default()).expect(OFFERED);
    let mut description = endpoint.description().clone();
    description.mr_mode.local = true;
    NetEndpoint::over(endpoint, description).and_then(NetEndpoint::equip).expect(OFFERED)
}

impl Member {
    fn join(
        broker: &Broker,
        rank: Rank,
        endpoint: NetEndpoint,
        all: Vec<(Box<[u8]>, u32)>,
        setting: Setting<'_>,
    ) -> Member {
        let env = broker.env(rank);
        let config = Config::new().heap_bytes(HEAP_BYTES);
        let seat = Seat::take(&config, Some(&env), None, Box::new(|_| {})).expect("a place in the job");
        let size = all.len() as u32;
        let members = members(rank, all.into_iter().map(|(address, _)| address).collect());
        let checked = CheckedCopy::new().expect("a scratch file");
        let mut own = OwnMemory::new(Arc::clone(seat.peers.itself()), checked)
            .with_bounce_buffers(Arc::clone(&seat.heap));
        own.set_bounce_buffers_aside();
        let mut transport = OfiTransport::new(endpoint, members, own, setting.send_timeout);
        transport.copies.delivers &= !setting.confirms;
        if setting.pins {
            transport.shares_heaps = false;
            transport.heap = Some(Arc::clone(&seat.heap));
        }
        let node = match setting.registration {
            Some(settings) => Node::with_registration(rank, size, HANDLERS, transport, settings),
            None => Node::new(rank, size, HANDLERS, transport),
        };
        let memory = Memory::new(Arc::clone(&seat.heap));
        Member { node, losses: Vec::new(), memory, seat }
    }
}

impl Cluster for OfiCluster {
    type Transport = OfiTransport;

    fn size(&self) -> u32 {
        self.members.len() as u32
    }

    fn node(&mut self, rank: Rank) -> &mut Node<OfiTransport> {
        &mut self.member(rank).node
    }

    fn private(&mut self, rank: Rank, len: usize) -> Place {
        self.member(rank).memory.private(len)
    }

    fn heap(&mut self, rank: Rank, len: usize) -> Place {
        self.member(rank).memory.heap(len)
    }

    /// Only at targets: the library hands the transport local memory that is borrowed, and hence there. Rank
    /// 0 is whose transfers the suite looks at.
    fn inaccessible(&mut self, rank: Rank) -> Option<Place> {
        (rank != 0).then_some(NOWHERE)
    }

    fn read_only(&mut self, _rank: Rank) -> Option<Place> {
        Some(read_only())
    }

    fn peek(&mut self, rank: Rank, from: Place, into: &mut [u8]) {
        self.member(rank).memory.peek(from, into);
    }

    fn poke(&mut self, rank: Rank, to: Place, from: &[u8]) {
        self.member(rank).memory.poke(to, from);
    }

    fn step(&mut self) {
        for member in &mut self.members {
            let mut lost = std::mem::take(&mut member.losses);
            lost.extend(member.node.transport().take_lost());
            lost.into_iter().for_each(|lost| member.node.lose(lost));
        }
    }

    /// The others are told, as a launcher does.
    fn kill(&mut self, rank: Rank) {
        self.crash(rank);
        for (other, member) in self.members.iter_mut().enumerate() {
            if other as Rank != rank {
                member.losses.push(rank);
            }
        }
    }

    fn now(&self) -> Nanos {
        self.epoch.elapsed().as_nanos() as Nanos
    }

    fn counters(&mut self, rank: Rank) -> Counters {
        let node = self.node(rank);
        let mut counters = node.counters().clone();
        counters.merge(&node.transport().counters);
        counters
    }
}

/// Wants each place to be taken by a part that is under way, and whoever waits for one to be gone on with.
pub(super) fn audit_places(transport: &mut OfiTransport) {
    let OfiTransport { copies, links, gone, .. } = transport;
    for (rank, link) in links.iter_mut() {
        for (kind, most) in PARTS.into_iter().enumerate() {
            let taken = link.copying.parts[kind];
            let its = |part: &Part| copies.all[part.copy].rank == rank && part.kind() == kind;
            let under_way = copies.parts.iter().filter(|(_, part)| its(part)).count();
            // Small ones may be in slots.
            assert!(
                under_way == taken || kind == Size::Small as usize && under_way <= taken && taken <= most
            );
            let waits = |copy: &usize| copies.all.get(*copy).is_some_and(|copy| copy.waits == Some(kind));
            let is_gone_on_with = taken == most || link.lists.stuck || gone.has(rank);
            assert!(
                is_gone_on_with || !link.copying.copies[kind].iter().any(waits),
                "copies wait for nothing"
            );
        }
    }
}

impl Drop for OfiCluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            for (rank, member) in self.members.iter_mut().enumerate() {
                member.node.audit().unwrap_or_else(|what| panic!("rank {rank}: {what}"));
                audit_places(member.node.transport());
            }
        }
    }
}
