//! What comes after the bytes of a transfer, once they lie in place at the target.

use crate::wire::Am;
use crate::{Atomic, Lane, Place};

/// What is done at the target of a transfer when that is complete.
#[derive(Clone, Copy)]
pub(super) enum After {
    /// An Active Message announces it.
    Tell(Lane, Am),
    /// A word of the target's heap is changed.
    Signal(Place, Atomic),
}
