//! Which cores of this host are near each other, and which are far apart.

use std::fs;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use standpipe::host;

/// Where two processes run that pass cache lines to each other, each bound to a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// On two cores that share a cache
    Near,
    /// On two cores that share none
    Far,
}

impl Placement {
    /// Both.
    pub const ALL: [Placement; 2] = [Placement::Near, Placement::Far];

    /// Its name, in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Placement::Near => "near",
            Placement::Far => "far",
        }
    }

    /// Two such cores that this process may run on.
    pub fn pair(self) -> Option<[usize; 2]> {
        pair_among(self, &host::core_numbers(), caches_of)
    }

    /// That this host has none.
    pub const fn missing(self) -> &'static str {
        match self {
            Placement::Near => "No two cores here share a cache: nothing was measured between near ones.",
            Placement::Far => "All cores here share a cache: nothing was measured between far ones.",
        }
    }
}

/// The first pair of cores that is placed so; of near ones not two threads of one core, if there are others.
fn pair_among(placement: Placement, cores: &[usize], caches: impl Fn(usize) -> Caches) -> Option<[usize; 2]> {
    let pairs = || {
        let from = |(at, one): (usize, &usize)| {
            let one = *one;
            cores[at + 1..].iter().map(move |other| [one, *other])
        };
        cores.iter().enumerate().flat_map(from)
    };
    let near = |[one, other]: &[usize; 2]| caches(*one).all.contains(other);
    let twins = |[one, other]: &[usize; 2]| caches(*one).threads.contains(other);
    match placement {
        Placement::Near => {
            pairs().find(|pair| near(pair) && !twins(pair)).or_else(|| pairs().find(|pair| near(pair)))
        }
        Placement::Far => pairs().find(|pair| !near(pair)),
    }
}

/// Which cores share what with one.
#[derive(Clone, Debug, Default)]
struct Caches {
    /// The threads of the same core.
    threads: Vec<usize>,
    /// All that share some cache with it.
    all: Vec<usize>,
}

/// As the system tells. Where it tells no caches, all of a package count as near.
fn caches_of(core: usize) -> Caches {
    let folder = format!("/sys/devices/system/cpu/cpu{core}");
    let list = |path: String| fs::read_to_string(path).ok().map(|text| numbers(&text));
    let shared = |index: usize| list(format!("{folder}/cache/index{index}/shared_cpu_list"));
    let caches: Vec<usize> = (0..8).filter_map(shared).flatten().collect();
    let all = if caches.is_empty() {
        list(format!("{folder}/topology/core_siblings_list")).unwrap_or_default()
    } else {
        caches
    };
    Caches { threads: list(format!("{folder}/topology/thread_siblings_list")).unwrap_or_default(), all }
}

/// The numbers of a list as the system writes it: `0-3,8`.
fn numbers(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two packages of two cores of two threads each.
    fn caches(core: usize) -> Caches {
        let threads = vec![core & !1, core | 1];
        Caches { threads, all: (core & !3..=core | 3).collect() }
    }

    #[test]
    fn near_cores_are_two_and_far_ones_share_nothing() {
        let pair = |placement, cores: &[usize]| pair_among(placement, cores, caches);
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(pair(Placement::Near, &all), Some([0, 2]), "no twins, as there are others");
        assert_eq!(pair(Placement::Far, &all), Some([0, 4]));
        assert_eq!(pair(Placement::Near, &[0, 1]), Some([0, 1]), "twins, as there are no others");
        assert_eq!(pair(Placement::Far, &[0, 1, 2]), None);
        assert_eq!(pair(Placement::Near, &[3]), None);
    }

    #[test]
    fn lists_are_read_as_the_system_writes_them() {
        assert_eq!(numbers("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!((numbers(""), numbers("x-2")), (vec![], vec![]));
    }
}
