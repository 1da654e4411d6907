//! The machine's facts that a report names.

use std::{fs, sync::OnceLock, thread};

use rustix::system::uname;
use standpipe::host;

use crate::signals;
use crate::units::{bytes, counted};
use crate::usage_error::UsageError;

/// What this machine is: rows of (what, value), as far as the system tells.
#[must_use]
pub fn facts() -> Vec<(String, String)> {
    let system = uname();
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut rows = vec![
        ("processor", field(&text("/proc/cpuinfo"), "model name")),
        ("cores", thread::available_parallelism().map_or_else(|_| String::new(), |cores| cores.to_string())),
        (
            "memory",
            field(&text("/proc/meminfo"), "MemTotal")
                .replace(" kB", "")
                .parse()
                .map_or_else(|_| String::new(), gib),
        ),
        ("kernel", format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy())),
        ("architecture", system.machine().to_string_lossy().into_owned()),
    ];
    if let Some(load) = load_before() {
        let noise = if is_busy() { ": other programs ran, and what was measured is noise" } else { "" };
        rows.push(("load average before it", format!("{load:.1}{noise}")));
    }
    rows.retain(|(_, value)| !value.is_empty());
    rows.into_iter().map(|(what, value)| (what.to_owned(), value)).collect()
}

/// Refuses what needs more memory than this machine has, rather than to be killed in the midst of it.
///
/// # Errors
/// If it does, with both numbers.
pub fn check_room(needed_bytes: u64, what: &str) -> Result<(), UsageError> {
    match host::memory_bytes() {
        Some(there) if needed_bytes > there => {
            let (needed, there) = (bytes(needed_bytes), bytes(there));
            let why = format_args!("{what} takes {needed} of memory at least, and this machine has {there}");
            Err(UsageError::new(why))
        }
        _ => Ok(()),
    }
}

/// How this program was built: `debug`, `quick` (Cargo's profile for a first look), or `release`.
pub const BUILD: &str = match env!("MEASURE_OPT_LEVEL").as_bytes() {
    _ if cfg!(debug_assertions) => "debug",
    b"3" => "release",
    _ => "quick",
};

/// What to say where the compiler did not optimise this program.
pub const UNOPTIMISED: Option<&str> = if cfg!(debug_assertions) {
    Some("this is a debug build: its times say nothing of a release build's (cargo run --release)")
} else {
    None
};

/// How many processes wanted a processor, on average over the last minute.
#[must_use]
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// The load before this command added its own.
static LOAD_BEFORE: OnceLock<Option<f64>> = OnceLock::new();

/// Looks at the load before this command adds its own, and warns on standard error where other programs keep
/// the machine busy: each command that measures does so before it begins. The machine's [`facts`] name it
/// from then on.
pub fn mind_load() {
    let load = *LOAD_BEFORE.get_or_init(load_average);
    if let Some(warning) = noise(load, host::cores()) {
        signals::complain(format_args!("standpipe: {warning}"));
    }
}

/// The load before this command added its own; `None` where it was not looked at, or the system does not
/// tell.
#[must_use]
pub fn load_before() -> Option<f64> {
    LOAD_BEFORE.get().copied().flatten()
}

/// Whether other programs kept the machine busy when this command began to measure.
#[must_use]
pub fn is_busy() -> bool {
    Load::before().is_some_and(Load::is_busy)
}

/// How many processes wanted a core, and how many cores there are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Processes that wanted a core, on average over a minute.
    pub average: f64,
    /// Cores that this program may run on.
    pub cores: usize,
}

/// Share of the cores up to which a machine counts as idle: something runs now and then on any.
const IDLE: f64 = 0.25;

impl Load {
    /// The load before this command added its own; `None` as for [`load_before`].
    #[must_use]
    pub fn before() -> Option<Load> {
        load_before().map(|average| Load { average, cores: host::cores() })
    }

    /// Whether other programs leave no core free.
    #[must_use]
    pub fn is_busy(self) -> bool {
        is_more_than(self.average, self.cores)
    }

    /// The state of the machine in a sentence, for the top of what a command shows.
    #[must_use]
    pub fn words(self) -> String {
        let wanted =
            format!("{:.1} processes wanted one of its {}", self.average, counted(self.cores as u64, "core"));
        match self.average <= IDLE * self.cores as f64 {
            _ if self.is_busy() => format!(
                "Other programs kept this machine busy: {wanted} when the run began. Its times are noise."
            ),
            true => format!("This machine was idle when the run began: {wanted} in the minute before."),
            false => {
                format!("This machine was partly busy when the run began: {wanted} in the minute before.")
            }
        }
    }
}

fn is_more_than(load: f64, cores: usize) -> bool {
    load > cores as f64
}

/// The warning, where other programs keep the machine busy.
fn noise(load: Option<f64>, cores: usize) -> Option<String> {
    let load = load.filter(|load| is_more_than(*load, cores))?;
    Some(format!(
        "the load average is {load:.1} on {}: other programs run, and what is measured is noise",
        counted(cores as u64, "core")
    ))
}

/// The value of the first `name: value` line.
fn field(text: &str, name: &str) -> String {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

fn gib(kib: u64) -> String {
    format!("{:.1} GiB", kib as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "MemTotalX: 1 kB\nMemTotal:   24576000 kB\n";
        assert_eq!(field(text, "MemTotal"), "24576000 kB");
        assert_eq!(field(text, "Mem"), "");
        assert_eq!(gib(24_576_000), "23.4 GiB");
    }

    #[test]
    fn what_needs_more_than_there_is_is_refused() {
        assert!(check_room(1, "a byte").is_ok());
        let error = check_room(u64::MAX, "everything").expect_err("no machine has so much").to_string();
        assert!(error.starts_with("everything takes "), "{error}");
    }

    #[test]
    fn a_busy_machine_is_told_and_an_idle_one_is_not() {
        assert!(noise(Some(2.1), 2).expect("busy").contains("2.1 on 2 cores"));
        assert_eq!((noise(Some(2.0), 2), noise(None, 2)), (None, None));
    }

    #[test]
    fn a_load_is_busy_partly_busy_or_idle() {
        let words = |average| Load { average, cores: 2 }.words();
        assert!(words(2.1).starts_with("Other programs kept this machine busy: 2.1 processes wanted one of"));
        assert!(words(2.0).starts_with("This machine was partly busy"), "{}", words(2.0));
        assert!(words(0.5).contains("idle when the run began: 0.5 processes wanted one of its 2 cores"));
    }

    #[test]
    fn this_machine_has_a_kernel_and_cores() {
        let names: Vec<String> = facts().into_iter().map(|(what, _)| what).collect();
        assert!(names.contains(&"kernel".to_owned()) && names.contains(&"cores".to_owned()), "{names:?}");
    }
}
