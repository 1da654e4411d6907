//! How far something has come, on standard error: as a bar where that is a terminal, as a line now and then
//! elsewhere.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle, WeakProgressBar};

/// Nobody wants to hear of what is done sooner.
const SILENCE: Duration = Duration::from_secs(2);
/// The shortest time between two lines.
const PAUSE: Duration = Duration::from_secs(4);
/// The longest.
const PATIENCE: Duration = Duration::from_secs(30);
/// What must have been done since the line before, in percent of all.
const STRIDE: u64 = 10;

/// The bar that was made last.
static SHOWN: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

/// A bar of so many steps that goes away with its end. `said` is what stands right of it, in the words of
/// [`ProgressStyle::with_template`]: `"{pos}/{len} seeds"`. Where standard error is no terminal, lines of the same
/// words come instead: the first after two seconds, and then one for each tenth, but not
/// too often; and one now and then even if little is done.
///
/// # Panics
/// If `said` is none of those words; it is fixed, and a test or a study of each command tries it.
#[must_use]
pub fn bar(steps: u64, said: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!("{{elapsed:>4}} {{bar:32.cyan/blue}} {said}"));
    let style = style.expect("the words are fixed and tried by a test");
    let bar = ProgressBar::new(steps).with_style(style).with_finish(ProgressFinish::AndClear);
    if io::stderr().is_terminal() {
        bar.enable_steady_tick(Duration::from_millis(200));
    } else {
        let (weak, said) = (bar.downgrade(), said.to_owned());
        // Without a thread there are no lines, and that is all.
        let _ = thread::Builder::new().name("progress".to_owned()).spawn(move || tell(&weak, &said));
    }
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.downgrade());
    bar
}

/// How far a study has come, on standard error.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar of so many steps.
    #[must_use]
    pub fn new(steps: usize, what: &str) -> Bar {
        Bar(bar(steps as u64, "{pos}/{len} {msg}").with_message(what.to_owned()))
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }
}

/// Takes away the bar that is shown, if one is.
pub fn clear() {
    let shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(bar) = shown.and_then(|bar| bar.upgrade()) {
        bar.finish_and_clear();
    }
}

/// Tells in lines how far a bar has come, until it is done or nobody has it any more.
fn tell(bar: &WeakProgressBar, said: &str) {
    let mut lines = Lines::new(Instant::now());
    loop {
        thread::sleep(Duration::from_millis(200));
        let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) else { return };
        let (steps, all) = (bar.position(), bar.length().unwrap_or(0));
        if lines.is_due(Instant::now(), steps, all) {
            let line = in_words(said, &[("pos", steps), ("len", all)], &bar.message());
            let percent = 100 * steps / all.max(1);
            // With standard error closed there is nowhere to say it.
            let _ = writeln!(io::stderr(), "standpipe: {percent} % after {:.0?}: {line}", bar.elapsed());
        }
    }
}

/// When a line is due.
struct Lines {
    earliest: Instant,
    latest: Instant,
    next_percent: u64,
}

impl Lines {
    fn new(begun: Instant) -> Lines {
        Lines { earliest: begun + SILENCE, latest: begun + SILENCE, next_percent: STRIDE }
    }

    fn is_due(&mut self, now: Instant, steps: u64, all: u64) -> bool {
        let percent = 100 * steps / all.max(1);
        let due = now >= self.latest || now >= self.earliest && percent >= self.next_percent;
        if due {
            (self.earliest, self.latest) = (now + PAUSE, now + PATIENCE);
            self.next_percent = (percent / STRIDE + 1) * STRIDE;
        }
        due
    }
}

/// The words of a bar with their values put in; those that a bar alone can show are left out with what stands
/// before them: `"{pos}/{len} seeds · {per_sec}"` is `"3/10 seeds"`.
fn in_words(said: &str, numbers: &[(&str, u64)], message: &str) -> String {
    let mut text = said.replace("{msg}", message);
    for (name, value) in numbers {
        for word in [format!("{{{name}}}"), format!("{{human_{name}}}")] {
            text = text.replace(&word, &value.to_string());
        }
    }
    let text = text.split('{').next().unwrap_or_default();
    text.trim_end_matches([' ', '·']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_neither_early_nor_often_nor_without_news() {
        let begun = Instant::now();
        let after = |seconds: f64| begun + Duration::from_secs_f64(seconds);
        let mut lines = Lines::new(begun);
        assert!(!lines.is_due(after(1.9), 500, 1000), "too early");
        assert!(lines.is_due(after(2.1), 0, 1000), "the first, whatever is done");
        assert!(!lines.is_due(after(6.2), 99, 1000), "not a tenth");
        assert!(lines.is_due(after(6.2), 250, 1000));
        assert!(!lines.is_due(after(10.1), 900, 1000), "too soon after the one before");
        assert!(!lines.is_due(after(20.0), 299, 1000), "the same tenth");
        assert!(lines.is_due(after(20.0), 300, 1000));
        assert!(!lines.is_due(after(49.0), 301, 1000) && lines.is_due(after(50.1), 301, 1000), "long silent");
    }

    #[test]
    fn lines_have_the_words_of_the_bar() {
        let numbers = [("pos", 3), ("len", 10)];
        assert_eq!(in_words("{pos}/{len} seeds · {per_sec}", &numbers, ""), "3/10 seeds");
        assert_eq!(in_words("{human_pos}/{human_len} puts", &numbers, ""), "3/10 puts");
        assert_eq!(in_words("{pos}/{len} {msg}", &numbers, "jobs"), "3/10 jobs");
    }

    #[test]
    fn a_bar_is_cleared_from_anywhere() {
        let bar = bar(3, "{pos}/{len}");
        clear();
        assert!(bar.is_finished());
    }
}
