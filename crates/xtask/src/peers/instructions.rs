//! Instructions of the same calls by C and by Rust: the machine's moods do not change them.

use super::environment::Environment;
use super::rows::Language;
use crate::command::run;

/// The calls, in a job of one process.
const CALLS: [&str; 6] = ["put", "get", "add", "put64", "get64", "message"];

/// More calls in the second run than in the first.
const MORE: u32 = 2000;

/// Instructions of one call.
pub(super) struct Counted {
    pub(super) call: &'static str,
    pub(super) by_c: f64,
    pub(super) by_rust: f64,
}

/// Counts them, or says why not.
pub(super) fn count(environment: &Environment) -> Result<Vec<Counted>, String> {
    environment.look_for("face")?;
    run("valgrind --version").output().map_err(|_| "valgrind is not installed".to_owned())?;
    let of = |by: Language, call: &str| {
        let program = by.path(environment);
        let [few, many] = [MORE / 2, MORE / 2 + MORE].map(|calls| instructions(&program, call, calls));
        Ok::<f64, String>((many? - few?) / f64::from(MORE))
    };
    let both = |call| Ok(Counted { call, by_c: of(Language::C, call)?, by_rust: of(Language::Rust, call)? });
    CALLS.into_iter().map(both).collect()
}

/// Instructions of a whole run with so many calls.
fn instructions(program: &str, call: &str, calls: u32) -> Result<f64, String> {
    // Nobody else's calls are counted: no thread of the library's runs.
    let counted = run("valgrind --tool=callgrind --callgrind-out-file=/dev/null").arg(program).arg(call);
    let counted = counted.arg(calls.to_string()).arg("1").env("STANDPIPE_PROGRESS", "off");
    let (ended, said) = counted.complaint();
    ended.map_err(|why| why.0)?;
    collected(&said).ok_or_else(|| format!("callgrind counted nothing: {said}"))
}

/// The count in what callgrind says at the end.
fn collected(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.split_once("Collected : "))?;
    line.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_callgrind_says_is_read() {
        let said = "==7== Events    : Ir\n==7== Collected : 1234\n==7== \n";
        assert_eq!(super::collected(said), Some(1234.0));
        assert_eq!(super::collected("no such file"), None);
    }
}
