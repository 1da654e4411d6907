//! All studies.

use super::live;
use super::ranks::{RankPlan, RunPlan, run_plan};
use super::subcommand::Study;
use crate::kernels;

/// Every study, in the order in which help lists them.
pub static ALL: &[&dyn Study] = &[
    &super::kv::STUDY,
    &super::layers::STUDY,
    &super::firehose::STUDY,
    &super::pindown::STUDY,
    &super::scale::STUDY,
    &super::policies::STUDY,
    &super::gups::STUDY,
    &super::isx::STUDY,
];

/// Processes that no study has for itself: those of live measurements, which several make, and of kernels.
pub(super) const SHARED: [(&str, RunPlan); 2] =
    [(live::Part::NAME, run_plan::<live::Part>), (kernels::Worker::NAME, run_plan::<kernels::Worker>)];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_study_has_a_name_of_its_own_and_help_and_says_where_results_go() {
        let names: BTreeSet<&str> = ALL.iter().map(|study| study.name()).collect();
        assert_eq!(names.len(), ALL.len());
        for study in ALL {
            let command = study.command();
            command.clone().debug_assert();
            assert_eq!(command.get_name(), study.name());
            assert!(command.get_about().is_some_and(|about| !about.to_string().is_empty()), "{command:?}");
            assert!(
                command.get_arguments().any(|argument| argument.get_long() == Some("out")),
                "{command:?}"
            );
        }
    }
}
