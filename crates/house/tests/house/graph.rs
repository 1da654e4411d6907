//! What needs what, and where that leads back to its start.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// By what needs, then by what is needed: the line where, and the name by which.
pub(crate) type Uses = BTreeMap<usize, BTreeMap<usize, (usize, String)>>;

/// Whether `from` itself needs `to`.
pub(crate) fn directly(uses: &Uses, from: usize, to: usize) -> bool {
    uses.get(&from).is_some_and(|used| used.contains_key(&to))
}

/// The shortest chain of uses from `start` back to it, `start` at both ends.
pub(crate) fn shortest_cycle(uses: &Uses, start: usize) -> Option<Vec<usize>> {
    let mut queue = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(chain) = queue.pop_front() {
        let last = *chain.last().expect("chains start with one node and only grow");
        for &next in uses.get(&last).into_iter().flat_map(BTreeMap::keys) {
            let longer = [chain.as_slice(), &[next]].concat();
            if next == start {
                return Some(longer);
            }
            if seen.insert(next) {
                queue.push_back(longer);
            }
        }
    }
    None
}

/// All on any cycle through `start`: those it reaches that reach it.
pub(crate) fn knot(uses: &Uses, start: usize) -> BTreeSet<usize> {
    let back = |from: &usize| reached(uses, *from).contains(&start);
    reached(uses, start).into_iter().filter(back).collect()
}

fn reached(uses: &Uses, from: usize) -> BTreeSet<usize> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(node) = open.pop() {
        let next = uses.get(&node).into_iter().flat_map(BTreeMap::keys);
        open.extend(next.filter(|next| found.insert(**next)));
    }
    found
}
