//! The control group that this process is in, as a container has one, as far as memory goes.

use std::fs;
use std::path::{Path, PathBuf};

/// The least limit, in bytes, that the group or one above it sets all of its processes together; `None` where
/// none does.
pub(crate) fn memory_limit() -> Option<u64> {
    let files = memory_files("memory.max", "memory.limit_in_bytes");
    files.iter().filter_map(|file| limit(&fs::read_to_string(file).ok()?)).min()
}

/// Version 2 says `max` where there is none, version 1 the largest number of whole pages.
fn limit(text: &str) -> Option<u64> {
    const NONE: u64 = (i64::MAX as u64) >> 16 << 16;
    text.trim().parse().ok().filter(|bytes| *bytes < NONE)
}

/// Where files of these names, in version 2 and in version 1, may be: in the group's folder, then in each
/// above it, up to the mount's root. A container may see that root alone.
pub(crate) fn memory_files(two: &str, one: &str) -> Vec<PathBuf> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    files(&read("/proc/self/cgroup"), &read("/proc/self/mounts"), two, one)
}

fn files(groups: &str, mounts: &str, two: &str, one: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(mount), Some(kind), Some(options)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let (of_group, file): (&dyn Fn(&str) -> bool, _) = match kind {
            "cgroup2" => (&|controllers| controllers.is_empty(), two),
            "cgroup" if options.split(',').any(|option| option == "memory") => {
                (&|controllers| controllers.split(',').any(|name| name == "memory"), one)
            }
            _ => continue,
        };
        let path = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            of_group(controllers).then(|| Path::new(path.trim_start_matches('/')))
        });
        let above = path.unwrap_or(Path::new("")).ancestors();
        files.extend(above.map(|group| Path::new(mount).join(group).join(file)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_found_by_either_version() {
        let path = |text: &str| PathBuf::from(text);
        let two = files(
            "0::/user/7\n",
            "none /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n",
            "memory.max",
            "one",
        );
        let at = ["/sys/fs/cgroup/user/7", "/sys/fs/cgroup/user", "/sys/fs/cgroup"];
        assert_eq!(two, at.map(|group| path(group).join("memory.max")));
        let one = files(
            "5:cpu,memory:/a\n1:name=systemd:/b\n0::/\n",
            "cgroup /c/systemd cgroup rw,name=systemd 0 0\ncgroup /c/memory cgroup rw,cpu,memory 0 0\n",
            "two",
            "memory.limit_in_bytes",
        );
        assert_eq!(one, ["/c/memory/a", "/c/memory"].map(|group| path(group).join("memory.limit_in_bytes")));
        assert!(files("", "", "two", "one").is_empty());
    }

    #[test]
    fn no_limit_is_none_in_either_version() {
        assert_eq!(limit("4096\n"), Some(4096));
        for none in ["max\n", "9223372036854771712\n", "9223372036854710272\n", ""] {
            assert_eq!(limit(none), None, "{none:?}");
        }
    }
}
