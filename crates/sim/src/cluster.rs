//! A cluster of real nodes in virtual time.

use std::cell::RefCell;
use std::rc::Rc;

use engine::node::Polled;
use engine::registration::Settings;
use engine::{Delivery, Inbox, Nanos, Node, Rank};

use crate::costs::Costs;
use crate::faults::{Faults, Incident};
use crate::process::Health;
use crate::queue::Event;
use crate::transport::{Reach, SimTransport};
use crate::world::{Next, World};

/// What a cluster is made from. The same plan, driven the same way, gives the same run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Ranks.
    pub size: u32,
    /// Active-Message handlers that every node has.
    pub handlers: u32,
    /// What everything costs.
    pub costs: Costs,
    /// What cards reach without a key.
    pub reach: Reach,
    /// How nodes register private memory; they do not without.
    pub registration: Option<Settings>,
    /// What goes wrong.
    pub faults: Faults,
    /// Decides when and where.
    pub seed: u64,
}

impl Plan {
    /// `size` ranks without handlers, whose cards reach everything and where nothing goes wrong.
    pub fn new(size: u32, costs: Costs) -> Plan {
        Plan {
            size,
            handlers: 0,
            costs,
            reach: Reach::Everything,
            registration: None,
            faults: Faults::default(),
            seed: 0,
        }
    }
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something inside the network, or nothing that a program could notice: [`Cluster::pass`] alone tells of
    /// it.
    Network,
    /// A process has the processor, and its node was polled: operations may have ended, lanes may have room,
    /// what it computed is done. Its program's turn.
    Polled(Rank),
    /// An Active Message for a handler: it is in [`Cluster::inbox`]. The handler must run before the next
    /// step.
    Deliver(Rank, Delivery),
    /// A process learnt that another is gone.
    Lost {
        /// Who learnt it.
        rank: Rank,
        /// Who is gone.
        lost: Rank,
    },
    /// A process learnt that the rank of one that it knew is another process's, where no address means what
    /// it did.
    Returned {
        /// Who learnt it.
        rank: Rank,
        /// Whose rank it is.
        peer: Rank,
    },
    /// A fault: private memory of a process was unmapped. Whoever watches it hears of it now.
    Unmapped {
        /// Whose.
        rank: Rank,
        /// The first byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Memory that a fault had unmapped is there again, and zero.
    Remapped {
        /// Whose.
        rank: Rank,
        /// The first byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A fault: a process ended.
    Stopped(Rank),
    /// A process began that has the rank of one that ended. There is nothing in its memories.
    Restarted(Rank),
    /// A fault: a process polls no more, perhaps for ever.
    Muted(Rank),
    /// A fault is over: a process polls again.
    Unmuted(Rank),
}

/// Nodes over a simulated network, driven by one thread.
///
/// Programs are the driver's: it acts for a rank by [`Cluster::node`], which then happens at that rank's own
/// time ([`Cluster::time_of`]), and calls [`Cluster::step`] to let the next thing happen.
pub struct Cluster {
    nodes: Vec<Node<SimTransport>>,
    make: Make,
    pub(crate) world: Rc<RefCell<World>>,
    inbox: Inbox,
    /// By rank: when it looks at its deadlines next.
    alarms: Vec<Alarms>,
    /// Whose nodes the driver has had in its hands, and must be polled until they have nothing more to do.
    touched: Vec<Rank>,
    /// Who has the processor, and goes on to what its card has for it already when it has done with what came
    /// first.
    busy: Option<Rank>,
    /// Polls so far that found something.
    polls: u64,
}

/// When a rank is to look at its deadlines.
#[derive(Clone, Debug, Default)]
struct Alarms {
    /// Next.
    due: Option<Nanos>,
    /// The events that it was planned by and that have not come, the next one last. Each is before all that
    /// were planned then: deadlines a long way off, which come and go by the thousand, do not fill the queue.
    planned: Vec<Nanos>,
}

impl Alarms {
    /// Notes that the rank is to look at `at`. `true`: nothing is planned that would have it look by then.
    fn set(&mut self, at: Nanos) -> bool {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
        let new = self.planned.last().is_none_or(|planned| at < *planned);
        if new {
            self.planned.push(at);
        }
        new
    }
}

/// What makes a node.
#[derive(Clone, Copy)]
struct Make {
    size: u32,
    handlers: u32,
    reach: Reach,
    registration: Option<Settings>,
}

impl Make {
    fn node(&self, rank: Rank, world: &Rc<RefCell<World>>) -> Node<SimTransport> {
        let Make { size, handlers, reach, registration } = *self;
        let transport = SimTransport::new(rank, reach, Rc::clone(world));
        match registration {
            Some(settings) => Node::with_registration(rank, size, handlers, transport, settings),
            None => Node::new(rank, size, handlers, transport),
        }
    }
}

/// Latencies, at most, for which a fault lasts that ends by itself.
const FAULT_LATENCIES_MAX: u64 = 200;

/// A rank that restarts is gone for fewer latencies than a power of two below this one: often for hardly any.
const RESTART_LATENCIES_BITS: u64 = 8;

impl Cluster {
    /// A cluster at time 0 with nothing in its memories.
    pub fn new(plan: Plan) -> Cluster {
        let Plan { size, handlers, costs, reach, registration, faults, seed } = plan;
        let world = Rc::new(RefCell::new(World::new(size, costs, faults, seed)));
        let make = Make { size, handlers, reach, registration };
        Cluster {
            nodes: (0..size).map(|rank| make.node(rank, &world)).collect(),
            make,
            inbox: Inbox::default(),
            alarms: vec![Alarms::default(); size as usize],
            touched: Vec::new(),
            busy: None,
            polls: 0,
            world,
        }
    }

    /// Ranks.
    pub fn size(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// The node of `rank`. What is called there happens at [`Cluster::time_of`] that rank, and takes its
    /// processor.
    pub fn node(&mut self, rank: Rank) -> &mut Node<SimTransport> {
        self.touch(rank);
        &mut self.nodes[rank as usize]
    }

    /// The node of `rank`, to look at only: nothing comes of that.
    pub fn view(&self, rank: Rank) -> &Node<SimTransport> {
        &self.nodes[rank as usize]
    }

    /// The message that [`Step::Deliver`] was about.
    pub fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// The time that all events before have happened by, in ns.
    pub fn now(&self) -> Nanos {
        self.world.borrow().now
    }

    /// The time that `rank`'s program has come to, in ns: [`Cluster::now`], or later when its processor has
    /// work.
    pub fn time_of(&self, rank: Rank) -> Nanos {
        self.world.borrow().time_of(rank)
    }

    /// Has `rank`'s program compute for `work` ns. Its node is not polled meanwhile; [`Step::Polled`]
    /// follows.
    pub fn compute(&mut self, rank: Rank, work: Nanos) {
        self.busy = None;
        let mut world = self.world.borrow_mut();
        world.spend(rank, work);
        world.wake(rank);
    }

    /// Makes sure that `rank` looks at its operations' deadlines at `at`, and from then on whenever one
    /// passes. Needed once for each operation that has one.
    pub fn alarm(&mut self, rank: Rank, at: Nanos) {
        let mut world = self.world.borrow_mut();
        let at = at.max(world.now);
        if self.alarms[rank as usize].set(at) {
            world.queue.push(at, Event::Alarm(rank));
        }
    }

    /// Lets things happen, up to the next that a program could notice. `None` when nothing will happen any
    /// more, unless a program does something.
    pub fn step(&mut self) -> Option<Step> {
        loop {
            while let Some(rank) = self.touched.pop() {
                if let Some(step) = self.settle(rank) {
                    return Some(step);
                }
            }
            let next = self.world.borrow_mut().go_on();
            let step = match next {
                Next::Due(rank) => self.run(rank),
                Next::Befalls(incident) => self.befall(incident),
                Next::Happens(event) => self.on_event(event),
                Next::Nothing => return None,
            };
            if step != Step::Network {
                return Some(step);
            }
        }
    }

    /// Lets the next thing happen, whether a program could notice it or not, but polls no node: that is left
    /// to a driver that polls them all in turn.
    pub fn pass(&mut self) -> Option<Step> {
        let incident = self.world.borrow_mut().incident();
        if let Some(incident) = incident {
            return Some(self.befall(incident));
        }
        let event = self.world.borrow_mut().advance()?;
        Some(match event {
            None | Some(Event::Wake(_)) => Step::Network,
            Some(event) => self.on_event(event),
        })
    }

    /// What happens outside the network.
    fn on_event(&mut self, event: Event) -> Step {
        match event {
            Event::Wake(rank) => self.run(rank),
            Event::Alarm(rank) => {
                self.alarms[rank as usize].planned.pop();
                self.expire(rank)
            }
            Event::Lose { to, lost, incarnation } => self.lose(to, lost, incarnation),
            Event::HangUp { to, to_incarnation, by, incarnation }
                if self.incarnation(to) == to_incarnation =>
            {
                self.lose(to, by, incarnation)
            }
            Event::Restart(rank) if !self.is_there(rank) => self.restart(rank),
            Event::Unmute(rank) => self.unmute(rank),
            Event::Remap { rank, offset, pages } => self.remap(rank, offset, pages),
            _ => Step::Network,
        }
    }

    /// Gives `rank` the processor, if it is free.
    fn run(&mut self, rank: Rank) -> Step {
        {
            let mut world = self.world.borrow_mut();
            let now = world.now;
            let process = world.process_mut(rank);
            process.waking = false;
            if process.health != Health::Alive {
                return Step::Network;
            }
            if process.cpu > now {
                world.wake(rank);
                return Step::Network;
            }
        }
        self.busy = Some(rank);
        self.poll(rank)
    }

    /// Takes note that `rank`'s node was called, and may have something to do that needs a poll.
    fn touch(&mut self, rank: Rank) {
        if self.touched.last() != Some(&rank) {
            self.touched.push(rank);
        }
    }

    /// Polls a node that was called. What its card has for it must wait until it has the processor.
    fn settle(&mut self, rank: Rank) -> Option<Step> {
        {
            let mut world = self.world.borrow_mut();
            if world.process(rank).health != Health::Alive {
                return None;
            }
            if self.busy != Some(rank) && world.has_news(rank) && world.time_of(rank) > world.now {
                world.wake(rank);
                return None;
            }
        }
        self.tell_time(rank);
        if !(self.world.borrow().has_news(rank) || self.nodes[rank as usize].has_work()) {
            return None;
        }
        match self.poll_node(rank) {
            // What its card has, if anything, cannot be taken yet: to wake it for that would go on for ever.
            Polled::Idle => None,
            // No rank of a storm has collectives.
            Polled::Progressed | Polled::Local(_) | Polled::Acknowledged(_) | Polled::Refused(_) => {
                Some(self.replaced(rank).unwrap_or_else(|| self.poll(rank)))
            }
            Polled::Deliver(delivery) => {
                self.touch(rank);
                Some(Step::Deliver(rank, delivery))
            }
        }
    }

    /// Tells what a node has to tell of processes that took others' places.
    #[inline]
    fn replaced(&mut self, rank: Rank) -> Option<Step> {
        let peer = self.nodes[rank as usize].take_replaced()?;
        self.touch(rank);
        Some(Step::Returned { rank, peer })
    }

    /// Polls a node until it has done with what its card has for it now. All of that takes its processor one
    /// after the other, and happens at [`Cluster::time_of`] the rank.
    fn poll(&mut self, rank: Rank) -> Step {
        loop {
            let polled = self.poll_node(rank);
            self.tell_time(rank);
            match polled {
                Polled::Idle => return Step::Polled(rank),
                Polled::Progressed | Polled::Local(_) | Polled::Acknowledged(_) | Polled::Refused(_) => {
                    if let Some(step) = self.replaced(rank) {
                        return step;
                    }
                }
                Polled::Deliver(delivery) => {
                    self.touch(rank);
                    return Step::Deliver(rank, delivery);
                }
            }
            if !(self.world.borrow().has_news(rank) || self.nodes[rank as usize].has_work()) {
                return Step::Polled(rank);
            }
        }
    }

    fn poll_node(&mut self, rank: Rank) -> Polled {
        let polled = self.nodes[rank as usize].poll(&mut self.inbox);
        self.polls += u64::from(polled != Polled::Idle);
        debug_assert!(
            polled != Polled::Idle || self.world.borrow().process(rank).outbox.is_empty(),
            "who finds nothing has asked the network, and sent what had gathered"
        );
        polled
    }

    /// A peer that something of this rank's is on its way to that can still write there, for each that is.
    pub(crate) fn written(&self, rank: Rank) -> Vec<Rank> {
        let world = self.world.borrow();
        world.written_by_flights(rank).chain(world.written_by_messages(rank)).collect()
    }

    /// How many things have happened so far: what the network did, and what nodes found there.
    pub(crate) fn happened(&self) -> u64 {
        self.polls + self.world.borrow().events
    }

    /// Has a node that waits for somebody from now on look when that is.
    fn tell_time(&mut self, rank: Rank) {
        if self.nodes[rank as usize].wants_time() {
            self.alarm(rank, self.now());
        }
    }

    fn expire(&mut self, rank: Rank) -> Step {
        let now = self.now();
        let alive = self.world.borrow().process(rank).health == Health::Alive;
        let Some(due) = self.alarms[rank as usize].due.filter(|_| alive) else { return Step::Network };
        if due > now {
            self.alarm(rank, due);
            return Step::Network;
        }
        self.alarms[rank as usize].due = None;
        if let Some(next) = self.node(rank).expire(now) {
            self.alarm(rank, next);
        }
        Step::Polled(rank)
    }

    fn remap(&mut self, rank: Rank, offset: u64, pages: u32) -> Step {
        let len = self.world.borrow_mut().map_holes(rank, offset, pages);
        Step::Remapped { rank, offset, len }
    }

    fn lose(&mut self, to: Rank, lost: Rank, incarnation: u32) -> Step {
        if !self.is_there(to) || !self.world.borrow_mut().bury(to, lost, incarnation) {
            return Step::Network;
        }
        self.node(to).lose(lost);
        Step::Lost { rank: to, lost }
    }

    /// Ends `rank` without a word, as a crash does. The others learn of it later, each in its own time.
    pub fn kill(&mut self, rank: Rank) {
        self.world.borrow_mut().kill(rank);
    }

    /// Makes another process of `rank`: nothing in its memories, nothing registered, a node without a past.
    /// The one that was is ended, if it was not. The others learn of it later, each in its own time, at the
    /// latest by what the new one sends them ([`Step::Returned`]).
    pub fn restart(&mut self, rank: Rank) -> Step {
        self.kill(rank);
        self.world.borrow_mut().restart(rank);
        self.nodes[rank as usize] = self.make.node(rank, &self.world).as_replacement();
        self.alarms[rank as usize].due = None;
        Step::Restarted(rank)
    }

    /// How many processes had `rank` before the one that has it.
    pub fn incarnation(&self, rank: Rank) -> u32 {
        self.world.borrow().incarnation(rank)
    }

    /// Likewise, before the one that `rank` takes for it.
    pub fn met(&self, rank: Rank, peer: Rank) -> u32 {
        self.world.borrow().met(rank, peer)
    }

    fn is_there(&self, rank: Rank) -> bool {
        !matches!(self.world.borrow().process(rank).health, Health::Dead(_))
    }

    /// From now on nothing goes wrong any more. What has, stays so: mute ranks are mute, limits are what they
    /// are, and what was unmapped comes back when it was to.
    pub fn calm(&mut self) {
        self.world.borrow_mut().weather.calm();
    }

    /// `rank` polls no more until [`Cluster::unmute`]; its memory and its card are still there.
    pub fn mute(&mut self, rank: Rank) {
        let mut world = self.world.borrow_mut();
        let process = world.process_mut(rank);
        if process.health == Health::Alive {
            process.health = Health::Mute;
        }
    }

    /// `rank` polls again, if it was mute.
    pub fn unmute(&mut self, rank: Rank) -> Step {
        {
            let mut world = self.world.borrow_mut();
            let process = world.process_mut(rank);
            if process.health != Health::Mute {
                return Step::Network;
            }
            process.health = Health::Alive;
            world.wake(rank);
        }
        self.expire(rank);
        Step::Unmuted(rank)
    }

    fn befall(&mut self, incident: Incident) -> Step {
        let mut world = self.world.borrow_mut();
        let rank = world.weather.below(self.nodes.len() as u64) as Rank;
        let alive = world.processes.iter().filter(|process| process.health == Health::Alive).count();
        let is_alive = world.process(rank).health == Health::Alive;
        let lasts = world.costs.latency_ns * (1 + world.weather.below(FAULT_LATENCIES_MAX));
        let at = world.now + lasts;
        match incident {
            Incident::Shrink => {
                world.shrink(rank);
                Step::Network
            }
            Incident::Unmap => match world.unmap_some(rank, at) {
                Some((offset, len)) => Step::Unmapped { rank, offset, len },
                None => Step::Network,
            },
            Incident::Restart => {
                let most = 1 << world.weather.below(RESTART_LATENCIES_BITS);
                let at = world.now + world.costs.latency_ns * world.weather.below(most);
                world.queue.push(at, Event::Restart(rank));
                let was_there = !matches!(world.process(rank).health, Health::Dead(_));
                drop(world);
                self.kill(rank);
                if was_there { Step::Stopped(rank) } else { Step::Network }
            }
            Incident::Stop if is_alive && alive > 2 => {
                drop(world);
                self.kill(rank);
                Step::Stopped(rank)
            }
            Incident::Mute if is_alive && alive > 2 => {
                if world.weather.below(2) == 0 {
                    world.queue.push(at, Event::Unmute(rank));
                }
                drop(world);
                self.mute(rank);
                Step::Muted(rank)
            }
            Incident::Stop | Incident::Mute => Step::Network,
        }
    }
}
