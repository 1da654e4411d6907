//! What a killed worker cost, and what one that joined brought: the phases of a replay, for people.

use super::outcome::{Outcome, Phase};
use measure::report::page::Grid;
use measure::units::{grouped, micros};

/// The phases, and what changed from one to the next; `None` where no worker was killed.
#[must_use]
pub(crate) fn grid(outcome: &Outcome) -> Option<Grid> {
    outcome.phases.first()?;
    let pulls = |phase: &Phase, text: String| if phase.pulls == 0 { "no pulls".to_owned() } else { text };
    let cells = |phase: &Phase| {
        vec![
            in_words(phase.name).to_owned(),
            format!("{:.2} s", phase.seconds),
            grouped(phase.requests),
            format!("{:.1}", phase.requests_per_second),
            grouped(phase.pulls),
            pulls(phase, micros(phase.pull_p50_us)),
            pulls(phase, micros(phase.pull_p99_us)),
            format!("{:.1} %", 100.0 * phase.hit_rate),
        ]
    };
    let header =
        ["phase", "duration", "requests", "a second", "pulls", "pull, median", "99th percentile", "held"];
    Some(Grid {
        title: "A worker is killed, another joins".to_owned(),
        note: [cost(&outcome.phases), unserved(outcome)].concat(),
        header: header.map(str::to_owned).to_vec(),
        rows: outcome.phases.iter().map(cells).collect(),
    })
}

fn in_words(name: &str) -> &str {
    match name {
        "all" => "all workers",
        "one killed" => "after one was killed",
        "one joined" => "after another joined",
        other => other,
    }
}

/// Pulls of a phase below which its median says little.
const FEW_PULLS: u64 = 200;

/// The median pull of each phase, in a sentence.
fn cost(phases: &[Phase]) -> String {
    let pulled = phases.iter().filter(|phase| phase.pulls > 0);
    let said: Vec<String> = pulled
        .map(|phase| format!("{} {}", micros(phase.pull_p50_us), in_the_sentence(phase.name)))
        .collect();
    if said.is_empty() {
        return String::new();
    }
    let few = match phases.iter().map(|phase| phase.pulls).min() {
        Some(least) if least < FEW_PULLS => " Some phases had too few pulls to compare them by that.",
        _ => "",
    };
    format!("The median pull took {}.{few} ", said.join(", "))
}

fn in_the_sentence(name: &str) -> &str {
    if name == "all" { "before" } else { in_words(name) }
}

/// What became of the requests.
fn unserved(outcome: &Outcome) -> String {
    match outcome.unserved() {
        0 => "Every request was served: the others took what the killed worker would have.".to_owned(),
        1 => "One request was not served, which the killed worker had taken; the others served the rest."
            .to_owned(),
        more => format!("{} requests were not served.", grouped(more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::kv::outcome::Record;
    use crate::study::kv::worker_lines::{Pull, Tick};

    fn tick(at_ms: u64, took_ns: u64) -> Tick {
        let pull = Pull { owner: 0, took_ns, processor_ns: 1, bytes: 8, computing: false };
        Tick { at_ms, requests: 1, made: 1, pinned_peak_bytes: 9, pulls: vec![pull], ..Tick::default() }
    }

    fn record() -> Record {
        let mut record = Record::new(3);
        record.ticks[0] = vec![tick(10, 1000), tick(150, 3000), tick(250, 2000)];
        record.ticks[2] = vec![tick(200, 2000)];
        (record.killed_ms, record.joined_ms, record.wanted) = (Some(100), Some(200), 5);
        record
    }

    #[test]
    fn each_tick_is_of_the_phase_in_which_it_was_told() {
        let outcome = Outcome::of(&record());
        let phases: Vec<(&str, u64, f64)> =
            outcome.phases.iter().map(|phase| (phase.name, phase.requests, phase.pull_p50_us)).collect();
        assert_eq!(phases, [("all", 1, 1.0), ("one killed", 1, 3.0), ("one joined", 2, 2.0)]);
        assert_eq!((outcome.workers_joined, outcome.peak_pinned_bytes), (1, 18));
        assert_eq!((outcome.phases[0].seconds, outcome.phases[0].requests_per_second), (0.1, 10.0));
    }

    #[test]
    fn the_cost_is_said_in_words() {
        let grid = grid(&Outcome::of(&record())).expect("a worker was killed");
        let begins = "The median pull took 1.0 µs before, 3.0 µs after one was killed, 2.0 µs after another joined. Some";
        assert!(grid.note.starts_with(begins), "{}", grid.note);
        assert!(grid.note.ends_with("the others served the rest."), "{}", grid.note);
        let never = Record { joined_ms: None, ..record() };
        assert_eq!(Outcome::of(&never).phases.len(), 2);
        assert!(super::grid(&Outcome::of(&Record::new(1))).is_none());
    }
}
