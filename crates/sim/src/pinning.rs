//! Registering: the processor's time, and the faults.

use engine::registration::RegisterError;
use engine::{Deregistering, Event as Told, Rank, RegId, Registering};

use crate::queue::Event;
use crate::trace::Action;
use crate::world::World;

impl World {
    pub(crate) fn register(&mut self, rank: Rank, reg: RegId, offset: u64, len: u64) -> Registering {
        let registering = self.begin_register(rank, reg, offset, len);
        self.trace.note(Action::Register, self.now, rank, rank);
        self.note_registration(self.incarnation(rank), reg);
        self.trace.word(offset);
        self.trace.word(len);
        let (became, key) = match registering {
            Registering::Pending => (0, 0),
            Registering::Done(key) | Registering::Once(key) => (1, key.0),
            Registering::Failed(_) => (2, 0),
        };
        self.trace.word(became);
        self.trace.word(key);
        registering
    }

    fn begin_register(&mut self, rank: Rank, reg: RegId, offset: u64, len: u64) -> Registering {
        let (latency, process) = (self.costs.latency_ns, &mut self.processes[rank as usize]);
        let before = process.nic.pinned();
        let key = match process.nic.register(reg, &process.space, offset, len) {
            Ok(key) => key,
            Err(error) => {
                self.spend(rank, self.costs.register_fixed_ns);
                return Registering::Failed(error);
            }
        };
        let bytes = self.process(rank).nic.pinned() - before;
        let done = self.spend(rank, self.costs.register_ns(bytes));
        let fails = self.weather.registering_fails();
        if let Some(later) = self.weather.registering_lasts(latency) {
            let incarnation = self.incarnation(rank);
            self.queue.push(done + later, Event::Registered { rank, incarnation, reg, fails });
            return Registering::Pending;
        }
        if fails {
            self.unpin(rank, reg);
            return Registering::Failed(RegisterError::Limit);
        }
        self.process_mut(rank).nic.ready(reg);
        Registering::Done(key)
    }

    pub(crate) fn end_register(&mut self, rank: Rank, incarnation: u32, reg: RegId, fails: bool) {
        if !self.lived(rank, incarnation, self.now) {
            return;
        }
        let nic = &mut self.process_mut(rank).nic;
        let Some(key) = nic.ready(reg) else { return };
        if fails {
            self.unpin(rank, reg);
        }
        let result = if fails { Err(RegisterError::Limit) } else { Ok(key) };
        self.tell(rank, Told::Registered { reg, result });
    }

    pub(crate) fn deregister(&mut self, rank: Rank, reg: RegId) -> Deregistering {
        self.trace.note(Action::Deregister, self.now, rank, rank);
        self.note_registration(self.incarnation(rank), reg);
        let bytes = self.process_mut(rank).nic.revoke(reg);
        let done = self.spend(rank, self.costs.deregister_ns(bytes));
        let latency = self.costs.latency_ns;
        if let Some(later) = self.weather.registering_lasts(latency) {
            let incarnation = self.incarnation(rank);
            self.queue.push(done + later, Event::Deregistered { rank, incarnation, reg });
            return Deregistering::Pending;
        }
        self.unpin(rank, reg);
        Deregistering::Done
    }

    pub(crate) fn end_deregister(&mut self, rank: Rank, incarnation: u32, reg: RegId) {
        if self.lived(rank, incarnation, self.now) {
            self.unpin(rank, reg);
            self.tell(rank, Told::Deregistered { reg });
        }
    }

    fn unpin(&mut self, rank: Rank, reg: RegId) {
        let page_bytes = self.costs.page_bytes;
        self.process_mut(rank).nic.unpin(reg, page_bytes);
    }
}
