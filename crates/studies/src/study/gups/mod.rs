//! GUPS: random updates of a table that lies in the heaps of a whole job, by each way that there is, and
//! beside what others make of the same. Table and sequence are those of the HPC Challenge's RandomAccess
//! (Luszczek and others, 2005).

mod command;
mod display;
mod hpcc;
mod mpi_references;
mod other_programs;
mod outcome;
mod plan;
mod rank;
mod rma;
mod sequence;
mod table;

pub(crate) use command::STUDY;
