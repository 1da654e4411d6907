//! All studies.

use super::subcommand::Study;
use super::{firehose, gups, isx, kv, pindown, policies, scale};

/// Every study, in the order in which help lists them.
pub static ALL: [&dyn Study; 7] = [
    &kv::STUDY,
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
            let mut command = study.command();
            command.clone().debug_assert();
            assert_eq!(command.get_name(), study.name());
            let about = command.get_about().expect("a line of help").to_string();
            let help = command.render_help().to_string();
            assert!(help.starts_with(&about) && help.contains("--out <DIR>"), "{help}");
        }
    }
}
