//! Transfers by keys to and from what a peer has granted: pieces are found by the grant, and what its owner
//! gives no key for goes by message.

use super::keyed::Next;
use super::state::Part;
use crate::limits::CHILDREN_MAX;
use crate::node::Node;
use crate::op_id::OpKey;
use crate::path::{self, Access, Facts, Keys, Limits, Path};
use crate::registration::Run;
use crate::registration::firehose::Found;
use crate::{GrantId, MemId, OpError, Piece, Place, Transport};

impl<T: Transport> Node<T> {
    /// The key of the grant that the next piece lies in is not held.
    pub(super) fn on_absent_key(&mut self, key: OpKey, piece: Piece, grant: GrantId, found: Found) -> Next {
        let registration = self.registration.as_ref().expect("keyed transfers need one");
        let small = registration.small(self.core.transport.payload_max());
        let budget = registration.settings.peers_bytes;
        let Run { count, .. } = registration.buckets(piece.remote.shown(), piece.len);
        let Some(keyed) = self.keyed(key) else { return Next::Wait };
        let (peer, direction, children) = (keyed.peer, keyed.direction, keyed.children);
        let was_asked = !matches!(found, Found::Asked(_)) && std::mem::take(&mut keyed.asked);
        let registration = self.registration.as_mut().expect("keyed transfers need one");
        let keys = match found {
            Found::Asked(_) => Keys::Pending,
            // It was asked for, and not given; or lately.
            _ if was_asked || budget == 0 || registration.hoses.is_refused(peer, grant) => Keys::Refused,
            _ => {
                let pays = piece.len > small || self.is_worth_asking(peer, Run { first: 0, count });
                Keys::Absent { pays }
            }
        };
        let facts = Facts {
            wanted: direction.into(),
            bytes: piece.len,
            // Nothing rides.
            alone: false,
            memory: piece.remote.mem,
            access: Access::Keys(keys),
            limits: Limits { small, ..Limits::default() },
        };
        match (path::choose(&facts).path, found) {
            (Path::Awaited, Found::Asked(by)) => {
                self.await_move(by, key);
                return Next::Wait;
            }
            (Path::Chunks, _) if keys == Keys::Refused => return Next::ByMessage(piece),
            (Path::Chunks, _) if children >= CHILDREN_MAX => return Next::Wait,
            (path, _) => {
                if let Some(registration) = &mut self.registration {
                    registration.counters.misses += 1;
                    registration.hoses.count_miss(peer);
                }
                if path == Path::Chunks {
                    return Next::ByMessage(piece);
                }
            }
        }
        if let Some(keyed) = self.keyed(key) {
            keyed.asked = true;
        }
        self.ask_for_key(peer, grant, key);
        Next::Wait
    }

    /// An error of a part as its initiator knows the place: in the grant, where it is in one.
    pub(super) fn as_granted(&self, part: &Part, error: OpError) -> OpError {
        let OpError::Fault { peer, mem: MemId::Space, addr, len } = error else { return error };
        let Some(registration) = &self.registration else { return error };
        let is_there = |piece: &Piece| addr.wrapping_sub(piece.remote.offset) < piece.len.max(1);
        let mut pieces = part.pieces.iter().zip(&part.hoses).filter(|(keyed, _)| is_there(&keyed.piece));
        let granted = pieces.find_map(|(_, hose)| registration.hoses.reach_granted(*hose));
        granted.map_or(error, |(reach, _)| {
            let Place { mem, offset: addr } = Place::granted(reach.grant, addr - reach.start);
            OpError::Fault { peer, mem, addr, len }
        })
    }
}
