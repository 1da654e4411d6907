//! The historic layers side by side on one testbed, as in *User-Space Communication: A Quantitative Study*
//! (Araki, Bilas, Dubnicki, Edler, Konishi, Philbin; SC'98): latency, overheads, gap, bandwidth and copies.

mod benches;
mod command;
mod display;
mod figures;
mod originals;
mod outcome;
mod paper;
mod plan;
mod rank;

pub(crate) use benches::right;
pub(crate) use command::STUDY;
