//! Pieces of transfers by keys that lie in what a peer has granted: they are found by the grant, and go by
//! message where its owner gives no key.

use super::state::{KeyedTransfer, Part};
use crate::limits::CHILDREN_MAX;
use crate::node::registration::state::Registration;
use crate::path::{self, Access, Facts, Keys, Limits, Path};
use crate::registration::firehose::Found;
use crate::{GrantId, MemId, OpError, Piece, Place};

/// The next step of a transfer whose next piece lies in a grant that it has no key for.
pub(super) enum WithoutKey {
    /// To wait for the answer to this move.
    Await(u32),
    /// To ask for the key.
    Ask,
    /// To send the piece by message.
    Message,
    /// To wait until fewer of its pieces are under way.
    Wait,
}

/// Decides that. `small` pieces are weighed against the time of a message, where the transport `weighs`.
pub(super) fn without_key(
    registration: &mut Registration,
    keyed: &mut KeyedTransfer,
    (piece, grant): (Piece, GrantId),
    found: Found,
    (small, weighs): (u64, bool),
) -> WithoutKey {
    let (peer, budget) = (keyed.peer, registration.settings.peers_bytes);
    let bytes = u64::from(registration.buckets(piece.remote.shown(), piece.len).count)
        * registration.settings.bucket.bytes();
    let keys = match found {
        Found::Asked(_) => Keys::Pending,
        // It was asked for, and not given; or lately.
        _ if std::mem::take(&mut keyed.asked)
            || budget == 0
            || registration.hoses.is_refused(peer, grant) =>
        {
            Keys::Refused
        }
        _ => {
            let pays = piece.len > small || !weighs || registration.hoses.is_worth_asking(peer, bytes);
            Keys::Absent { pays }
        }
    };
    let facts = Facts {
        wanted: keyed.direction.into(),
        bytes: piece.len,
        // Nothing rides.
        alone: false,
        memory: piece.remote.mem,
        access: Access::Keys(keys),
        limits: Limits { small, ..Limits::default() },
    };
    match (path::choose(&facts).path, found) {
        (Path::Awaited, Found::Asked(by)) => return WithoutKey::Await(by),
        (Path::Chunks, _) if keys == Keys::Refused => return WithoutKey::Message,
        (Path::Chunks, _) if keyed.children >= CHILDREN_MAX => return WithoutKey::Wait,
        _ => {}
    }
    registration.counters.misses += 1;
    registration.hoses.count_miss(peer);
    if matches!(keys, Keys::Absent { pays: false }) {
        return WithoutKey::Message;
    }
    keyed.asked = true;
    WithoutKey::Ask
}

/// An error of a part as its initiator knows the place: in the grant, where it is in one.
pub(super) fn as_granted(registration: Option<&Registration>, part: &Part, error: OpError) -> OpError {
    let OpError::Fault { peer, mem: MemId::Space, addr, len } = error else { return error };
    let Some(registration) = registration else { return error };
    let is_there = |piece: &Piece| addr.wrapping_sub(piece.remote.offset) < piece.len.max(1);
    let mut pieces = part.pieces.iter().zip(&part.hoses).filter(|(keyed, _)| is_there(&keyed.piece));
    let granted = pieces.find_map(|(_, hose)| registration.hoses.reach_granted(*hose));
    granted.map_or(error, |(reach, _)| {
        let Place { mem, offset: addr } = Place::granted(reach.grant, addr - reach.start);
        OpError::Fault { peer, mem, addr, len }
    })
}
