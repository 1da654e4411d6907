//! The old spellings of what `standpipe-study` does: they start it. They are to go with the release after
//! 0.3.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use measure::signals::complain;

/// The command that has the studies, kernels and the simulator.
const PROGRAM: &str = "standpipe-study";

/// The words for `standpipe-study`, if this command line is an old spelling of one of its own.
pub(crate) fn asked_for(line: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let mut words: Vec<OsString> = line.skip(1).collect();
    let is_verbose = |word: &OsString| {
        let text = word.to_str().unwrap_or_default();
        text == "--verbose"
            || text.strip_prefix('-').is_some_and(|v| !v.is_empty() && v.replace('v', "").is_empty())
    };
    let mut at = words.iter().take_while(|word| is_verbose(word)).count();
    at += usize::from(words.get(at).is_some_and(|word| word == "help"));
    match words.get(at)?.to_str()? {
        // Each study is a subcommand by itself.
        "study" => _ = words.remove(at),
        "kernel" | "sim" => {}
        _ => return None,
    }
    Some(words)
}

/// Becomes `standpipe-study`: the one beside this program, or else the one on PATH. Comes back only where
/// there is none.
pub(crate) fn run(words: &[OsString]) -> ExitCode {
    let beside = beside().filter(|program| program.is_file());
    let program = beside.unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(&program).args(words).exec();
    if error.kind() == io::ErrorKind::NotFound {
        complain(format_args!("standpipe: {}", how_to_get_it(words)));
    } else {
        complain(format_args!("standpipe: {} cannot be started: {error}", program.display()));
    }
    ExitCode::FAILURE
}

fn beside() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.with_file_name(PROGRAM))
}

fn how_to_get_it(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    format!(
        "this is a part of {PROGRAM}, which is neither beside this program nor on PATH; in Standpipe's sources \
         `cargo run --release -p {PROGRAM} -- {}` runs it, and `cargo xtask install` installs it",
        words.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<OsString>> {
        asked_for(line.split(' ').map(OsString::from))
    }

    #[test]
    fn old_spellings_are_told_from_the_others() {
        for (old, new) in [
            ("study kv --requests 2", "kv --requests 2"),
            ("-v study kv", "-v kv"),
            ("--verbose -vv sim --seeds 3", "--verbose -vv sim --seeds 3"),
            ("kernel cannon -v", "kernel cannon -v"),
            ("help study kv", "help kv"),
            ("help sim", "help sim"),
        ] {
            let new: Vec<OsString> = new.split(' ').map(OsString::from).collect();
            assert_eq!(words(&format!("standpipe {old}")), Some(new), "{old}");
        }
        assert_eq!(words("standpipe study"), Some(vec![]));
        for own in ["run -n 1 -- study", "top --help", "-", "--version", "help", "perf sim", "help -- sim"] {
            assert_eq!(words(&format!("standpipe {own}")), None, "{own}");
        }
    }

    #[test]
    fn who_has_no_studies_is_told_how_to_have_them() {
        let said = how_to_get_it(&["kv".into(), "--full".into()]);
        assert!(said.contains("`cargo run --release -p standpipe-study -- kv --full`"), "{said}");
        assert!(said.contains("`cargo xtask install`") && !said.contains('\n'), "{said}");
    }
}
