//! What a thing takes once, and for each of many, from the times of several numbers of them.

/// A line `fixed + each · n`, neither of which is negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    /// What a thing takes once.
    pub(crate) fixed: f64,
    /// What it takes for each.
    pub(crate) each: f64,
}

impl Line {
    /// The line that misses the points `(n, time)` by the smallest shares of their times: a microsecond too
    /// much weighs as much at two as a millisecond at two thousand. There must be two different `n`, and
    /// times above zero.
    pub(crate) fn through(points: &[(f64, f64)]) -> Line {
        // Least squares of (fixed + each · n − time) / time.
        let sum = |term: fn(f64, f64) -> f64| points.iter().map(|(n, time)| term(*n, *time)).sum::<f64>();
        let (ones, ns) = (sum(|_, time| 1.0 / (time * time)), sum(|n, time| n / (time * time)));
        let squares = sum(|n, time| n * n / (time * time));
        let (times, products) = (sum(|_, time| 1.0 / time), sum(|n, time| n / time));
        let determinant = ones * squares - ns * ns;
        let fixed = (times * squares - ns * products) / determinant;
        let each = (ones * products - ns * times) / determinant;
        if fixed < 0.0 {
            Line { fixed: 0.0, each: products / squares }
        } else if each < 0.0 {
            Line { fixed: times / ones, each: 0.0 }
        } else {
            Line { fixed, each }
        }
    }

    /// By how much of its time it misses the point that it misses most.
    pub(super) fn worst_miss(&self, points: &[(f64, f64)]) -> f64 {
        let miss = |&(n, time): &(f64, f64)| ((self.fixed + self.each * n - time) / time).abs();
        points.iter().map(miss).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-6 * other.abs().max(1.0)
    }

    #[test]
    fn a_line_is_found_again() {
        let points = [1.0, 16.0, 256.0].map(|n| (n, 500.0 + 30.0 * n));
        let line = Line::through(&points);
        assert!(
            near(line.fixed, 500.0) && near(line.each, 30.0) && line.worst_miss(&points) < 1e-9,
            "{line:?}"
        );
    }

    #[test]
    fn neither_part_is_negative_and_a_bend_is_told() {
        let steep = [(1.0, 10.0), (16.0, 400.0), (256.0, 9_000.0)];
        let line = Line::through(&steep);
        assert!(line.fixed == 0.0 && line.each > 0.0 && line.worst_miss(&steep) > 0.1, "{line:?}");
        let falling = [(1.0, 100.0), (16.0, 50.0)];
        let line = Line::through(&falling);
        assert!(line.each == 0.0 && (50.0..100.0).contains(&line.fixed), "{line:?}");
    }
}
