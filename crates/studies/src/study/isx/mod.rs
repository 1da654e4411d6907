//! ISx: integers that each process draws at random are sorted over the whole job, through puts that signal
//! (Hanebutte and Hemstad, ISx: a scalable integer sort for co-design in the exascale era, 2015).

mod command;
mod display;
mod outcome;
mod plan;
mod rank;
mod sort;

pub(crate) use command::STUDY;
