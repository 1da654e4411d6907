//! The values of a counter that end a wait.

use std::fmt;

/// The values of a counter that end a wait for signals. A number alone is made [`Until::Ge`] of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Until<T = u64> {
    /// That number.
    Eq(T),
    /// Any but that number.
    Ne(T),
    /// Less.
    Lt(T),
    /// That number, or less.
    Le(T),
    /// More.
    Gt(T),
    /// That number, or more.
    Ge(T),
}

impl<T> Until<T> {
    /// Whether a counter of that value will do.
    #[inline]
    pub fn is_met_by(self, counter: T) -> bool
    where
        T: Ord,
    {
        match self {
            Until::Eq(value) => counter == value,
            Until::Ne(value) => counter != value,
            Until::Lt(value) => counter < value,
            Until::Le(value) => counter <= value,
            Until::Gt(value) => counter > value,
            Until::Ge(value) => counter >= value,
        }
    }

    /// The same of another type of number.
    pub(crate) fn map<U>(self, of: impl FnOnce(T) -> U) -> Until<U> {
        match self {
            Until::Eq(value) => Until::Eq(of(value)),
            Until::Ne(value) => Until::Ne(of(value)),
            Until::Lt(value) => Until::Lt(of(value)),
            Until::Le(value) => Until::Le(of(value)),
            Until::Gt(value) => Until::Gt(of(value)),
            Until::Ge(value) => Until::Ge(of(value)),
        }
    }
}

impl<T> From<T> for Until<T> {
    fn from(at_least: T) -> Until<T> {
        Until::Ge(at_least)
    }
}

impl<T: fmt::Display> fmt::Display for Until<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Until::Eq(value) => write!(f, "{value}"),
            Until::Ne(value) => write!(f, "anything but {value}"),
            Until::Lt(value) => write!(f, "less than {value}"),
            Until::Le(value) => write!(f, "{value} or less"),
            Until::Gt(value) => write!(f, "more than {value}"),
            Until::Ge(value) => write!(f, "{value} or more"),
        }
    }
}

/// A counter that was not what a wait waited for when its time had passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmetSignal {
    /// Where the counter lies in this process's heap.
    pub offset: u64,
    /// The values that were waited for.
    pub until: Until<i128>,
    /// The counter's last value.
    pub seen: i128,
}

impl fmt::Display for UnmetSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnmetSignal { offset, until, seen } = self;
        write!(f, "the counter at heap offset {offset:#x} was {seen}, and {until} was waited for")
    }
}

/// Counters that an error's text names, at most.
const NAMED_MAX: usize = 3;

/// Those counters in words.
pub(crate) fn in_words(unmet: &[UnmetSignal]) -> String {
    let named: Vec<String> = unmet.iter().take(NAMED_MAX).map(UnmetSignal::to_string).collect();
    let more = unmet.len().saturating_sub(NAMED_MAX);
    let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
    named.join("; ") + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comparison_is_met_by_what_its_name_says() {
        let met = |until: Until<i32>| [-6, -5, -4].map(|counter| until.is_met_by(counter));
        assert_eq!(met(Until::Eq(-5)), [false, true, false]);
        assert_eq!(met(Until::Ne(-5)), [true, false, true]);
        assert_eq!(met(Until::Lt(-5)), [true, false, false]);
        assert_eq!(met(Until::Le(-5)), [true, true, false]);
        assert_eq!(met(Until::Gt(-5)), [false, false, true]);
        assert_eq!(met(Until::Ge(-5)), [false, true, true]);
        assert_eq!(Until::from(-5), Until::Ge(-5));
        assert!(Until::Gt(1 << 63).is_met_by(u64::MAX) && !Until::Gt(u64::MAX).is_met_by(u64::MAX));
    }

    #[test]
    fn many_counters_are_told_in_few_words() {
        let unmet = |n| UnmetSignal { offset: n, until: Until::Ne(7), seen: 7 };
        let words = in_words(&[unmet(16)]);
        assert_eq!(words, "the counter at heap offset 0x10 was 7, and anything but 7 was waited for");
        let all: Vec<UnmetSignal> = (0..5).map(unmet).collect();
        assert!(in_words(&all[..3]).ends_with("waited for") && in_words(&all).ends_with("; and 2 more"));
    }
}
