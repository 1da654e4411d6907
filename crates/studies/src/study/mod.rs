//! The papers' figures and tables, and what lies beyond them: in the simulator, and between real processes.
//! Each study is a module here, as a rule a folder, with one value, and one line in the list of [all](ALL).

mod firehose;
mod gups;
mod isx;
mod kv;
mod layers;
mod list;
mod live;
mod pindown;
mod policies;
mod rank;
pub(crate) mod ranks;
mod recording;
mod scale;
mod subcommand;

pub use list::ALL;
pub use rank::Rank;
pub use subcommand::Study;
