//! Marks that tell the processes of one job from those of another that meet at the same place. They are
//! variables of the environment that a launcher gives all processes of a job, and others to another job.

use serde::{Deserialize, Serialize};

/// These variables, the surest first. Of Slurm's, the first is the same for all parts of a heterogeneous job.
const NAMES: [&str; 6] =
    ["TORCHELASTIC_RUN_ID", "SLURM_HET_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"];

/// Torchrun's word where nobody has named the run.
const UNNAMED: &str = "none";

/// Letters of a value that count.
const LETTERS_MAX: usize = 100;

/// The variables that this process's launcher has left, with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::job) struct Marks(Vec<(String, String)>);

impl Marks {
    pub(in crate::job) fn from_env(lookup: &dyn Fn(&str) -> Option<String>) -> Marks {
        let read = |name: &&str| {
            let value: String = lookup(name)?.trim().chars().take(LETTERS_MAX).collect();
            (!value.is_empty() && value != UNNAMED).then(|| ((*name).to_owned(), value))
        };
        Marks(NAMES.iter().filter_map(read).collect())
    }

    /// The first variable that both have, where it says that they are of two jobs: its name, this one's value
    /// and the other's.
    pub(in crate::job) fn differ<'a>(&'a self, other: &'a Marks) -> Option<(&'a str, &'a str, &'a str)> {
        let both = self.0.iter().find_map(|(name, ours)| {
            let (_, theirs) = other.0.iter().find(|(its, _)| its == name)?;
            Some((name.as_str(), ours.as_str(), theirs.as_str()))
        });
        both.filter(|(_, ours, theirs)| ours != theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(vars: &[(&str, &str)]) -> Marks {
        let found =
            |name: &str| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Marks::from_env(&found)
    }

    #[test]
    fn the_first_variable_that_both_have_decides() {
        let [a, b] = ["a", "b"].map(|run| marks(&[("TORCHELASTIC_RUN_ID", run), ("SLURM_JOB_ID", "7")]));
        assert_eq!(a.differ(&b), Some(("TORCHELASTIC_RUN_ID", "a", "b")));
        assert_eq!(a.differ(&a), None);
        // Torchrun has it that these two are one job.
        let elsewhere = marks(&[("TORCHELASTIC_RUN_ID", "a"), ("SLURM_JOB_ID", "8")]);
        assert_eq!(a.differ(&elsewhere), None);
        let unnamed = marks(&[("TORCHELASTIC_RUN_ID", "none"), ("SLURM_JOB_ID", "8")]);
        assert_eq!(a.differ(&unnamed), Some(("SLURM_JOB_ID", "7", "8")));
        assert_eq!(a.differ(&marks(&[("SLURM_JOB_ID", " ")])), None);
        assert_eq!(a.differ(&Marks::default()), None);
    }
}
