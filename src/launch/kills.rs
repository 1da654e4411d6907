//! Whether the kernel has killed processes for want of memory.

use std::fs;

use crate::base::control_group;

/// How many processes the kernel has killed for want of memory so far. They are those of the launcher's
/// control group, which the ranks are in, or the nearest above it that counts, and else of the machine.
/// `None`: it does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kills(Option<u64>);

impl Kills {
    pub(super) fn now() -> Kills {
        let files = control_group::memory_files("memory.events", "memory.oom_control");
        let group = files.iter().find_map(|file| count(&fs::read_to_string(file).ok()?));
        Kills(group.or_else(|| count(&fs::read_to_string("/proc/vmstat").ok()?)))
    }

    /// The likely cause of death of a rank that SIGKILL ended, where there have been more kills since these;
    /// it is counted as one of them.
    pub(super) fn blame(&mut self, now: Kills) -> Option<&'static str> {
        let (before, now) = (self.0.as_mut()?, now.0?);
        (*before < now).then(|| {
            *before += 1;
            // A group's count has those, too, for whom the machine had no more.
            "out of memory: the limit of its control group, as a container has one, was reached, or the machine had no more"
        })
    }
}

/// The number in a line `oom_kill N`.
fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kill_is_blamed_once() {
        assert_eq!(count("low 0\noom 3\noom_kill 2\noom_group_kill 9\n"), Some(2));
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\n"), None);
        let (mut known, after) = (Kills(Some(1)), Kills(Some(3)));
        assert_eq!(known.blame(known), None);
        assert!((0..2).all(|_| known.blame(after).is_some_and(|why| why.starts_with("out of memory"))));
        assert_eq!(known.blame(after), None, "each is one of them");
        assert_eq!((Kills(None).blame(after), known.blame(Kills(None))), (None, None));
    }
}
