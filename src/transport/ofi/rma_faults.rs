//! Callers' memory that is not there: whose copies are given up for it, and with what error.

use engine::{OpError, Piece};

use super::rma_state::{Part, RmaOp};
use super::transport::OfiTransport;

impl OfiTransport {
    /// The part of the caller's memory that is missing, if this process can tell.
    #[cold]
    fn fault_of(&self, copy: usize) -> Option<OpError> {
        let RmaOp { pieces, direction, .. } = &self.copies.all[copy];
        let missing = |piece: &Piece| !self.own.is_there(piece.local, piece.len, *direction);
        pieces.iter().map(|keyed| keyed.piece).find(missing).map(local_fault)
    }

    /// Whether the caller has memory for a part that goes through a buffer: this process touches it itself
    /// there. Where some is missing, as far as it can tell, the copy is given up.
    pub(super) fn has_memory(&mut self, part: &Part) -> bool {
        let direction = self.copies.all[part.copy].direction;
        let missing = self.copies.missing(part, |place, len| self.own.is_there(place, len, direction));
        let Some(piece) = missing else { return true };
        let known = &mut self.copies.all[part.copy];
        (known.given_up, known.fault) = (true, Some(local_fault(piece)));
        false
    }

    /// The auxiliary endpoint of this copy has failed. Its connection ends with the first byte of callers'
    /// memory that cannot be read or written, and with it all that it carries. Where there is such memory,
    /// the copies of it are given up, also those that only wait. Whether there is: then the peer is not to
    /// blame.
    #[cold]
    pub(super) fn gives_faults_up(&mut self, copy: usize) -> bool {
        let RmaOp { rank, pooled: Some(pooled), .. } = self.copies.all[copy] else { return false };
        let mut found = false;
        for copy in self.copies.with(rank) {
            if self.copies.all[copy].pooled == Some(pooled)
                && let Some(fault) = self.fault_of(copy)
            {
                let known = &mut self.copies.all[copy];
                (known.given_up, known.fault, found) = (true, Some(fault), true);
            }
        }
        found
    }
}

fn local_fault(Piece { local, len, .. }: Piece) -> OpError {
    OpError::LocalFault { mem: local.mem, addr: local.offset, len }
}
