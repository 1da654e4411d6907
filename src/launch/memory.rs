//! Whether the kernel has killed processes for want of memory.

use std::fs;
use std::path::{Path, PathBuf};

/// How many processes the kernel has killed for want of memory so far: of the launcher's control group, which the ranks are in,
/// where that is counted, and else of the machine. `None`: it does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kills(Option<u64>);

impl Kills {
    pub(super) fn now() -> Kills {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let files = files(&read("/proc/self/cgroup"), &read("/proc/self/mounts"));
        let group = files.iter().find_map(|file| count(&fs::read_to_string(file).ok()?));
        Kills(group.or_else(|| count(&read("/proc/vmstat"))))
    }

    /// What a rank that SIGKILL ended most likely died of, where there have been more kills since these; it is counted as one
    /// of them.
    pub(super) fn blame(&mut self, now: Kills) -> Option<&'static str> {
        let (before, now) = (self.0.as_mut()?, now.0?);
        (*before < now).then(|| {
            *before += 1;
            // A group's count has those, too, for whom the machine had no more.
            "out of memory: the limit of its control group, as a container has one, was reached, or the machine had no more"
        })
    }
}

/// The files that may hold a control group's count, from `/proc/self/cgroup` and `/proc/self/mounts`: of version 2 and 1, by the
/// group's path, and at the mount's root, which it is where a container sees no more of the tree.
fn files(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(mount), Some(kind), Some(options)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let (of_group, file): (&dyn Fn(&str) -> bool, _) = match kind {
            "cgroup2" => (&|controllers| controllers.is_empty(), "memory.events"),
            "cgroup" if options.split(',').any(|option| option == "memory") => {
                (&|controllers| controllers.split(',').any(|name| name == "memory"), "memory.oom_control")
            }
            _ => continue,
        };
        let path = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            of_group(controllers).then(|| path.trim_start_matches('/'))
        });
        let mount = Path::new(mount);
        files.extend(path.map(|path| mount.join(path).join(file)));
        files.push(mount.join(file));
    }
    files
}

/// The number in a line `oom_kill N`.
fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_found_by_either_version() {
        let two =
            files("0::/user/7\n", "none /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n");
        let path = |text: &str| PathBuf::from(text);
        assert_eq!(two, [path("/sys/fs/cgroup/user/7/memory.events"), path("/sys/fs/cgroup/memory.events")]);
        let one = files(
            "5:cpu,memory:/a\n1:name=systemd:/b\n0::/\n",
            "cgroup /c/systemd cgroup rw,name=systemd 0 0\ncgroup /c/memory cgroup rw,cpu,memory 0 0\n",
        );
        assert_eq!(one, [path("/c/memory/a/memory.oom_control"), path("/c/memory/memory.oom_control")]);
        assert!(files("", "").is_empty());
    }

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
