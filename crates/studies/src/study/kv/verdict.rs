//! Whether pulling is worth it, in a sentence that this run's own figures choose.

use serde::Serialize;

use super::worth::WithoutPulling;
use measure::machine::Load;
use measure::units::grouped;

/// The least share of the time that counts as a difference between the passes.
const DIFFERENT: f64 = 0.02;
/// How far passes of the same kind may lie apart before two kinds that differ by less tell nothing.
const NOISY: f64 = 0.05;

/// The answer; `--json` prints its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WorthIt {
    Yes,
    No,
    /// The machine was busy, or too little was measured.
    Unknown,
}

/// The answer and its reasons; `--json` prints them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Verdict {
    /// The answer.
    pub worth_it: WorthIt,
    /// The answer as a sentence, with the figures that chose it.
    pub answer: String,
    /// What pulling spared and what it cost in these passes; empty where none were made.
    pub reason: String,
}

impl Verdict {
    /// From the passes with pulling and without, the processor time that making a block takes, and how busy
    /// the machine was when the run began.
    #[must_use]
    pub(crate) fn of(passes: Option<&WithoutPulling>, make_us: f64, load: Option<Load>) -> Verdict {
        let Some(passes) = passes else {
            let answer = "This run cannot tell: the requests were too few to serve some of them again without \
                          pulling, or a worker was lost.";
            return Verdict { worth_it: WorthIt::Unknown, answer: answer.to_owned(), reason: String::new() };
        };
        let (worth_it, answer) = answer(passes, load);
        Verdict { worth_it, answer, reason: reason(passes, make_us) }
    }

    /// All of it.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        [self.answer.as_str(), &self.reason].join(" ").trim_end().to_owned()
    }
}

fn answer(passes: &WithoutPulling, load: Option<Load>) -> (WorthIt, String) {
    let longer = passes.longer();
    let took = format!(
        "the first {} requests took {:.2} s with pulling and {:.2} s without",
        grouped(passes.requests),
        passes.seconds_pulling,
        passes.seconds
    );
    let differ = longer.abs() >= DIFFERENT && longer.abs() > passes.spread;
    let percent = |share: f64| format!("{:.0} %", 100.0 * share.abs());
    if let Some(load) = load.filter(|load| load.is_busy()) {
        let load =
            format!("other programs kept the machine busy ({:.1} on {} cores)", load.average, load.cores);
        return (WorthIt::Unknown, format!("This run cannot tell: {load}, and {took}."));
    }
    if !differ && passes.spread > NOISY {
        let apart = percent(passes.spread);
        let noise =
            format!("other work disturbed it, as passes of the same kind differed by {apart}; {took}");
        return (WorthIt::Unknown, format!("This run cannot tell: {noise}."));
    }
    match (differ, longer < 0.0) {
        (false, _) => (WorthIt::No, format!("Not on this machine with this trace: {took}, no difference.")),
        (true, false) => {
            (WorthIt::No, format!("Not on this machine with this trace: {took}, {} more.", percent(longer)))
        }
        (true, true) => (WorthIt::Yes, format!("Worth it: {took}, {} less.", percent(longer))),
    }
}

/// What pulling spared, and what it cost.
fn reason(passes: &WithoutPulling, make_us: f64) -> String {
    let pulls = grouped(passes.pulls);
    let took = format!("{:.2} s of processor time", passes.pull_processor_seconds);
    match passes.made.saturating_sub(passes.made_pulling) {
        0 => format!("Pulling spared no block from being made, and {pulls} pulls took {took}."),
        spared => format!(
            "Pulling spared {} of {} blocks from being made, which takes {:.2} s; the {pulls} pulls took {took}.",
            grouped(spared),
            grouped(passes.made),
            spared as f64 * make_us / 1e6,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::kv::worth::Pass;

    fn passes(pulling: [f64; 2], without: [f64; 2]) -> WithoutPulling {
        let pass = |pulling, seconds| {
            let (made, pulls) = if pulling { (60, 30) } else { (90, 0) };
            Pass { pulling, seconds, made, pulls, pull_processor_seconds: 0.25 }
        };
        let [first, second] = pulling.map(|seconds| pass(true, seconds));
        let [before, after] = without.map(|seconds| pass(false, seconds));
        WithoutPulling::of(1250, vec![before, first, second, after]).expect("both kinds")
    }

    fn judged(pulling: [f64; 2], without: [f64; 2], load: f64) -> Verdict {
        Verdict::of(Some(&passes(pulling, without)), 3000.0, Some(Load { average: load, cores: 2 }))
    }

    #[test]
    fn the_runs_own_figures_choose_the_answer() {
        for (pulling, without, load, worth_it, part) in [
            ([2.0, 2.02], [3.0, 3.02], 0.1, WorthIt::Yes, "Worth it: the first 1,250 requests took 2.01 s"),
            ([3.0, 3.02], [2.0, 2.02], 0.1, WorthIt::No, "50 % more"),
            ([2.0, 2.02], [2.0, 2.03], 0.1, WorthIt::No, "no difference"),
            (
                [2.0, 2.4],
                [2.0, 2.1],
                0.1,
                WorthIt::Unknown,
                "disturbed it, as passes of the same kind differed by 20 %; the first",
            ),
            ([2.0, 2.02], [3.0, 3.02], 2.7, WorthIt::Unknown, "busy (2.7 on 2 cores)"),
            ([2.0, 2.3], [4.0, 4.5], 0.1, WorthIt::Yes, "49 % less"),
        ] {
            let verdict = judged(pulling, without, load);
            assert_eq!(verdict.worth_it, worth_it, "{verdict:?}");
            assert!(verdict.answer.contains(part), "{verdict:?}");
            assert!(
                verdict.text().contains("spared 30 of 90 blocks from being made, which takes 0.09 s")
                    && verdict.text().ends_with('.')
            );
        }
    }

    #[test]
    fn without_passes_it_cannot_tell() {
        let verdict = Verdict::of(None, 3000.0, None);
        assert_eq!((verdict.worth_it, verdict.reason.as_str()), (WorthIt::Unknown, ""));
        assert!(verdict.text().starts_with("This run cannot tell: the requests were too few"));
    }

    #[test]
    fn the_load_is_no_reason_where_the_system_does_not_tell_it() {
        let verdict = Verdict::of(Some(&passes([2.0, 2.0], [3.0, 3.0])), 3000.0, None);
        assert_eq!(verdict.worth_it, WorthIt::Yes);
    }
}
