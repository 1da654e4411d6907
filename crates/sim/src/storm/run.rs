//! The storm itself: lets things happen, gives ranks their turns, and looks.

use engine::registration::Settings;
use engine::{Direction, Nanos, OpId, Piece, Place, Rank};
use rustc_hash::FxHashSet;

use super::active_messages::InFlightMessages;
use super::counters::Counting;
use super::definition::{Outcome, Storm};
use super::draw::{self, Dice};
use super::given_up::GivenUp;
use super::granted::{Granted, Named, grants, make_arenas};
use super::knowledge::Knowledge;
use super::locality::Locality;
use super::shadow::{Shadow, Words};
use crate::cluster::{Cluster, Plan, Step};
use crate::space::Access;
use crate::transport::Reach;
use crate::violation::{Breach, Violation};

/// Local buffers of a rank.
pub(super) const SLOTS: u32 = 24;

/// Bytes of a local buffer.
pub(super) const SLOT_BYTES: u64 = 24 << 10;

/// Things that happen between two looks at everything, at most: events of the network, and polls that found
/// something. In short storms fewer, one for so many steps; as a step is several things, that makes a hundred
/// looks or more.
const AUDIT_THINGS: u64 = 1_000;
const STEPS_A_THING: u64 = 60;

/// Steps between two words of how far it has come.
const TELL_EVERY: u64 = 10_000;

/// Steps, at most, that it takes until all has ended after the storm, for each rank; and a number for all.
const CALM_STEPS: u64 = 20_000;

/// Virtual time that it takes at most.
const CALM_NS: Nanos = 60_000_000_000;

/// Whether a rank takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Alive,
    Mute,
    Dead,
}

/// What a rank has under way.
#[derive(Debug)]
pub(super) struct Crew {
    pub(super) health: Health,
    pub(super) flying: Vec<Flying>,
    /// Its puts that have failed and may not have settled.
    pub(super) given_up: Vec<GivenUp>,
    /// Its local buffers, and which of them are in use.
    pub(super) slots: Place,
    pub(super) slots_used: u32,
    /// Whose memory it has heard the news of, and will try next.
    pub(super) curious: Option<Rank>,
}

impl Crew {
    /// The crew of a process that has just begun.
    pub(super) fn new(cluster: &mut Cluster, rank: Rank) -> Crew {
        Crew {
            health: Health::Alive,
            flying: Vec::new(),
            given_up: Vec::new(),
            slots: cluster.map(rank, u64::from(SLOTS) * SLOT_BYTES, Access::Full),
            slots_used: 0,
            curious: None,
        }
    }
}

/// An operation under way.
#[derive(Debug)]
pub(super) struct Flying {
    pub(super) id: OpId,
    pub(super) peer: Rank,
    /// How many processes had the peer's rank before the one that it was started with.
    pub(super) met: u32,
    /// The step that it was started at.
    pub(super) started: u64,
    /// The changes of the peer's memory that were known then.
    pub(super) known: u32,
    /// Whether it may time out.
    pub(super) timed: bool,
    pub(super) slot: Option<u32>,
    pub(super) work: Work,
}

/// What it does.
#[derive(Debug)]
pub(super) enum Work {
    /// Puts words, which are put number `put`; all before `below` had ended then. The message announces it.
    Put { put: u32, below: u32, words: Vec<Words>, message: Option<u64> },
    /// Gets words, where `floors` were there for sure.
    Get { words: Vec<Words>, floors: Vec<u32> },
    /// Puts or gets by names of grants.
    ByName { direction: Direction, named: Vec<Named> },
    /// Counts by the name of a counter.
    ByCounter(Counting),
    /// Counts at the peer.
    Count,
    /// Looks at the peer's counter, which was at least this.
    Look { floor: u64 },
}

/// Lists of operations that are over, for those to come.
#[derive(Debug, Default)]
pub(super) struct Spare {
    words: Vec<Vec<Words>>,
    floors: Vec<Vec<u32>>,
}

impl Spare {
    pub(super) fn words(&mut self) -> Vec<Words> {
        self.words.pop().unwrap_or_default()
    }

    pub(super) fn floors(&mut self) -> Vec<u32> {
        self.floors.pop().unwrap_or_default()
    }

    pub(super) fn take_back(&mut self, work: Work) {
        let (mut words, floors) = match work {
            Work::Put { words, .. } => (words, None),
            Work::Get { words, floors } => (words, Some(floors)),
            Work::ByName { .. } | Work::ByCounter(_) | Work::Count | Work::Look { .. } => return,
        };
        words.clear();
        self.words.push(words);
        if let Some(mut floors) = floors {
            floors.clear();
            self.floors.push(floors);
        }
    }
}

/// Everything is looked at next when so many things have happened; and how many come between two looks.
struct Audits {
    at: u64,
    every: u64,
}

/// A storm under way.
pub(super) struct Run {
    pub(super) cluster: Cluster,
    pub(super) dice: Dice,
    pub(super) settings: Settings,
    pub(super) crews: Vec<Crew>,
    pub(super) shadow: Shadow,
    pub(super) locality: Locality,
    /// Where ranks grant memory.
    pub(super) granted: Option<Granted>,
    pub(super) knowledge: Knowledge,
    pub(super) messages: InFlightMessages,
    /// Where every rank's counter is, and by rank: counts that have ended, by what they found; and that were
    /// begun.
    pub(super) counter: Place,
    pub(super) counts: Vec<FxHashSet<u64>>,
    pub(super) counts_begun: Vec<u64>,
    /// Pairs of live ranks of which one has given the other up.
    pub(super) cut: FxHashSet<(Rank, Rank)>,
    /// Operations, at most, that a rank has under way.
    pub(super) window: usize,
    pub(super) latency: Nanos,
    pub(super) step: u64,
    pub(super) operations: u64,
    pub(super) failed: u64,
    /// For what goes into memory, and comes from there.
    pub(super) bytes: Vec<u8>,
    /// For the pieces of an operation that is started.
    pub(super) pieces: Vec<Piece>,
    pub(super) spare: Spare,
    steps: u64,
    audits: Audits,
    mutes: bool,
    budget: u64,
}

impl Run {
    pub(super) fn new(storm: &Storm) -> Run {
        let mut dice = Dice::new(storm.seed);
        let drawn = draw::costs(&mut dice, storm.seed);
        let costs = storm.costs.clone().unwrap_or(drawn);
        let settings = draw::settings(&mut dice, storm.nodes, &costs, &storm.faults);
        let latency = costs.latency_ns;
        let mut cluster = Cluster::new(Plan {
            handlers: 1,
            reach: if storm.seed.is_multiple_of(2) { Reach::Heap } else { Reach::Stages },
            registration: Some(settings),
            faults: storm.faults,
            seed: storm.seed,
            ..Plan::new(storm.nodes, costs)
        });
        let shadow = Shadow::new(&mut cluster);
        let all = storm.nodes as usize;
        let counters: Vec<Place> = (0..storm.nodes).map(|rank| cluster.heap(rank, 8)).collect();
        let window = dice.pick(&[1, 3, 8, 16]);
        let locality = Locality::new(&mut dice, &shadow);
        let crews = (0..storm.nodes).map(|rank| Crew::new(&mut cluster, rank)).collect();
        let granted = grants(storm.seed).then(|| {
            let arena = make_arenas(&mut cluster, 0..storm.nodes);
            Granted::new(arena, storm.nodes)
        });
        Run {
            crews,
            knowledge: Knowledge::new(storm.nodes),
            messages: InFlightMessages::default(),
            counter: counters[0],
            counts: vec![FxHashSet::default(); all],
            counts_begun: vec![0; all],
            cut: FxHashSet::default(),
            window,
            latency,
            step: 0,
            operations: 0,
            failed: 0,
            bytes: Vec::new(),
            pieces: Vec::new(),
            spare: Spare::default(),
            steps: storm.steps,
            audits: Audits { at: 0, every: (storm.steps / STEPS_A_THING).clamp(1, AUDIT_THINGS) },
            mutes: storm.faults.mute > 0.0,
            budget: settings.peers_bytes + settings.victims_bytes,
            cluster,
            dice,
            settings,
            shadow,
            locality,
            granted,
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        let peaks = (0..self.cluster.size()).map(|rank| self.cluster.pinned_peak(rank));
        Outcome {
            operations: self.operations,
            failed: self.failed,
            steps: self.step,
            pinned_peak_bytes: peaks.max().unwrap_or(0),
            pinned_budget_bytes: self.budget,
            fingerprint: self.cluster.fingerprint(),
        }
    }

    pub(super) fn run(&mut self, told: &mut dyn FnMut(u64)) -> Result<(), String> {
        while self.step < self.steps {
            if self.step.is_multiple_of(TELL_EVERY) {
                told(self.step);
            }
            match self.cluster.step() {
                Some(step) => self.on_step(step, true)?,
                None => self.kick(),
            }
            self.look()?;
        }
        self.calm_down()?;
        self.end()
    }

    /// Nothing happens by itself: somebody does something.
    fn kick(&mut self) {
        let alive: Vec<Rank> =
            (0..self.cluster.size()).filter(|rank| self.is(*rank, Health::Alive)).collect();
        if !alive.is_empty() {
            let rank = self.dice.pick(&alive);
            self.act(rank);
            self.cluster.compute(rank, 0);
        }
    }

    fn on_step(&mut self, step: Step, acts: bool) -> Result<(), String> {
        match step {
            Step::Network => {}
            Step::Polled(rank) => self.turn(rank, acts)?,
            Step::Deliver(rank, delivery) => self.deliver(rank, delivery)?,
            Step::Lost { rank, .. } | Step::Returned { rank, .. } => self.cluster.compute(rank, 0),
            Step::Unmapped { rank, offset, len } => self.on_unmapped(rank, offset, len),
            Step::Remapped { rank, offset, len } => {
                let step = self.step;
                self.shadow.remap(rank, offset, len, step);
            }
            Step::Stopped(rank) => {
                self.look_at_budget(rank)?;
                self.crews[rank as usize].health = Health::Dead;
                self.crews[rank as usize].flying.clear();
                self.crews[rank as usize].given_up.clear();
            }
            Step::Restarted(rank) => self.on_restarted(rank),
            Step::Muted(rank) => self.crews[rank as usize].health = Health::Mute,
            Step::Unmuted(rank) => self.on_unmuted(rank),
        }
        Ok(())
    }

    /// `rank` has the processor: it sees what has ended, and starts something else.
    fn turn(&mut self, rank: Rank, acts: bool) -> Result<(), String> {
        if self.mutes {
            self.look_for_given_up(rank);
        }
        self.look_at_budget(rank)?;
        self.reap(rank)?;
        self.look_for_late_bytes(rank)?;
        self.take_memory_back(rank)?;
        let settled = self.take_settled(rank);
        if !acts || !self.is(rank, Health::Alive) {
            return Ok(());
        }
        settled.into_iter().for_each(|(peer, words)| self.put_again(rank, peer, words));
        while self.crews[rank as usize].flying.len() < self.window && !self.dice.once_in(8) {
            self.act(rank);
        }
        if self.dice.once_in(16) {
            let work = self.dice.below(20 * self.latency);
            self.cluster.compute(rank, work);
        }
        Ok(())
    }

    fn on_unmapped(&mut self, rank: Rank, offset: u64, len: u64) {
        let (at, started) = (self.cluster.now(), self.cluster.started());
        let change = self.knowledge.change(rank, offset, at, started);
        self.shadow.unmap(rank, offset, len, change, self.step);
        let crew = &self.crews[rank as usize];
        for flying in &crew.flying {
            let slot = flying.slot.map_or(0, |slot| crew.slots.offset + u64::from(slot) * SLOT_BYTES);
            let hit = slot < offset + len && offset < slot + SLOT_BYTES;
            match &flying.work {
                Work::Put { words, .. } if hit => {
                    words.iter().for_each(|words| self.shadow.loosen(flying.peer, words));
                }
                Work::ByName { named, .. } if hit => {
                    self.granted.iter_mut().for_each(|granted| granted.loosen(named));
                }
                _ => {}
            }
        }
        self.cluster.node(rank).invalidate(offset, len);
        self.gossip(rank);
    }

    fn on_unmuted(&mut self, rank: Rank) {
        self.crews[rank as usize].health = Health::Alive;
        // It has looked at its deadlines already.
        self.look_for_given_up(rank);
        self.cluster.compute(rank, 0);
    }

    /// A rank that gives another up cuts its connection.
    fn look_for_given_up(&mut self, rank: Rank) {
        if self.crews[rank as usize].health == Health::Dead {
            return;
        }
        let pair = |peer: Rank| (rank.min(peer), rank.max(peer));
        let is_news = |peer: &Rank| {
            let runs = *peer != rank && !self.is(*peer, Health::Dead);
            runs && !self.cut.contains(&pair(*peer)) && !self.are_strangers(rank, *peer)
        };
        let news: Vec<Rank> = self.cluster.view(rank).lost_peers().filter(is_news).collect();
        self.cut.extend(news.into_iter().map(pair));
    }

    /// Whether one of the two has given the other up, or is gone.
    pub(super) fn is_cut(&self, one: Rank, other: Rank) -> bool {
        let gone = |rank| self.is(rank, Health::Dead);
        gone(one) || gone(other) || self.cut.contains(&(one.min(other), one.max(other)))
    }

    pub(super) fn is(&self, rank: Rank, health: Health) -> bool {
        self.crews[rank as usize].health == health
    }

    /// What must hold after every step.
    fn look(&mut self) -> Result<(), String> {
        self.step += 1;
        if self.cluster.has_violations() {
            self.cluster
                .take_violations()
                .iter()
                .try_for_each(|violation| self.judge_violation(violation))?;
        }
        let happened = self.cluster.happened();
        if happened >= self.audits.at {
            self.audits.at = happened + self.audits.every;
            self.audit()?;
        }
        Ok(())
    }

    /// The peak says of every moment what the card had pinned, so that a look whenever the rank is polled
    /// misses nothing.
    fn look_at_budget(&mut self, rank: Rank) -> Result<(), String> {
        let (peak, budget) = (self.cluster.pinned_peak(rank), self.budget);
        let books = self.cluster.view(rank).registration_counters().table.pinned_peak;
        if peak.max(books) > budget {
            return Err(format!(
                "rank {rank} had {peak} bytes pinned, {books} by its books: M + MAXVICTIM is {budget}"
            ));
        }
        Ok(())
    }

    fn judge_violation(&self, violation: &Violation) -> Result<(), String> {
        let Violation { initiator, owner, serial, breach, .. } = *violation;
        let excused = match breach {
            // It could not know yet.
            Breach::Stale { since, knew } => !(knew || self.knowledge.knew(initiator, owner, since, serial)),
            Breach::Unknown
            | Breach::Revoked
            | Breach::Early
            | Breach::Beyond
            | Breach::Base
            | Breach::Unregistered => false,
        };
        if excused { Ok(()) } else { Err(format!("a wrong access: {violation:?}")) }
    }

    /// Everything's books, and those of both ends of every right.
    fn audit(&mut self) -> Result<(), String> {
        let ranks = self.cluster.size();
        for rank in (0..ranks).filter(|rank| self.crews[*rank as usize].health != Health::Dead) {
            let card = self.cluster.pinned(rank);
            let node = self.cluster.view(rank);
            node.audit().map_err(|what| format!("rank {rank}: {what}"))?;
            if node.counters().malformed > 0 {
                return Err(format!("rank {rank} was sent what no correct peer sends"));
            }
            let books = node.registration_counters().table.pinned;
            if card > books {
                return Err(format!("rank {rank} has {card} bytes pinned, {books} by its books"));
            }
        }
        Ok(())
    }

    /// The faults are over, and everything ends.
    fn calm_down(&mut self) -> Result<(), String> {
        self.cluster.calm();
        for rank in 0..self.cluster.size() {
            if self.is(rank, Health::Mute) {
                let step = self.cluster.unmute(rank);
                self.on_step(step, false)?;
            }
        }
        let (steps, time) = (self.step, self.cluster.now());
        let steps_max = steps + CALM_STEPS * (u64::from(self.cluster.size()) + 1);
        let mut nudges = 0;
        while nudges < 2 {
            match self.cluster.step() {
                Some(step) => self.on_step(step, false)?,
                None => {
                    nudges += 1;
                    for rank in 0..self.cluster.size() {
                        self.cluster.compute(rank, 0);
                    }
                }
            }
            self.look()?;
            if self.step > steps_max || self.cluster.now() > time + CALM_NS {
                return Err(format!("{} steps after the storm it goes on still", self.step - steps));
            }
        }
        Ok(())
    }

    /// What must hold when nothing happens any more.
    fn end(&mut self) -> Result<(), String> {
        for rank in 0..self.cluster.size() {
            self.look_at_budget(rank)?;
            if self.is(rank, Health::Dead) {
                continue;
            }
            if let Some(flying) = self.crews[rank as usize].flying.first() {
                return Err(format!("rank {rank} waits for ever: {flying:?}"));
            }
            let card = self.cluster.pinned(rank);
            let node = self.cluster.view(rank);
            let (under_way, books) = (node.in_flight(), node.registration_counters().table.pinned);
            let settling = node.settling();
            let (uses, rights) = node.references();
            if uses + rights > 0 {
                return Err(format!(
                    "rank {rank}: nobody uses {uses} registrations and {rights} rights that are in use"
                ));
            }
            if under_way > 0 {
                return Err(format!("rank {rank} counts {under_way} operations that have ended"));
            }
            if settling > 0 || !node.is_quiet() {
                return Err(format!("rank {rank} waits for ever for {settling} operations to settle"));
            }
            // Of granted memory the card pins the pages, and the books have the buckets.
            if card != books && (self.granted.is_none() || card > books) {
                return Err(format!("rank {rank} has {card} bytes pinned, {books} by its books"));
            }
            if let Some(error) = self.cluster.node(rank).take_detached_error() {
                return Err(format!("rank {rank} keeps an error that is nobody's: {error}"));
            }
            self.end_memory(rank)?;
            self.end_grants(rank)?;
        }
        self.end_counters()?;
        self.end_mail()?;
        self.end_rights()?;
        self.audit()
    }

    /// At the end, what an owner has given is what its peer has.
    fn end_rights(&mut self) -> Result<(), String> {
        let ranks = self.cluster.size();
        for owner in 0..ranks {
            for peer in (0..ranks).filter(|peer| *peer != owner) {
                let given = self.cluster.view(owner).rights_given(peer);
                let held = self.cluster.view(peer).rights_held(owner);
                let cut = self.is_cut(owner, peer);
                let known = self.cluster.view(owner).incarnation_of(peer);
                if !cut && self.are_strangers(owner, peer) {
                    return Err(format!(
                        "rank {owner} knows process {known} of rank {peer}, which is another"
                    ));
                }
                if cut && !self.is(owner, Health::Dead) && !given.is_empty() {
                    return Err(format!("rank {owner} has given {given:?} to rank {peer}, which is gone"));
                }
                if !cut && given != held {
                    return Err(format!(
                        "rank {owner} has given {given:?} to rank {peer}, which has {held:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
