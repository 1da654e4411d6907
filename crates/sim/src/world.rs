//! What lies between the nodes: virtual time, messages on their way, and what each process's card has for it.
//!
//! One-sided operations are in [`super::onesided`].

use std::collections::VecDeque;

use engine::{Event as Told, Header, Inbox, Lane, Nanos, OpError, OpId, Place, Rank, RegId, SendError};
use rustc_hash::FxHashMap;

use crate::causality::{self, CausalHistory, Change};
use crate::costs::Costs;
use crate::faults::{Faults, Incident, Weather};
use crate::flight::{Flight, Origin};
use crate::known_peer::Admission;
use crate::message::{Message, NEVER_USED, Traffic, lane_number};
use crate::process::{Health, Process};
use crate::queue::{Event, Queue};
use crate::trace::{Action, Trace};
use crate::violation::Violation;

/// What comes next outside the network.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// This process has the processor, and something to look at.
    Due(Rank),
    /// A fault.
    Befalls(Incident),
    /// An event.
    Happens(Event),
    /// Nothing will happen any more, unless a program does something.
    Nothing,
}

/// Everything but the nodes.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) costs: Costs,
    pub(crate) now: Nanos,
    /// Events so far, but those that only give a process the processor.
    pub(crate) events: u64,
    pub(crate) queue: Queue,
    pub(crate) processes: Vec<Process>,
    /// Processes that have the processor and something to look at now, in turn.
    pub(crate) due: VecDeque<Rank>,
    /// One-sided operations under way, and in the places in `landed` those that are over.
    pub(crate) flights: Vec<Flight>,
    pub(crate) landed: Vec<u32>,
    /// By their places: what their initiators called those flights, or others before that had the places.
    pub(crate) flight_ops: Vec<OpId>,
    /// One-sided operations that were ever started.
    pub(crate) started: u64,
    pub(crate) weather: Weather,
    pub(crate) violations: Vec<Violation>,
    /// Bytes between their source and their target.
    pub(crate) scratch: Vec<u8>,
    /// Those that were taken stay, for messages to come.
    messages: Vec<Message>,
    taken: Vec<u32>,
    /// Only for those that talk.
    traffic: Vec<Traffic>,
    /// By who sends and [`lane_number`], as far as any was used: its place there.
    lanes: Vec<Vec<u32>>,
    /// Whether anybody was ever lost to anybody.
    pub(crate) any_lost: bool,
    /// What words tell that atomics were used on, where anybody has heard anything. Never iterated over.
    words: FxHashMap<(Rank, Place), CausalHistory>,
    /// Changes of memory so far.
    pub(crate) changes: Change,
    pub(crate) trace: Trace,
}

impl World {
    pub(crate) fn new(size: u32, costs: Costs, faults: Faults, seed: u64) -> World {
        World {
            now: 0,
            events: 0,
            queue: Queue::default(),
            processes: (0..size).map(|rank| Process::new(rank, &costs)).collect(),
            due: VecDeque::new(),
            flights: Vec::new(),
            landed: Vec::new(),
            flight_ops: Vec::new(),
            started: 0,
            weather: Weather::new(faults, seed),
            violations: Vec::new(),
            scratch: Vec::new(),
            messages: Vec::new(),
            taken: Vec::new(),
            traffic: Vec::new(),
            lanes: vec![Vec::new(); size as usize],
            any_lost: false,
            words: FxHashMap::default(),
            changes: 0,
            trace: Trace::default(),
            costs,
        }
    }

    pub(crate) fn process(&self, rank: Rank) -> &Process {
        &self.processes[rank as usize]
    }

    pub(crate) fn process_mut(&mut self, rank: Rank) -> &mut Process {
        &mut self.processes[rank as usize]
    }

    /// The fingerprint of the run so far.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.trace.number()
    }

    /// Lets things happen inside the network until something else is next.
    pub(crate) fn go_on(&mut self) -> Next {
        loop {
            if let Some(rank) = self.due.pop_front() {
                return Next::Due(rank);
            }
            if let Some(incident) = self.incident() {
                return Next::Befalls(incident);
            }
            match self.advance() {
                None => return Next::Nothing,
                Some(Some(event)) => return Next::Happens(event),
                Some(None) => {}
            }
        }
    }

    /// Goes to the next event and takes it; those that happen inside the network have then happened, and are
    /// not returned but as `Some(None)`. `None`: there is none.
    pub(crate) fn advance(&mut self) -> Option<Option<Event>> {
        let (at, event) = self.queue.pop()?;
        debug_assert!(at >= self.now, "time goes forwards");
        self.now = at;
        self.events += u64::from(!matches!(event, Event::Wake(_)));
        self.note_event(event);
        Some(self.happen(event))
    }

    /// Notes an event in the run's digest: by what it is about, and not by where that is kept.
    fn note_event(&mut self, event: Event) {
        let now = self.now;
        let mut note = |action, from, to| self.trace.note(action, now, from, to);
        match event {
            Event::Arrive(message) => {
                let message = &self.messages[message as usize];
                note(Action::Arrive, message.from, message.to);
                let lane = u64::from(message.lane == Lane::Reply);
                let (sender, receiver) = message.incarnations;
                self.trace.word(lane);
                self.trace.word(u64::from(sender) << 32 | u64::from(receiver));
                message.header.iter().for_each(|word| self.trace.word(*word));
                self.trace.bytes(&message.payload);
            }
            Event::Fetch(flight) => self.note_flight(Action::Fetch, flight),
            Event::Land(flight) => self.note_flight(Action::Land, flight),
            Event::Report(flight) => self.note_flight(Action::Report, flight),
            Event::Registered { rank, incarnation, reg, fails } => {
                note(Action::Registered, rank, rank);
                self.note_registration(incarnation, reg);
                self.trace.word(u64::from(fails));
            }
            Event::Deregistered { rank, incarnation, reg } => {
                note(Action::Deregistered, rank, rank);
                self.note_registration(incarnation, reg);
            }
            Event::Wake(rank) => note(Action::Wake, rank, rank),
            Event::Alarm(rank) => note(Action::Alarm, rank, rank),
            Event::Lose { to, lost, incarnation } => {
                note(Action::Lose, lost, to);
                self.trace.word(u64::from(incarnation));
            }
            Event::HangUp { to, to_incarnation, by, incarnation } => {
                note(Action::HangUp, by, to);
                self.trace.word(u64::from(to_incarnation) << 32 | u64::from(incarnation));
            }
            Event::Introduce { to, rank } => note(Action::Introduce, rank, to),
            Event::Restart(rank) => note(Action::Restart, rank, rank),
            Event::Unmute(rank) => note(Action::Unmute, rank, rank),
            Event::Remap { rank, offset, pages } => {
                note(Action::Remap, rank, rank);
                self.trace.word(offset);
                self.trace.word(u64::from(pages));
            }
        }
    }

    pub(crate) fn note_registration(&mut self, incarnation: u32, reg: RegId) {
        self.trace.word(u64::from(incarnation));
        self.trace.word(u64::from(reg.index) << 32 | u64::from(reg.generation));
    }

    /// Has an event happen, which is returned if it is none inside the network.
    pub(crate) fn happen(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Arrive(message) => self.arrive(message),
            Event::Fetch(flight) => self.fetch(flight),
            Event::Land(flight) => self.land(flight),
            Event::Report(flight) => self.report(flight),
            Event::Registered { rank, incarnation, reg, fails } => {
                self.end_register(rank, incarnation, reg, fails);
            }
            Event::Deregistered { rank, incarnation, reg } => self.end_deregister(rank, incarnation, reg),
            Event::Introduce { to, rank } => self.introduce(to, rank),
            outside => return Some(outside),
        }
        None
    }

    /// An operation of `rank` with `peer` that starts now.
    pub(crate) fn origin(&mut self, rank: Rank, peer: Rank) -> Origin {
        self.started += 1;
        let heard = &self.process(rank).heard;
        Origin {
            rank,
            incarnation: self.incarnation(rank),
            started: self.now,
            serial: self.started,
            heard_own: heard.of(rank),
            heard: heard.of(peer),
            abandoned: false,
        }
    }

    /// What `rank` tells by an atomic on a word, and hears there.
    pub(crate) fn whisper(&mut self, peer: Rank, word: Place, mut told: CausalHistory) -> CausalHistory {
        if told.is_empty() && self.words.is_empty() {
            return told;
        }
        let known = self.words.entry((peer, word)).or_default();
        known.merge(&told);
        told.merge(known);
        told
    }

    /// Where `rank`'s program is.
    pub(crate) fn time_of(&self, rank: Rank) -> Nanos {
        self.process(rank).cpu.max(self.now)
    }

    /// Gives `rank`'s processor work. Returns when it will be done.
    pub(crate) fn spend(&mut self, rank: Rank, work: Nanos) -> Nanos {
        let done = self.time_of(rank) + work;
        self.process_mut(rank).cpu = done;
        done
    }

    /// Gives `rank`'s card bytes to send, after what it has and not before `from`. Returns when the last has
    /// left.
    pub(crate) fn leave(&mut self, rank: Rank, from: Nanos, work: Nanos) -> Nanos {
        let process = self.process_mut(rank);
        process.link = process.link.max(from) + work;
        process.link
    }

    /// What something takes on the wire between two ranks.
    #[inline]
    pub(crate) fn wire(&mut self, from: Rank, to: Rank) -> Nanos {
        let latency = self.costs.latency_ns;
        let distance = if from == to { 0 } else { latency };
        distance + self.weather.delay(latency)
    }

    /// Makes `rank` look at what its card has, as soon as it has the processor.
    pub(crate) fn wake(&mut self, rank: Rank) {
        let now = self.now;
        let process = self.process_mut(rank);
        if process.waking || process.health != Health::Alive {
            return;
        }
        process.waking = true;
        if process.cpu > now {
            let at = process.cpu;
            self.queue.push(at, Event::Wake(rank));
        } else {
            self.due.push_back(rank);
        }
    }

    /// Whether `rank`'s card has anything for it, or waits for a poll to send something.
    pub(crate) fn has_news(&self, rank: Rank) -> bool {
        let process = self.process(rank);
        !process.arrived.is_empty() || !process.reports.is_empty() || !process.outbox.is_empty()
    }

    /// Has `rank`'s card tell it something.
    pub(crate) fn tell(&mut self, rank: Rank, what: Told) {
        self.process_mut(rank).reports.push_back(what);
        self.wake(rank);
    }

    /// Takes the next of what `rank`'s card has to tell besides messages.
    pub(crate) fn next_report(&mut self, rank: Rank) -> Option<Told> {
        let report = self.process_mut(rank).reports.pop_front()?;
        match report {
            Told::Completed { .. } => _ = self.spend(rank, self.costs.completion_overhead_ns),
            Told::Returned { peer, incarnation } => self.meet(rank, peer, incarnation),
            _ => {}
        }
        Some(report)
    }

    /// Sends a message, which leaves at once.
    pub(crate) fn send(
        &mut self,
        from: Rank,
        to: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        let place = self.take_room(from, to, lane, payload.len())?;
        let bytes = payload.len() as u64;
        let sent = self.spend(from, self.costs.send_overhead_ns + self.costs.copy_ns(bytes));
        let left = self.leave(from, sent, self.costs.card_ns(bytes));
        let arrives = left + self.wire(from, to);
        let traffic = &mut self.traffic[place as usize];
        traffic.last = traffic.last.max(arrives);
        let at = traffic.last;
        let message = self.new_message((from, to), (lane, place), left, header, payload);
        self.queue.push(at, Event::Arrive(message));
        Ok(())
    }

    /// Takes room on a lane for a message of so many bytes. Returns the place of its traffic.
    #[inline(always)]
    pub(crate) fn take_room(
        &mut self,
        from: Rank,
        to: Rank,
        lane: Lane,
        payload: usize,
    ) -> Result<u32, SendError> {
        assert!(payload <= self.costs.payload_max_bytes, "{} bytes in one message", payload);
        if to as usize >= self.processes.len() {
            return Err(SendError::Failed(OpError::PeerLost { peer: to }));
        }
        let place = self.traffic_of(from, to, lane);
        let traffic = &mut self.traffic[place as usize];
        if traffic.held >= self.costs.lane_messages {
            traffic.found_full = true;
            return Err(SendError::Busy);
        }
        traffic.held += 1;
        Ok(place)
    }

    /// A place for a message.
    #[inline(always)]
    pub(crate) fn new_message(
        &mut self,
        (from, to): (Rank, Rank),
        (lane, traffic): (Lane, u32),
        left: Nanos,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> u32 {
        let heard = &self.process(from).heard;
        let tells = !heard.is_empty() && causality::tells(header, payload.len());
        let told = if tells { heard.clone() } else { CausalHistory::default() };
        let incarnations = (self.incarnation(from), self.met(from, to));
        let mut message = Message {
            from,
            to,
            incarnations,
            lane,
            traffic,
            is_open: true,
            left,
            header: *header,
            payload: Vec::new(),
            told,
        };
        match self.taken.pop() {
            Some(index) => {
                let old = &mut self.messages[index as usize];
                message.payload = std::mem::take(&mut old.payload);
                message.payload.clear();
                message.payload.extend_from_slice(payload);
                *old = message;
                index
            }
            None => {
                message.payload = payload.to_vec();
                self.messages.push(message);
                self.messages.len() as u32 - 1
            }
        }
    }

    /// A message that has gathered leaves, and arrives no sooner than those before it on its lane.
    pub(crate) fn set_off(&mut self, message: u32, left: Nanos, arrives: Nanos) {
        let Message { traffic, left: left_at, .. } = &mut self.messages[message as usize];
        *left_at = left;
        let traffic = &mut self.traffic[*traffic as usize];
        traffic.last = traffic.last.max(arrives);
        self.queue.push(traffic.last, Event::Arrive(message));
    }

    fn arrive(&mut self, index: u32) {
        let message = &self.messages[index as usize];
        let (from, to, (sender, receiver)) = (message.from, message.to, message.incarnations);
        let sent = self.lived(from, sender, message.left) && self.lived(to, receiver, self.now);
        let admission =
            if sent { self.admit(to, from, sender, Event::Arrive(index)) } else { Admission::Refused };
        self.trace.note(Action::Admit, self.now, from, to);
        self.trace.word(match admission {
            Admission::Granted => 0,
            Admission::Waits => 1,
            Admission::Refused => 2,
        });
        match admission {
            Admission::Granted => {
                self.process_mut(to).arrived.push_back(index);
                self.wake(to);
            }
            Admission::Waits => {}
            // The lane stays as full as it is: nobody is there to take from it.
            Admission::Refused => self.drop_messages(VecDeque::from([index])),
        }
    }

    /// Whether a message is from `rank`.
    pub(crate) fn is_from(&self, message: u32, rank: Rank) -> bool {
        self.messages[message as usize].from == rank
    }

    /// Nobody will take these messages.
    pub(crate) fn drop_messages(&mut self, messages: VecDeque<u32>) {
        messages.iter().for_each(|message| self.messages[*message as usize].is_open = false);
        self.taken.extend(messages);
    }

    /// The receiver of a message that this process of `from` has sent and that stores bytes when it is taken,
    /// for each of them that may yet be.
    pub(crate) fn written_by_messages(&self, from: Rank) -> impl Iterator<Item = Rank> {
        let incarnation = self.incarnation(from);
        let is_its = move |message: &&Message| {
            let (sender, receiver) = message.incarnations;
            let is_open = message.is_open && (message.from, sender) == (from, incarnation);
            is_open && message.stores() && self.lived(message.to, receiver, self.now)
        };
        self.messages.iter().filter(is_its).map(|message| message.to)
    }

    /// Takes the first message that has arrived and may be handed out.
    pub(crate) fn receive(&mut self, rank: Rank, inbox: &mut Inbox) -> Option<Told> {
        let index = (0..self.process(rank).arrived.len()).find(|index| self.may_take(rank, *index))?;
        let process = &mut self.processes[rank as usize];
        let message = if index == 0 { process.arrived.pop_front() } else { process.arrived.remove(index) }?;
        self.taken.push(message);
        let message = &mut self.messages[message as usize];
        message.is_open = false;
        inbox.header = message.header;
        std::mem::swap(&mut inbox.payload, &mut message.payload);
        process.heard.merge(&message.told);
        let (from, lane, sender, traffic) =
            (message.from, message.lane, message.incarnations.0, message.traffic);
        self.spend(rank, self.costs.receive_overhead_ns);
        // Another process of that rank has lanes of its own.
        if self.incarnation(from) == sender {
            let traffic = &mut self.traffic[traffic as usize];
            traffic.held -= 1;
            if std::mem::take(&mut traffic.found_full) {
                self.wake_later(from, self.costs.latency_ns);
            }
        }
        Some(Told::Message { peer: from, lane })
    }

    /// Whether the message could be replied to, if it is a request. If not, `rank` is woken when it can.
    fn may_take(&mut self, rank: Rank, index: usize) -> bool {
        let message = &self.messages[self.process(rank).arrived[index] as usize];
        if message.lane == Lane::Reply {
            return true;
        }
        let (from, place) = (message.from, message.traffic as usize);
        let replies = match self.traffic[place].replies {
            Some(replies) => replies,
            None => {
                let replies = self.traffic_of(rank, from, Lane::Reply);
                *self.traffic[place].replies.insert(replies)
            }
        };
        self.note_room(replies)
    }

    /// Whether another message would find room. If not, its sender is woken when one would.
    pub(crate) fn has_room(&mut self, from: Rank, to: Rank, lane: Lane) -> bool {
        let place = self.traffic_of(from, to, lane);
        self.note_room(place)
    }

    fn note_room(&mut self, place: u32) -> bool {
        let traffic = &mut self.traffic[place as usize];
        let room = traffic.held < self.costs.lane_messages;
        traffic.found_full |= !room;
        room
    }

    /// A lane is new: whoever was at its ends is there no more.
    pub(crate) fn clear_lane(&mut self, from: Rank, to: Rank, lane: Lane) {
        let place = self.lanes[from as usize].get(lane_number(to, lane));
        if let Some(traffic) = place.and_then(|place| self.traffic.get_mut(*place as usize)) {
            (traffic.held, traffic.found_full, traffic.last) = (0, false, 0);
        }
    }

    /// The place of a lane's traffic.
    fn traffic_of(&mut self, from: Rank, to: Rank, lane: Lane) -> u32 {
        match self.lanes[from as usize].get(lane_number(to, lane)) {
            Some(place) if *place != NEVER_USED => *place,
            _ => self.new_traffic(from, to, lane),
        }
    }

    #[cold]
    fn new_traffic(&mut self, from: Rank, to: Rank, lane: Lane) -> u32 {
        let (lanes, number) = (&mut self.lanes[from as usize], lane_number(to, lane));
        lanes.resize(lanes.len().max(number + 1), NEVER_USED);
        let place = self.traffic.len() as u32;
        lanes[number] = place;
        self.traffic.push(Traffic::default());
        place
    }

    /// Makes `rank` look in so much time, if it does not look before.
    fn wake_later(&mut self, rank: Rank, after: Nanos) {
        let at = self.time_of(rank).max(self.now + after);
        let process = self.process_mut(rank);
        if !process.waking && process.health == Health::Alive {
            process.waking = true;
            self.queue.push(at, Event::Wake(rank));
        }
    }

    /// Ends `rank`: what it has not sent is lost, and so is what arrives from now on.
    pub(crate) fn kill(&mut self, rank: Rank) {
        let now = self.now;
        let process = self.process_mut(rank);
        if matches!(process.health, Health::Dead(_)) {
            return;
        }
        process.health = Health::Dead(now);
        process.reports.clear();
        let arrived = std::mem::take(&mut process.arrived);
        let frames = process.outbox.take_all();
        self.drop_messages(arrived);
        frames.into_iter().for_each(|frame| self.drop_messages(frame.messages.into()));
        self.retry_strangers(rank);
        let size = self.processes.len() as Rank;
        for to in (0..size).filter(|to| *to != rank) {
            let at = now + self.costs.latency_ns * (1 + self.weather.below(20));
            let incarnation = self.incarnation(rank);
            self.queue.push(at, Event::Lose { to, lost: rank, incarnation });
        }
    }
}
