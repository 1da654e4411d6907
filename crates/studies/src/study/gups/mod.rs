//! GUPS: random updates of a table that lies in the heaps of a whole job, by each way that there is, and
//! beside what others make of the same. Table and sequence are those of the HPC Challenge's RandomAccess
//! (Luszczek and others, 2005).

mod beside;
mod command;
mod hpcc;
mod other;
mod outcome;
mod plan;
pub(crate) mod rank;
mod rma;
mod sequence;
mod shown;
mod table;

pub(crate) use command::STUDY;
