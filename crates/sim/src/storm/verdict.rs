//! How operations must end.

use engine::{MemId, OpError, Place, Rank};

use super::run::{Flying, Run, SLOT_BYTES, Work};
use super::shadow::WORD;

impl Run {
    /// Takes the outcomes of `rank`'s operations that have one.
    pub(super) fn reap(&mut self, rank: Rank) -> Result<(), String> {
        let mut at = 0;
        while at < self.crews[rank as usize].flying.len() {
            let id = self.crews[rank as usize].flying[at].id;
            let Some(outcome) = self.cluster.node(rank).outcome(id) else {
                at += 1;
                continue;
            };
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
        }
        Ok(())
    }

    fn on_success(&mut self, rank: Rank, flying: &Flying, value: u64) -> Result<(), String> {
        match &flying.work {
            Work::Put { below, words, .. } => {
                words.iter().for_each(|words| self.shadow.end_put(flying.peer, words, *below, flying.known));
                Ok(())
            }
            Work::Get { .. } => self.judge_get(rank, flying),
            Work::Count if self.counts[flying.peer as usize].insert(value) => Ok(()),
            Work::Count => Err(format!("rank {rank} counts {value} at rank {}, as before", flying.peer)),
        }
    }

    fn judge_get(&mut self, rank: Rank, flying: &Flying) -> Result<(), String> {
        let Work::Get { words, floors } = &flying.work else { return Ok(()) };
        let (peer, started) = (flying.peer, self.cluster.started());
        if !self.is_local_clean(rank, flying) {
            return Ok(());
        }
        let mut floors = floors.iter();
        for words in words {
            let mut bytes = vec![0; words.count as usize * WORD as usize];
            let local = Place::new(MemId::Space, words.local);
            self.cluster.peek(rank, local, &mut bytes).map_err(|at| format!("{at:#x} is unmapped"))?;
            for (index, value) in bytes.as_chunks::<8>().0.iter().enumerate() {
                let word = words.first + index as u32;
                let floor = floors.next().copied().unwrap_or(0);
                let place = self.shadow.place(word);
                let lax = !self.shadow.is_clean(peer, place, WORD, flying.known, flying.started);
                let known = self.shadow.judge(peer, word, u64::from_ne_bytes(*value), floor, lax);
                let known = known.map_err(|what| format!("rank {rank} got: {what}"))?;
                if let Some(owner) = self.knowledge.learn(rank, known, started) {
                    self.crews[rank as usize].curious = Some(owner);
                }
            }
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
        if let Work::Put { put, letter, .. } = &flying.work {
            self.shadow.fail_put(*put);
            letter.iter().for_each(|letter| self.mail.tear_up(*letter));
        }
        let explained = match error {
            OpError::PeerLost { peer } => peer == flying.peer && self.is_cut(rank, peer),
            OpError::Timeout { peer } => peer == flying.peer && flying.timed,
            OpError::Fault { peer, .. } => peer == flying.peer && self.had_remote_hole(flying),
            OpError::LocalFault { .. } => !self.is_local_clean(rank, flying),
            OpError::Protocol { .. } | OpError::Unsupported { .. } => false,
        };
        if explained { Ok(()) } else { Err(format!("rank {rank}: {error}: {flying:?}")) }
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
    pub(super) fn end_memory(&self, rank: Rank) -> Result<(), String> {
        for region in &self.shadow.regions {
            let mut bytes = vec![0; (region.grain * region.units) as usize * WORD as usize];
            self.cluster
                .peek(rank, region.place, &mut bytes)
                .map_err(|at| format!("rank {rank}: {at:#x} is unmapped"))?;
            for (index, value) in bytes.as_chunks::<8>().0.iter().enumerate() {
                let word = region.first + index as u32;
                let floor = self.shadow.floor(rank, word);
                self.shadow.judge(rank, word, u64::from_ne_bytes(*value), floor, false)?;
            }
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
