//! Messages: Active Messages, and what waits for room or for its time.

pub(super) mod active_message;
mod held;
mod outbox;
pub(super) mod wait_queues;
