//! How much of a check is run.

/// How much of a check is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// What a change is judged by: minutes.
    Short,
    /// Everything.
    Long,
}
