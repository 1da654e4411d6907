//! The parts that a call of another part is lent, for as long as it takes.

use super::core::Core;
use super::mail::Mail;
use super::operations::Operations;

/// By these a part sends messages, starts operations, and asks the transport.
pub(in crate::node) struct Lent<'a, T> {
    pub(in crate::node) core: &'a mut Core<T>,
    pub(in crate::node) mail: &'a mut Mail,
    pub(in crate::node) ops: &'a mut Operations,
}
