//! Taking the time of ours and of a limit's, in turn.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::case::Samples;

/// Time that a case's samples take, about.
const MEASURE: Duration = Duration::from_millis(1200);
/// Time that one batch of operations takes, about.
const BATCH: Duration = Duration::from_micros(300);
/// The longest batch: percentiles below a microsecond are over means of so many.
const BATCH_MAX: u32 = 1024;
const SAMPLES: usize = 2000;
const SAMPLES_MIN: usize = 15;

/// Rounds of measurements that both sides take part in: they must agree on the number.
pub(super) const ROUNDS: usize = 200;
pub(super) const TURNS: u32 = 500;
pub(super) const SLOW_TURNS: u32 = 50;

/// Takes the time of `times` calls.
pub(super) fn timed<E: Into<anyhow::Error>>(
    times: u32,
    mut call: impl FnMut(u32) -> Result<(), E>,
) -> Result<Duration> {
    let start = Instant::now();
    for i in 0..times {
        call(i).map_err(Into::into)?;
    }
    Ok(start.elapsed())
}

/// Measures ours and the limit in turn, batch by batch.
pub(super) fn interleave(
    limit_name: &str,
    mut ours: impl FnMut(u32) -> Result<Duration>,
    mut limit: impl FnMut(u32) -> Result<Duration>,
) -> Result<Samples> {
    ours(1)?;
    limit(1)?;
    let once = (ours(2)? / 2).max(Duration::from_nanos(1));
    let batch = (BATCH.as_nanos() / once.as_nanos()).clamp(1, u128::from(BATCH_MAX)) as u32;
    let per_sample = (once * batch * 2).as_nanos().max(1);
    let samples = ((MEASURE.as_nanos() / per_sample) as usize).clamp(SAMPLES_MIN, SAMPLES);
    let (mut mine, mut bare) = (Vec::with_capacity(samples), Vec::with_capacity(samples));
    // One unmeasured round warms caches and branches for both alike.
    for round in 0..=samples {
        let pair = (each(ours(batch)?, batch), each(limit(batch)?, batch));
        if round > 0 {
            mine.push(pair.0);
            bare.push(pair.1);
        }
    }
    Ok(Samples::new(limit_name, batch, mine, bare))
}

/// Nanoseconds for one of `times`, to a hundredth: no clock here tells more, and all samples together must
/// fit a line.
pub(super) fn each(time: Duration, times: u32) -> f64 {
    (100.0 * time.as_nanos() as f64 / f64::from(times)).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_lines;

    #[test]
    fn the_most_samples_fit_a_line_that_the_launcher_does_not_cut() {
        const LINE_BYTES_MAX: usize = 64 << 10;
        let longest = each(Duration::from_nanos(299_999_999), 1001);
        assert_eq!(longest, 299_700.3);
        let longest = vec![longest + 0.01; SAMPLES];
        let samples = Samples::new("the limit of this machine", BATCH_MAX, longest.clone(), longest);
        assert!(json_lines::encode(&samples).len() < LINE_BYTES_MAX);
    }
}
