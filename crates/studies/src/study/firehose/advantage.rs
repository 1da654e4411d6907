//! By how much firehose is ahead of what never unpins, at each point of a figure, in numbers and in words.

use sim::experiments::{Curve, Shape};

/// By how much a line is ahead of another, in percent of the other, at each value along the bottom: so much
/// more bandwidth, or so much less time.
pub(super) type Percents = Vec<(f64, f64)>;

/// Lines that are no further apart are level.
const LEVEL_PERCENT: f64 = 1.0;

pub(super) fn percents(shape: Shape, line: &Curve, of: &Curve) -> Percents {
    let ahead = |(mine, other): (&(f64, f64), &(f64, f64))| {
        let more = 100.0 * (mine.1 / other.1 - 1.0);
        (mine.0, if shape.is_bandwidth() { more } else { -more })
    };
    line.points.iter().zip(&of.points).map(ahead).collect()
}

/// How many points are ahead, level and behind.
pub(super) fn count(percents: &[(f64, f64)]) -> [usize; 3] {
    let count = |is: fn(f64) -> bool| percents.iter().filter(|(_, percent)| is(*percent)).count();
    [
        count(|percent| percent >= LEVEL_PERCENT),
        count(|percent| percent.abs() < LEVEL_PERCENT),
        count(|percent| percent <= -LEVEL_PERCENT),
    ]
}

/// What a figure shows of it: `ahead by 3.2 to 61.0 % at 15 of 17 points, level within 1 % at 2`.
pub(super) fn words(percents: &[(f64, f64)]) -> String {
    let [ahead, level, behind] = count(percents);
    let range = |sign: f64| {
        let far = percents.iter().map(|(_, percent)| sign * percent).filter(|far| *far >= LEVEL_PERCENT);
        let (least, most) =
            far.fold((f64::MAX, 0.0f64), |(least, most), far| (least.min(far), most.max(far)));
        if most - least < 0.05 { format!("{most:.1} %") } else { format!("{least:.1} to {most:.1} %") }
    };
    let mut parts = Vec::new();
    if ahead > 0 {
        parts.push(format!("ahead by {} at {ahead}", range(1.0)));
    }
    if level > 0 {
        parts.push(format!("level within {LEVEL_PERCENT} % at {level}"));
    }
    if behind > 0 {
        parts.push(format!("BEHIND by {} at {behind}", range(-1.0)));
    }
    format!("{} of {} points", parts.join(", "), percents.len())
}

#[cfg(test)]
mod tests {
    use sim::experiments::Strategy;

    use super::*;

    #[test]
    fn what_looks_equal_is_level_and_less_time_is_ahead() {
        let curve = |values: [f64; 4]| {
            let points = (1..).zip(values).map(|(x, y)| (f64::from(x), y)).collect();
            Curve { strategy: Strategy::Firehose, points }
        };
        let (mine, other) = (curve([110.0, 100.4, 50.0, 150.0]), curve([100.0; 4]));
        let bandwidth = percents(Shape::BandwidthBySize, &mine, &other);
        assert_eq!(count(&bandwidth), [2, 1, 1]);
        assert_eq!(
            words(&bandwidth),
            "ahead by 10.0 to 50.0 % at 2, level within 1 % at 1, BEHIND by 50.0 % at 1 of 4 points"
        );
        let time = percents(Shape::RoundTripByWorkingSet, &mine, &other);
        assert_eq!((count(&time), time[2].1), ([1, 1, 2], 50.0));
        assert_eq!(words(&time[2..3]), "ahead by 50.0 % at 1 of 1 points");
    }
}
