//! Filters of tests that must name some: otherwise a test that is given another name leaves a check that
//! passes without it.

use crate::command::{Failure, Run};

/// Makes sure that each filter among the arguments of a test program names a test of it, as `list` (that
/// program, told to list what the filter which is added to it leaves) says.
pub(crate) fn each_names_a_test(args: &str, list: impl Fn() -> Run) -> Result<(), Failure> {
    for filter in filters(args) {
        if !list().arg(filter).output()?.lines().any(|line| line.ends_with(": test")) {
            return Err(Failure(format!("no test has {filter:?} in its name")));
        }
    }
    Ok(())
}

/// The words that are neither options nor the number of threads.
fn filters(args: &str) -> impl Iterator<Item = &str> {
    args.split_whitespace().filter(|word| !word.starts_with('-') && word.parse::<u32>().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::run;

    #[test]
    fn options_are_no_filters() {
        let args = "--nocapture --test-threads 1 mr_invalidation::tests ofi::tests::changes";
        assert_eq!(filters(args).collect::<Vec<_>>(), ["mr_invalidation::tests", "ofi::tests::changes"]);
    }

    #[test]
    fn a_filter_that_names_nothing_fails() {
        let says = |text: &'static str| move || run("printf").arg(text);
        assert_eq!(each_names_a_test("one two", says("some::one: test\n%s")), Ok(()));
        assert!(each_names_a_test("one", says("0 tests, 0 benchmarks\n%s")).is_err());
        assert_eq!(each_names_a_test("--nocapture", says("%s")), Ok(()));
    }
}
