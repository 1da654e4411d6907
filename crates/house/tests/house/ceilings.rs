//! Counts that may not grow.
//!
//! Where a rule is broken in many places, each place has its count in `crates/house/ceilings.txt`. A count
//! above that fails. One below it fails, too, so that the file stays true and nothing that was won is lost.
//! `STANDPIPE_HOUSE_CEILINGS=write` writes the file anew from what is counted, and raises no number: that is
//! done by hand, in a commit that says why. A file that was only renamed keeps its number.

use crate::finding::Finding;
use crate::workspace::root;
use std::collections::{BTreeMap, BTreeSet};

/// Where ceilings stand, from the workspace's root: under each `[rule]`, lines of a number and what has it.
const PATH: &str = "crates/house/ceilings.txt";

const HEAD: &str =
    "# Counts that may not grow. STANDPIPE_HOUSE_CEILINGS=write cargo test -p standpipe-house lowers them.\n";

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
            let held = Ceilings::parse(&std::fs::read_to_string(&path).unwrap_or_default());
            std::fs::write(&path, held.lowered_to(Ceilings::of(counted)).text())
                .expect("the sources can be written where ceilings are to be");
        }
        Ceilings::parse(&std::fs::read_to_string(&path).unwrap_or_default())
    }

    fn of<'a>(counted: impl Iterator<Item = (&'a str, &'a [Count])>) -> Ceilings {
        let numbers =
            |counts: &[Count]| counts.iter().map(|count| (count.of.clone(), count.number)).collect();
        Ceilings(counted.map(|(rule, counts)| (rule.to_owned(), numbers(counts))).collect())
    }

    /// The numbers that are counted, none of them above what it was. A rule that is new takes what it finds.
    fn lowered_to(&self, counted: Ceilings) -> Ceilings {
        let lowered = |(rule, numbers): (String, BTreeMap<String, usize>)| {
            let numbers = match self.0.get(&rule) {
                Some(held) => lowered(held, numbers),
                None => numbers,
            };
            (rule, numbers)
        };
        Ceilings(counted.0.into_iter().map(lowered).collect())
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
            let (of, ceiling) = (&count.of, ceiling(count));
            let what = format!("{rule} of {of} would rise from {ceiling} to {}", count.number);
            let remedy = "make them fewer, or raise the number by hand in a commit that says why";
            findings.push(Finding::new(PATH, 0, what, remedy));
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

/// The numbers of one rule, none above its ceiling. One that has no ceiling takes that of another which is
/// gone and had as much: it was renamed.
fn lowered(held: &BTreeMap<String, usize>, numbers: BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let mut gone: Vec<usize> =
        held.iter().filter(|(of, _)| !numbers.contains_key(*of)).map(|(_, number)| *number).collect();
    gone.sort_unstable();
    let lowered = |(of, number): (String, usize)| {
        let ceiling = match held.get(&of) {
            Some(ceiling) => *ceiling,
            None => gone.remove(gone.iter().position(|ceiling| *ceiling >= number)?),
        };
        Some((of, number.min(ceiling)))
    };
    numbers.into_iter().filter_map(lowered).collect()
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
        assert_eq!(more[0], "a.rs:3: too many (a.rs A: 8, ceiling 7); take some away");
        assert!(more[1].contains("fields of a.rs A would rise from 7 to 8; make them fewer"), "{more:?}");
        assert_eq!(compared("[other]\n7 a.rs A\n", &[count("a.rs A", 7)]).len(), 2);
    }

    #[test]
    fn a_ceiling_above_its_count_is_found() {
        let fallen = compared("[fields]\n7 a.rs A\n", &[count("a.rs A", 6)]);
        assert!(fallen[0].contains("a.rs A have fallen from 7 to 6; write them anew"), "{fallen:?}");
        assert_eq!(compared("[fields]\n7 a.rs A\n", &[]).len(), 1);
    }

    fn written(held: &str, counts: &[Count]) -> String {
        let counted = Ceilings::of([("fields", counts)].into_iter());
        Ceilings::parse(held).lowered_to(counted).text().replace(HEAD, "").trim().replace('\n', "; ")
    }

    #[test]
    fn writing_lowers_and_raises_nothing() {
        let (seven, eight) = ([count("a.rs A", 7)], [count("a.rs A", 8)]);
        assert_eq!(written("[fields]\n8 a.rs A\n", &seven), "[fields]; 7 a.rs A");
        assert_eq!(written("[fields]\n7 a.rs A\n", &eight), "[fields]; 7 a.rs A");
        assert_eq!(written("[fields]\n", &seven), "[fields]");
        assert_eq!(written("[fields]\n7 a.rs A\n", &[]), "[fields]");
        assert_eq!(written("", &seven), "[fields]; 7 a.rs A", "the rule is new");
    }

    #[test]
    fn what_was_renamed_keeps_its_number() {
        let held = "[fields]\n7 a.rs A\n3 c.rs C\n";
        assert_eq!(written(held, &[count("b.rs A", 7), count("c.rs C", 3)]), "[fields]; 7 b.rs A; 3 c.rs C");
        assert_eq!(written(held, &[count("b.rs A", 6)]), "[fields]; 6 b.rs A");
        assert_eq!(written(held, &[count("b.rs A", 8)]), "[fields]");
        let two = [count("b.rs A", 7), count("d.rs A", 7)];
        assert_eq!(written(held, &two), "[fields]; 7 b.rs A", "each ceiling is taken once");
        assert_eq!(written(held, &[count("a.rs A", 7), count("b.rs A", 7)]), "[fields]; 7 a.rs A");
    }

    #[test]
    fn what_is_written_is_read() {
        let counts = [count("a.rs A", 7), count("b.rs B", 8)];
        let ceilings = Ceilings::of([("fields", &counts[..]), ("prose", &[])].into_iter());
        assert_eq!(Ceilings::parse(&ceilings.text()), ceilings);
        assert_eq!(once([&counts[..], &counts[..]].concat()).len(), 2);
    }
}
