//! The times of one contestant.

/// Each contestant runs so often, in turns; the median counts.
pub(super) const TURNS: usize = 5;

/// One contestant's times at one work.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Figures {
    /// Nanoseconds, one a turn.
    Taken(Vec<f64>),
    /// It could not be measured, because of this.
    Skipped(String),
}

impl Figures {
    /// The median, the least and the most.
    pub(super) fn spread(&self) -> Option<[f64; 3]> {
        let Figures::Taken(taken) = self else { return None };
        let mut sorted = taken.clone();
        sorted.sort_by(f64::total_cmp);
        Some([*sorted.get(sorted.len() / 2)?, *sorted.first()?, *sorted.last()?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_one_counts() {
        let taken = Figures::Taken(vec![5.0, 1.0, 9.0, 4.0, 6.0]);
        assert_eq!(taken.spread(), Some([5.0, 1.0, 9.0]));
        assert_eq!(Figures::Taken(vec![]).spread(), None);
        assert_eq!(Figures::Skipped("no compiler".into()).spread(), None);
    }
}
