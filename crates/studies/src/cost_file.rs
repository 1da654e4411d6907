//! Which file the costs that a study ran by are in.

use measure::report::show::{CostFile, MEASURED};
use sim::Costs;

/// One that is built in, or the one that is written beside the report where the costs were measured.
pub(crate) fn of(costs: &Costs) -> CostFile {
    let named = |name: &&str| Costs::named(name).is_some_and(|known| known.name == costs.name);
    let file = Costs::NAMES.into_iter().find(named).unwrap_or(MEASURED);
    CostFile { file, name: costs.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_named_by_their_file() {
        for name in Costs::NAMES {
            assert_eq!(of(&Costs::named(name).expect("built in")).file, name);
        }
    }
}
