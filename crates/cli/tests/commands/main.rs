//! The command `standpipe`, as its users run it.

mod doctor;
mod forward;
mod layers;
mod namespaces;
mod rendezvous;
mod run;
mod signals;
mod top;
mod tune;
mod words;
