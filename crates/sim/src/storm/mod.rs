//! Storms: a cluster driven by one seed with operations of every kind, in the weather asked for, and watched.
//!
//! Ranks put, get, scatter, count and send to ranks, memory and sizes that the seed picks, under budgets and
//! settings that it picks, while the faults of the plan happen. The storm checks:
//!
//! - after every step:
//!   - every access that a card was asked for was to memory registered for it;
//!   - no card has pinned more than M + MAXVICTIM;
//!   - no operation of a quiet rank can still write;
//! - whenever an operation ends: it ends once, with the right bytes or an error that a fault explains;
//! - at least once in a thousand events, and at the end:
//!   - each node's books add up;
//!   - both ends of every right have the same in their books;
//! - where ranks grant memory:
//!   - no operation by an old name comes to a newer object;
//!   - each ends as its owner, its rights and its bounds have it;
//!   - owners have all memory back;
//! - after the faults: every operation ends.
//!
//! Read in this order: `run` (what happens), `program` (what ranks do), `locality` (where they do it),
//! `verdict` (how it must end), `settled` (what was given up), `shadow` (what must lie in memory),
//! `message_checks` (Active Messages), `granted`, `counters` and `name_checks` (names of memory), `restarts`
//! (ranks that are other processes), `knowledge` (who has heard of which new memory), `draw` (the dice).

mod active_messages;
mod counters;
mod definition;
mod draw;
mod given_up;
mod granted;
mod knowledge;
mod locality;
mod message_checks;
mod name_checks;
mod program;
mod restarts;
mod run;
mod settled;
mod shadow;
mod verdict;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::registration::Settings;

use crate::faults::Faults;
use run::Run;

pub use definition::{Failure, NODES_MAX, Outcome, Storm};

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "after step {}: {}", self.step, self.what)?;
        writeln!(f, "under {}", self.settings)?;
        write!(f, "{}", self.replay)
    }
}

impl std::error::Error for Failure {}

impl Storm {
    /// Lets the storm pass. Takes the thread until it is over, and tells now and then how many steps it has
    /// come.
    ///
    /// # Errors
    /// The first thing that was wrong; a panic of the engine's is one.
    ///
    /// # Panics
    /// When there are fewer than 2 ranks, or more than [`NODES_MAX`].
    pub fn run(&self, mut told: impl FnMut(u64)) -> Result<Outcome, Failure> {
        assert!((2..=NODES_MAX).contains(&self.nodes), "a storm of {} ranks", self.nodes);
        let mut run = Run::new(self);
        let result = catch_unwind(AssertUnwindSafe(|| run.run(&mut told)));
        let what = match result {
            Ok(Ok(())) => return Ok(run.outcome()),
            Ok(Err(what)) => what,
            Err(panic) => format!("a panic: {}", panic_text(&*panic)),
        };
        let settings = run.settings;
        Err(Failure { step: run.step, what, settings: describe(&settings), replay: self.replay() })
    }

    /// The command that does it again; where costs were given, it lacks the option that names them.
    pub fn replay(&self) -> String {
        let Storm { nodes, seed, steps, faults, .. } = self;
        let mut line = format!("standpipe-study sim --nodes {nodes} --seed {seed} --steps {steps}");
        if *faults != Faults::default() {
            line += &format!(" --faults {faults}");
        }
        line
    }
}

fn describe(settings: &Settings) -> String {
    format!("{settings:?}")
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of no words")
}
