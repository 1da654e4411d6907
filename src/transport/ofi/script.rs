//! Calls of the provider's that fail because a test says so: of all operations but those that go in slots.

/// Which calls fail; by default none.
#[derive(Default)]
pub(super) struct Script {
    /// Operations that are still taken before one is refused.
    pub(super) refuse_after: Option<u32>,
    /// Operations that still end well before one fails.
    pub(super) fail_after: Option<u32>,
    /// Nothing goes out, as while the provider connects.
    pub(super) connects: bool,
    /// There is no memory for buffers.
    pub(super) refuse_memory: bool,
    /// How often that was refused.
    pub(super) memory_refused: u32,
    /// No buffer waits for messages.
    pub(super) refuse_receives: bool,
    /// No auxiliary endpoint has room.
    pub(super) refuse_aux_endpoints: bool,
    /// So many auxiliary endpoints, until each is closed, take parts of which none goes out or ends.
    pub(super) swallow_aux_endpoints: u32,
    /// The next part that ends at an auxiliary endpoint has failed.
    pub(super) fail_aux_endpoint: bool,
    /// Each poll finds a failure of nothing that is known.
    pub(super) fails_namelessly: bool,
    /// Nothing more is registered.
    pub(super) refuse_regions: bool,
    /// No registration is closed.
    pub(super) keep_regions: bool,
}

impl Script {
    pub(super) fn refuses(&mut self) -> bool {
        due(&mut self.refuse_after)
    }

    /// What is said of an operation that has ended so. Of those that receive none fails: that would be a
    /// message lost, which no reliable endpoint does.
    pub(super) fn judge(&mut self, receives: bool, result: Result<usize, ()>) -> Result<usize, ()> {
        if !receives && due(&mut self.fail_after) { Err(()) } else { result }
    }
}

/// Whether it is the last one's turn, once.
fn due(left: &mut Option<u32>) -> bool {
    let Some(count) = left else { return false };
    let is_due = *count == 0;
    *left = count.checked_sub(1);
    is_due
}
