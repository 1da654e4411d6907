//! Operations of all members of a team.

pub(crate) mod reduction;
pub(crate) mod team;
