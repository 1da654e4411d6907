//! What the `standpipe` command is made of. The library of the same name is what programs build on; this crate
//! only reads arguments, starts processes, and shows what came of it.

mod calls;
pub mod doctor;
pub mod info;
pub mod rendezvous;
pub mod sim;
pub mod top;
