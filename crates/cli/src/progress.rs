//! How far something has come, as a bar on standard error, and only where that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// A bar of so many steps that goes away with its end. `said` is what stands right of it, in the words of
/// [`ProgressStyle::with_template`]: `"{pos}/{len} seeds"`.
///
/// # Panics
/// If `said` is none of those words; it is fixed, and a test or a study of each command tries it.
#[must_use]
pub fn bar(steps: u64, said: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!("{{elapsed:>4}} {{bar:32.cyan/blue}} {said}"));
    let style = style.expect("the words are fixed and tried by a test");
    let bar = ProgressBar::new(steps).with_style(style).with_finish(ProgressFinish::AndClear);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
