//! Counts that may not grow.
//!
//! Where a rule is broken in many places, each place has its count in `crates/house/ceilings.txt`. A count
//! above that fails. One below it fails, too, so that the file stays true and nothing that was won is lost.
//! `STANDPIPE_HOUSE_CEILINGS=write` writes the file anew from what is counted.

use crate::finding::Finding;
use crate::workspace::root;
use std::collections::{BTreeMap, BTreeSet};

/// Where ceilings stand, from the workspace's root: under each `[rule]`, lines of a number and what has it.
const PATH: &str = "crates/house/ceilings.txt";

const HEAD: &str =
    "# Counts that may not grow. STANDPIPE_HOUSE_CEILINGS=write cargo test -p standpipe-house writes them.\n";

/// What one thing has of what a rule does not want.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    /// What is counted: a struct, a type, a file.
    pub(crate) of: String,
    /// How much it has; never 0.
    pub(crate) number: usize,
    /// Where.
    pub(crate) places: Vec<Finding>,
}

/// Numbers by rule and by what is counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ceilings(BTreeMap<String, BTreeMap<String, usize>>);

impl Ceilings {
    /// Those of the file, which is written from `counted` first where the environment wants that.
    pub(crate) fn load<'a>(counted: impl Iterator<Item = (&'a str, &'a [Count])>) -> Ceilings {
        let path = root().join(PATH);
        if std::env::var("STANDPIPE_HOUSE_CEILINGS").is_ok_and(|wish| wish == "write") {
            let text = Ceilings::of(counted).text();
            std::fs::write(&path, text).expect("the sources can be written where ceilings are to be");
        }
        Ceilings::parse(&std::fs::read_to_string(&path).unwrap_or_default())
    }

    fn of<'a>(counted: impl Iterator<Item = (&'a str, &'a [Count])>) -> Ceilings {
        let numbers =
            |counts: &[Count]| counts.iter().map(|count| (count.of.clone(), count.number)).collect();
        Ceilings(counted.map(|(rule, counts)| (rule.to_owned(), numbers(counts))).collect())
    }

    fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (rule, numbers) in &self.0 {
            text += &format!("\n[{rule}]\n");
            text.extend(numbers.iter().map(|(of, number)| format!("{number} {of}\n")));
        }
        text
    }

    fn parse(text: &str) -> Ceilings {
        let mut ceilings = Ceilings::default();
        let mut rule = String::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                rule = name.to_owned();
                ceilings.0.entry(rule.clone()).or_default();
            } else if let Some((number, of)) = line.split_once(' ')
                && let Ok(number) = number.parse()
            {
                ceilings.0.entry(rule.clone()).or_default().insert(of.to_owned(), number);
            }
        }
        ceilings
    }

    /// The places of what is above its ceiling, and the ceilings that are too high.
    pub(crate) fn compare(&self, rule: &str, counts: &[Count]) -> Vec<Finding> {
        let none = BTreeMap::new();
        let held = self.0.get(rule).unwrap_or(&none);
        let ceiling = |count: &Count| held.get(&count.of).copied().unwrap_or(0);
        let mut findings = Vec::new();
        for count in counts.iter().filter(|count| count.number > ceiling(count)) {
            findings.extend(count.places.iter().cloned().map(|mut place| {
                place.what += &format!(" ({}: {}, ceiling {})", count.of, count.number, ceiling(count));
                place
            }));
        }
        let counted: BTreeMap<&str, usize> =
            counts.iter().map(|count| (count.of.as_str(), count.number)).collect();
        for (of, held) in held {
            let now = counted.get(of.as_str()).copied().unwrap_or(0);
            if now < *held {
                let what = format!("{rule} of {of} have fallen from {held} to {now}");
                let remedy = "write them anew: STANDPIPE_HOUSE_CEILINGS=write cargo test -p standpipe-house";
                findings.push(Finding::new(PATH, 0, what, remedy));
            }
        }
        findings
    }
}

/// One count for each thing, however often targets share it.
pub(crate) fn once(counts: Vec<Count>) -> Vec<Count> {
    let mut seen = BTreeSet::new();
    counts.into_iter().filter(|count| seen.insert(count.of.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(of: &str, number: usize) -> Count {
        let place = Finding::new("a.rs", 3, "too many", "take some away");
        Count { of: of.into(), number, places: vec![place] }
    }

    fn compared(text: &str, counts: &[Count]) -> Vec<String> {
        Ceilings::parse(text).compare("fields", counts).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_count_at_its_ceiling_is_fine() {
        assert_eq!(compared("[fields]\n7 a.rs A\n", &[count("a.rs A", 7)]), [""; 0]);
        assert_eq!(compared("", &[]), [""; 0]);
    }

    #[test]
    fn a_count_above_its_ceiling_or_without_one_is_found() {
        let more = compared("[fields]\n7 a.rs A\n", &[count("a.rs A", 8)]);
        assert_eq!(more, ["a.rs:3: too many (a.rs A: 8, ceiling 7); take some away"]);
        assert_eq!(compared("[other]\n7 a.rs A\n", &[count("a.rs A", 7)]).len(), 1);
    }

    #[test]
    fn a_ceiling_above_its_count_is_found() {
        let fallen = compared("[fields]\n7 a.rs A\n", &[count("a.rs A", 6)]);
        assert!(fallen[0].contains("a.rs A have fallen from 7 to 6; write them anew"), "{fallen:?}");
        assert_eq!(compared("[fields]\n7 a.rs A\n", &[]).len(), 1);
    }

    #[test]
    fn what_is_written_is_read() {
        let counts = [count("a.rs A", 7), count("b.rs B", 8)];
        let ceilings = Ceilings::of([("fields", &counts[..]), ("prose", &[])].into_iter());
        assert_eq!(Ceilings::parse(&ceilings.text()), ceilings);
        assert_eq!(once([&counts[..], &counts[..]].concat()).len(), 2);
    }
}
