//! The process that may attach to this one under Yama.

use std::fmt;

use rustix::io::Errno;

/// The process whose children and theirs may attach to this one, where the kernel's Yama lets only ancestors
/// do so (`kernel.yama.ptrace_scope` 1). Without that they reach this process's private memory by messages.
///
/// Yama knows one such process at a time: a later one ends the permission, also one that another library of
/// this process gives, such as a crash handler. Where there is no Yama this changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tracer {
    /// The launcher, in a launched job, unless the node exposes [ranges](super::Exposure::Ranges) only.
    /// Outside a job the library gives no permission.
    #[default]
    Auto,
    /// The parent of this process: for processes that one program has started, without a launcher of ours.
    Parent,
    /// The process of this number.
    Process(u32),
    /// Every process of the same user.
    Any,
    /// The library gives no permission.
    Never,
}

impl Tracer {
    /// The tracer of these words: `auto`, `parent`, `any`, `never`, or a process's number.
    pub(super) fn parse(text: &str) -> Option<Tracer> {
        Some(match text {
            "auto" => Tracer::Auto,
            "parent" => Tracer::Parent,
            "any" => Tracer::Any,
            "never" => Tracer::Never,
            number => Tracer::Process(number.parse().ok().filter(|pid| (1..=i32::MAX as u32).contains(pid))?),
        })
    }

    /// Permits it. `launcher`: the one that [`Tracer::Auto`] means, if there is one.
    pub(crate) fn permit(self, launcher: Option<u32>) {
        let pid = match self {
            Tracer::Never => return,
            Tracer::Any => return told(self, vm::host::allow_any_tracer()),
            Tracer::Auto => launcher,
            Tracer::Parent => Some(std::os::unix::process::parent_id()),
            Tracer::Process(pid) => Some(pid),
        };
        if let Some(pid) = pid {
            told(self, vm::host::allow_tracer(pid));
        }
    }
}

/// Says in the log what keeps a permission from being given: peers go by message then, and say why.
fn told(tracer: Tracer, permitted: Result<(), Errno>) {
    match (permitted, tracer) {
        (Ok(()), _) => {}
        // There is no Yama, so that there is nothing to permit; or no such process.
        (Err(Errno::INVAL), Tracer::Process(pid))
            if !std::path::Path::new(&format!("/proc/{pid}")).exists() =>
        {
            tracing::warn!(pid, "STANDPIPE_TRACER names no process: its children may not attach to this one");
        }
        (Err(Errno::INVAL), _) => {}
        (Err(errno), _) => tracing::debug!(%errno, %tracer, "no process was made the permitted tracer"),
    }
}

/// As it is written in the setting.
impl fmt::Display for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tracer::Auto => f.write_str("auto"),
            Tracer::Parent => f.write_str("parent"),
            Tracer::Process(pid) => write!(f, "{pid}"),
            Tracer::Any => f.write_str("any"),
            Tracer::Never => f.write_str("never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracers_are_read_as_they_are_written() {
        for tracer in [
            Tracer::Auto,
            Tracer::Parent,
            Tracer::Process(1),
            Tracer::Process(i32::MAX as u32),
            Tracer::Any,
            Tracer::Never,
        ] {
            assert_eq!(Tracer::parse(&tracer.to_string()), Some(tracer));
        }
        for bad in ["", "0", "-1", "2147483648", "Parent", "any ", "1.5", "none"] {
            assert_eq!(Tracer::parse(bad), None, "{bad:?}");
        }
    }
}
