//! The layer's Active Message handler: it queues what comes, and runs no code of the program's.

use std::sync::atomic::Ordering;

use standpipe::Call;

use super::arrival::{Arrival, Arrived};
use super::body::Body;
use super::notices::Notice;
use super::shared::{Counters, Shared};
use super::wire::{self, Message, Packet, What};
use crate::copies::copy_of_payload;

/// Takes a message of a peer's.
pub(crate) fn arrive(shared: &Shared, call: &mut Call<'_>) {
    let from = call.from();
    let Some(peer) = shared.peers.get(from as usize) else {
        return Counters::add(&shared.counters.refused, 1);
    };
    if peer.is_lost.load(Ordering::Relaxed) {
        return;
    }
    let message = wire::parse(call.args(), call.payload_len());
    let Some(Message { what, .. }) =
        message.ok().filter(|message| peer.credits.returned(message.credits.into()))
    else {
        return refuse(shared, from);
    };
    match what {
        What::Credits => {}
        What::Packet(packet) => {
            if !peer.credits.arrived() {
                return refuse(shared, from);
            }
            if shared.is_closing.load(Ordering::Relaxed) {
                return shared.consumed(from);
            }
            let body = body(shared, &packet, call);
            shared.push(Arrival { from, what: Arrived::Packet(packet, body) });
        }
        // It takes a credit as a packet does, so that a peer can queue only so many.
        What::Cut if peer.credits.arrived() => {
            if shared.is_closing.load(Ordering::Relaxed) {
                return shared.consumed(from);
            }
            shared.push(Arrival { from, what: Arrived::Cut });
        }
        What::Cut => refuse(shared, from),
    }
}

#[cold]
fn refuse(shared: &Shared, from: u32) {
    Counters::add(&shared.counters.refused, 1);
    shared.notices.add(Notice::Refused { from });
}

#[inline]
fn body(shared: &Shared, packet: &Packet, call: &mut Call<'_>) -> Body {
    if let Some((bytes, len)) = packet.inline {
        return Body::Inline(bytes, len);
    }
    match call.take_payload() {
        Ok(payload) => Body::Kept(payload),
        Err(_) => {
            let bytes = copy_of_payload(call);
            Counters::add(&shared.counters.copied_arrived, bytes.len() as u64);
            Body::Copied(bytes)
        }
    }
}
