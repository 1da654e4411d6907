//! One thing that the doctor looked at.

use serde::Serialize;

use super::nodes::Node;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// As it should be.
    Ok,
    /// Things work, but slower or with less than they could.
    Warn,
    /// Something does not work at all.
    Fail,
    /// A fact that is neither good nor bad.
    Info,
}

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// The subject.
    pub(crate) check: &'static str,
    /// How it came out.
    pub(crate) status: Status,
    /// The finding.
    pub(crate) value: String,
    /// The remedy; empty if there is nothing to do.
    pub(crate) remedy: String,
    /// The running node that it is about, with its figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Node>,
}
