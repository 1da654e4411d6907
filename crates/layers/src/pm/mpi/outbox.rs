//! Packets on their way out, and numbers of requests.

use standpipe::Rank;

use super::Mpi;
use super::packet::Packet;
use crate::pm::{Pm, PmError};

impl Mpi {
    pub(super) fn new_request(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Sends a packet now or, after those before it, later.
    pub(super) fn post(&mut self, pm: &mut Pm, to: Rank, packet: Packet, data: &[u8]) {
        let mut bytes = packet.header().to_vec();
        bytes.extend_from_slice(data);
        self.outbox.push_back((to, bytes));
        self.empty_outbox(pm);
    }

    pub(super) fn empty_outbox(&mut self, pm: &mut Pm) {
        while let Some((to, bytes)) = self.outbox.front() {
            match pm.send_buffer(self.context, (*to).into(), bytes.len()) {
                Ok(buffer) => pm.memory.write(buffer, bytes),
                Err(PmError::NoBuffers) => return,
                Err(error) => {
                    self.broken = Some(error);
                    return;
                }
            }
            self.outbox.pop_front();
            if let Err(error) = pm.send(self.context) {
                self.broken = Some(error);
            }
        }
    }
}
