//! The papers' figures and tables, and what lies beyond them: in the simulator, and between real processes.
//! Each study is a module here with one value, and one line in the list of [all](ALL).

pub(crate) mod firehose;
pub(crate) mod gups;
pub(crate) mod isx;
pub(crate) mod kv;
pub(crate) mod layers;
mod list;
pub(crate) mod live;
pub(crate) mod pindown;
pub(crate) mod policies;
mod ranks;
mod recording;
pub(crate) mod scale;
mod subcommand;

pub use list::ALL;
pub use subcommand::Study;
