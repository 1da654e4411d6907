//! Which process has a rank, and who knows: what was sent to or by one never reaches another of the same
//! rank.
//!
//! A rank that ended may be another process's later. Each of the others talks to the one that it has *met*.
//! What a later one sends waits at the card until the process there has taken the news of it; from then on
//! nothing comes any more of the one before, and nothing that was meant for that one arrives.

use engine::{Event as Told, Lane, Nanos, Rank};

use crate::known_peer::{Admission, KnownPeer};
use crate::process::{Health, Process};
use crate::queue::Event;
use crate::world::World;

/// Latencies, at most, until a process hears that another has taken a rank; if nothing comes from there
/// before.
const NEWS_LATENCIES_MAX: u64 = 20;

impl World {
    /// How many processes had `rank` before the one that has it.
    pub(crate) fn incarnation(&self, rank: Rank) -> u32 {
        self.process(rank).ends.len() as u32
    }

    /// Which process of `peer`'s rank `rank` talks to.
    #[inline]
    pub(crate) fn met(&self, rank: Rank, peer: Rank) -> u32 {
        self.known_peer(rank, peer).incarnation
    }

    #[inline]
    fn known_peer(&self, rank: Rank, peer: Rank) -> KnownPeer {
        if self.any_lost { self.remembered(rank, peer) } else { KnownPeer::default() }
    }

    fn remembered(&self, rank: Rank, peer: Rank) -> KnownPeer {
        match rank == peer {
            true => KnownPeer { incarnation: self.incarnation(rank), void: 0 },
            false => self.process(rank).met.get(&peer).copied().unwrap_or_default(),
        }
    }

    /// Whether this process of `rank` could send or receive at `time`.
    pub(crate) fn lived(&self, rank: Rank, incarnation: u32, time: Nanos) -> bool {
        let process = self.process(rank);
        match process.ends.get(incarnation as usize) {
            Some(end) => time < *end,
            None => process.lived_at(time),
        }
    }

    /// Whether what comes from this process of `from` may go on at `to`'s card; `event` is to happen again if
    /// it waits.
    pub(crate) fn admit(&mut self, to: Rank, from: Rank, incarnation: u32, event: Event) -> Admission {
        let met = self.known_peer(to, from);
        if incarnation < met.incarnation.max(met.void) {
            return Admission::Refused;
        }
        if incarnation == met.incarnation {
            return Admission::Granted;
        }
        self.process_mut(to).strangers.push(event);
        self.announce(to, from, incarnation);
        Admission::Waits
    }

    /// News of the process that has `rank` now reaches `to`, unless it has met it.
    pub(crate) fn introduce(&mut self, to: Rank, rank: Rank) {
        let incarnation = self.incarnation(rank);
        let met = self.known_peer(to, rank);
        let lives = |process: &Process| !matches!(process.health, Health::Dead(_));
        if incarnation > met.incarnation && lives(self.process(to)) && lives(self.process(rank)) {
            self.announce(to, rank, incarnation);
        }
    }

    fn announce(&mut self, to: Rank, peer: Rank, incarnation: u32) {
        let as_new = |told: &Told| matches!(told, Told::Returned { peer: other, incarnation: known } if *other == peer && *known >= incarnation);
        if !self.process(to).reports.iter().any(as_new) {
            self.tell(to, Told::Returned { peer, incarnation });
        }
    }

    /// `rank` has taken the news that `peer` is another process: what is left of the old one goes, and what
    /// has come from the new one happens.
    pub(crate) fn meet(&mut self, rank: Rank, peer: Rank, incarnation: u32) {
        self.process_mut(rank).met.entry(peer).or_default().incarnation = incarnation;
        self.drop_frame(rank, peer);
        self.clear_lanes(rank, peer);
        let (from_there, rest) = std::mem::take(&mut self.process_mut(rank).arrived)
            .into_iter()
            .partition(|index| self.is_from(*index, peer));
        self.process_mut(rank).arrived = rest;
        self.drop_messages(from_there);
        self.retry_strangers(rank);
    }

    /// `rank` learns that this process of `lost` has ended. `false`: it talks to a later one, and is not
    /// concerned.
    pub(crate) fn bury(&mut self, rank: Rank, lost: Rank, incarnation: u32) -> bool {
        let met = self.process_mut(rank).met.entry(lost).or_default();
        if incarnation < met.incarnation {
            return false;
        }
        met.void = met.void.max(incarnation + 1);
        let void = met.void;
        self.any_lost = true;
        self.drop_frame(rank, lost);
        let alive = |told: &Told| match told {
            Told::Returned { peer, incarnation } => *peer != lost || *incarnation >= void,
            _ => true,
        };
        self.process_mut(rank).reports.retain(alive);
        self.retry_strangers(rank);
        true
    }

    /// `rank` gives up the process of `peer` that it talks to, which learns of that later if it still runs.
    pub(crate) fn disconnect(&mut self, rank: Rank, peer: Rank) {
        let (own, incarnation) = (self.incarnation(rank), self.met(rank, peer));
        let is_new = self.known_peer(rank, peer).void <= incarnation;
        self.bury(rank, peer, incarnation);
        let talks = self.incarnation(peer) == incarnation && self.known_peer(peer, rank).incarnation == own;
        if is_new && talks {
            let at = self.now + self.costs.latency_ns * (1 + self.weather.below(NEWS_LATENCIES_MAX));
            self.queue.push(
                at,
                Event::HangUp { to: peer, to_incarnation: incarnation, by: rank, incarnation: own },
            );
        }
    }

    /// Messages to `peer` that gather at `rank` never leave.
    fn drop_frame(&mut self, rank: Rank, peer: Rank) {
        if let Some(frame) = self.process_mut(rank).outbox.take(peer) {
            self.drop_messages(frame.messages.into());
        }
    }

    /// What waits at `rank`'s card happens, and may wait again.
    pub(crate) fn retry_strangers(&mut self, rank: Rank) {
        for event in std::mem::take(&mut self.process_mut(rank).strangers) {
            self.happen(event);
        }
    }

    /// Makes a new process of `rank`, which has ended. It knows who the others are.
    pub(crate) fn restart(&mut self, rank: Rank) {
        let Health::Dead(end) = self.process(rank).health else {
            unreachable!("the caller has ended it");
        };
        self.any_lost = true;
        let mut process = Process::new(rank, &self.costs);
        process.ends = std::mem::take(&mut self.process_mut(rank).ends);
        process.ends.push(end);
        *self.process_mut(rank) = process;
        self.clear_lanes(rank, rank);
        for peer in (0..self.processes.len() as Rank).filter(|peer| *peer != rank) {
            self.clear_lanes(rank, peer);
            let incarnation = self.incarnation(peer);
            if incarnation > 0 {
                self.process_mut(rank).met.insert(peer, KnownPeer { incarnation, void: 0 });
            }
            let at = self.now + self.costs.latency_ns * (1 + self.weather.below(NEWS_LATENCIES_MAX));
            let is_dead = matches!(self.process(peer).health, Health::Dead(_));
            self.queue.push(
                at,
                match is_dead {
                    true => Event::Lose { to: rank, lost: peer, incarnation },
                    false => Event::Introduce { to: peer, rank },
                },
            );
        }
        self.wake(rank);
    }

    /// The lanes from `rank` to `peer` are new.
    fn clear_lanes(&mut self, rank: Rank, peer: Rank) {
        for lane in [Lane::Request, Lane::Reply] {
            self.clear_lane(rank, peer, lane);
        }
    }
}
