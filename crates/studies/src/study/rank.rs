//! The hidden command line of a process that a study starts.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use super::list::{ALL, SHARED};
use super::ranks;

/// The process of a study's job that this one was started as. A program that uses this library runs it before
/// it looks at its own command line.
#[derive(Debug)]
pub struct Rank {
    name: String,
    plan: String,
}

/// Apart from the user's commands, so that neither help nor hints nor completions name it.
#[derive(Debug, Parser)]
#[command(name = "standpipe-study")]
enum Line {
    /// A process that a study starts
    #[command(name = ranks::SUBCOMMAND)]
    Rank {
        /// The study
        name: String,
        /// Its plan, as JSON
        plan: String,
    },
}

impl Rank {
    /// The part in which a study started this process, if one did.
    #[must_use]
    pub fn asked_for() -> Option<Rank> {
        measure::worker::is_named::<Line>()
            .then(Line::parse)
            .map(|Line::Rank { name, plan }| Rank { name, plan })
    }

    /// Does its part, telling on standard output what it does.
    ///
    /// # Errors
    /// If it cannot do it, or nobody listens.
    pub fn run(&self) -> Result<ExitCode> {
        let rank = named(&self.name).with_context(|| format!("{} has no processes of its own", self.name))?;
        rank(&self.plan)
    }
}

/// The function that runs the processes of that name.
fn named(name: &str) -> Option<ranks::RunPlan> {
    let of_studies = ALL.iter().find(|study| study.name() == name).and_then(|study| study.rank());
    of_studies.or_else(|| SHARED.iter().find(|(shared, _)| *shared == name).map(|(_, rank)| *rank))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Line::command().debug_assert();
    }

    #[test]
    fn each_name_is_of_one_and_a_plan_that_is_none_is_refused() {
        let refused = |name: &str| {
            let run = Rank { name: name.to_owned(), plan: "no plan".to_owned() }.run();
            run.expect_err("nothing to run").to_string()
        };
        for (name, _) in SHARED {
            assert!(ALL.iter().all(|study| study.name() != name), "{name} is a study, too");
            assert_eq!(refused(name), "the plan", "{name}");
        }
        for study in ALL {
            let why = if study.rank().is_some() { "the plan" } else { "has no processes of its own" };
            assert!(refused(study.name()).ends_with(why), "{study:?}");
        }
        assert_eq!(refused("nonesuch"), "nonesuch has no processes of its own");
    }
}
