//! How operations must end.

use engine::{MemId, OpError, Place, Rank};

use super::run::{Flying, Run, SLOT_BYTES, Work};
use super::shadow::{Found, Region, Since, WORD, Words};
use crate::space;

impl Run {
    /// Takes the outcomes of `rank`'s operations that have one.
    pub(super) fn reap(&mut self, rank: Rank) -> Result<(), String> {
        let mut at = 0;
        // As many as are not under way have ended.
        while self.cluster.view(rank).in_flight() < self.crews[rank as usize].flying.len() {
            let id = self.crews[rank as usize].flying[at].id;
            if !self.cluster.view(rank).is_done(id) {
                at += 1;
                continue;
            }
            let outcome = self.cluster.node(rank).outcome(id).expect("it is done");
            let crew = &mut self.crews[rank as usize];
            let flying = crew.flying.swap_remove(at);
            if let Some(slot) = flying.slot {
                crew.slots_used &= !(1 << slot);
            }
            if self.cluster.node(rank).outcome(id).is_some() {
                return Err(format!("rank {rank}: a second outcome of {flying:?}"));
            }
            self.operations += 1;
            match outcome {
                Ok(value) => self.on_success(rank, &flying, value)?,
                Err(error) => self.on_error(rank, &flying, error)?,
            }
            self.spare.take_back(flying.work);
        }
        Ok(())
    }

    fn on_success(&mut self, rank: Rank, flying: &Flying, value: u64) -> Result<(), String> {
        let is_there = flying.met == self.cluster.incarnation(flying.peer);
        match &flying.work {
            Work::Put { .. } | Work::Count | Work::Look { .. } if !is_there => Ok(()),
            Work::Put { below, words, .. } => {
                words.iter().for_each(|words| self.shadow.end_put(flying.peer, words, *below, flying.known));
                Ok(())
            }
            Work::Get { .. } => self.judge_get(rank, flying),
            Work::ByName { .. } => {
                let is_clean = self.is_local_clean(rank, flying);
                self.judge_by_name(rank, flying, is_clean)
            }
            Work::ByCounter(_) => self.judge_count(rank, flying, value),
            Work::Count if self.counts[flying.peer as usize].insert(value) => Ok(()),
            Work::Count => Err(format!("rank {rank} counts {value} at rank {}, as before", flying.peer)),
            Work::Look { floor } => {
                let range = *floor..=self.counts_begun[flying.peer as usize];
                let wrong = || format!("rank {rank} sees {value} at rank {}, none of {range:?}", flying.peer);
                range.contains(&value).then_some(()).ok_or_else(wrong)
            }
        }
    }

    fn judge_get(&mut self, rank: Rank, flying: &Flying) -> Result<(), String> {
        let Work::Get { words, floors } = &flying.work else { return Ok(()) };
        let (peer, started) = (flying.peer, self.cluster.started());
        if !self.is_local_clean(rank, flying) {
            return Ok(());
        }
        let mut floors = floors.as_slice();
        for words in words {
            let (these, rest) = floors.split_at(words.count as usize);
            floors = rest;
            let bytes = space::first(&mut self.bytes, u64::from(words.count) * WORD);
            let local = Place::new(MemId::Space, words.local);
            self.cluster.peek(rank, local, bytes).map_err(|at| format!("{at:#x} is unmapped"))?;
            let found = Found { rank: peer, incarnation: flying.met, first: words.first, bytes };
            let since = Since { known: flying.known, step: flying.started };
            let curious = &mut self.crews[rank as usize].curious;
            let judged = self.shadow.judge(found, these, Some(since), &mut |known| {
                if let Some(owner) = self.knowledge.learn(rank, known, started) {
                    *curious = Some(owner);
                }
            });
            judged.map_err(|what| format!("rank {rank} got: {what}"))?;
        }
        Ok(())
    }

    /// Whether an operation's local buffer is what it was when it began.
    fn is_local_clean(&self, rank: Rank, flying: &Flying) -> bool {
        let Some(slot) = flying.slot else { return true };
        let place = self.crews[rank as usize].slots.plus(u64::from(slot) * SLOT_BYTES);
        !self.shadow.had_hole(rank, place, SLOT_BYTES, flying.started)
    }

    fn on_error(&mut self, rank: Rank, flying: &Flying, error: OpError) -> Result<(), String> {
        self.failed += 1;
        self.give_up_put(rank, flying, error);
        if let Work::Put { message, .. } = &flying.work {
            message.iter().for_each(|message| self.messages.remove(*message));
        }
        let is_gone = flying.met != self.cluster.incarnation(flying.peer);
        let explained = match error {
            OpError::PeerLost { peer } => peer == flying.peer && (is_gone || self.is_cut(rank, peer)),
            OpError::Timeout { peer } => peer == flying.peer && flying.timed,
            OpError::Fault { peer, .. } => {
                let explained = is_gone || self.had_remote_hole(flying);
                peer == flying.peer && (explained || self.explains_by_grant(rank, flying, error))
            }
            OpError::LocalFault { .. } => !self.is_local_clean(rank, flying),
            OpError::NotExposed { .. } | OpError::NoSuchHandler { .. } | OpError::NoSuchAtomic { .. } => {
                false
            }
            OpError::Revoked { peer, .. }
            | OpError::NotGranted { peer, .. }
            | OpError::Unaligned { peer, .. } => {
                peer == flying.peer && self.explains_by_grant(rank, flying, error)
            }
            OpError::Protocol { .. } | OpError::Unsupported { .. } | OpError::Team { .. } => false,
            OpError::Panicked => false,
        };
        if explained { Ok(()) } else { Err(format!("rank {rank}: {error}: {flying:?}")) }
    }

    /// Whether an operation by names of grants may have failed so.
    fn explains_by_grant(&self, rank: Rank, flying: &Flying, error: OpError) -> bool {
        self.explains_by_name(rank, flying, error) || self.explains_by_counter(rank, flying, error)
    }

    /// Whether some of what an operation was to access at its peer was unmapped meanwhile.
    fn had_remote_hole(&self, flying: &Flying) -> bool {
        let (Work::Put { words, .. } | Work::Get { words, .. }) = &flying.work else { return false };
        words.iter().any(|words| {
            let (place, len) = (self.shadow.place(words.first), u64::from(words.count) * WORD);
            self.shadow.had_hole(flying.peer, place, len, flying.started)
        })
    }

    /// At the end, what must lie in `rank`'s memory does.
    pub(super) fn end_memory(&mut self, rank: Rank) -> Result<(), String> {
        for Region { place, first, grain, units } in self.shadow.regions {
            let words = Words { first, count: grain * units, local: 0 };
            let bytes = space::first(&mut self.bytes, u64::from(words.count) * WORD);
            self.cluster
                .peek(rank, place, bytes)
                .map_err(|at| format!("rank {rank}: {at:#x} is unmapped"))?;
            let floors = self.shadow.floors(rank, &words);
            let incarnation = self.cluster.incarnation(rank);
            let found = Found { rank, incarnation, first, bytes };
            self.shadow.judge(found, floors, None, &mut |_| {})?;
        }
        self.end_counter(rank)
    }

    /// Every count that succeeded is in, once, and no more than were begun.
    fn end_counter(&self, rank: Rank) -> Result<(), String> {
        let mut bytes = [0; 8];
        self.cluster.peek(rank, self.counter, &mut bytes).map_err(|at| format!("{at:#x} is unmapped"))?;
        let (count, ended) = (u64::from_ne_bytes(bytes), &self.counts[rank as usize]);
        let begun = self.counts_begun[rank as usize];
        if count > begun || count < ended.len() as u64 || ended.iter().any(|found| *found >= count) {
            return Err(format!(
                "rank {rank}'s counter is {count}, of {begun} begun and {} ended",
                ended.len()
            ));
        }
        Ok(())
    }
}
