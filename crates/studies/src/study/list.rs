//! All studies.

use super::subcommand::Study;
use super::{firehose, gups, isx, kv, layers, pindown, policies, scale};

/// Every study, in the order in which help lists them.
pub static ALL: [&dyn Study; 8] = [
    &kv::STUDY,
    &layers::STUDY,
    &firehose::STUDY,
    &pindown::STUDY,
    &scale::STUDY,
    &policies::STUDY,
    &gups::STUDY,
    &isx::STUDY,
];

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
