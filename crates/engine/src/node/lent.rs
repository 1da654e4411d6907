//! The parts that a call of another part is lent, for as long as it takes.

use super::core::Core;
use super::mail::Mail;
use super::operations::Operations;

/// What may be said, sent and started from within a part.
pub(in crate::node) struct Lent<'a, T> {
    pub(in crate::node) core: &'a mut Core<T>,
    pub(in crate::node) mail: &'a mut Mail,
    pub(in crate::node) ops: &'a mut Operations,
}
