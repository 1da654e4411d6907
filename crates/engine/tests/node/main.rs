//! Nodes over transports that each test plays by hand. One program, so that the engine is compiled and linked
//! for them once.

extern crate standpipe_engine as engine;

mod bounce;
mod common;
mod grant_atomics;
mod hits;
mod hostile;
mod returned;
mod rules;
mod settling;
mod signals;
mod small_collectives;

mod team_news;
mod teams;
