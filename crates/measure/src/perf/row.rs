//! What a measurement came to, and how it stands to its bound.

use serde::{Deserialize, Serialize};

use super::case::{Case, Cores, Memory, Op, Samples, Target};
use super::flow::{Flow, Ways};
use super::placement::Placement;

/// How a row stands to its bound: the better, the less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The row's ratio is within the bound, and so is that of at least half of the jobs.
    Holds,
    /// Either the row's ratio is within the bound, or at least half of the jobs are, but not both.
    Unsteady,
    /// Neither is.
    Broken,
}

impl Verdict {
    /// Of a row's ratio, and of as many jobs' own.
    fn of(ratio: f64, holding: usize, jobs: usize, bound: f64) -> Verdict {
        match (ratio <= bound, 2 * holding >= jobs) {
            (true, true) => Verdict::Holds,
            (false, false) => Verdict::Broken,
            _ => Verdict::Unsteady,
        }
    }
}

/// Bytes that one grant of a list takes, at most.
const BYTES_EACH_MAX: f64 = 160.0;

/// What a measurement came to: one line of `perf`'s table, and one object of its JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The operation.
    pub op: String,
    /// Bytes of one piece.
    pub size: usize,
    /// Pieces, or processes.
    pub n: usize,
    /// The memory at the target.
    pub memory: Memory,
    /// What the target did.
    pub target: Target,
    /// Whether the processes shared a core.
    pub cores: Cores,
    /// Which cores they were on, where that decides the time: `near` or `far`.
    pub placement: Option<Placement>,
    /// How the bytes travelled.
    pub transport: String,
    /// Median of our time for one operation, in nanoseconds.
    pub median_ns: f64,
    /// 99th percentile of our time, in nanoseconds; below a microsecond, of means over batches.
    pub p99_ns: f64,
    /// What the limit is.
    pub limit_name: String,
    /// Median of the limit's time, in nanoseconds.
    pub limit_ns: f64,
    /// Median of a bare line's time there and back between the same cores, in nanoseconds.
    pub line_ns: Option<f64>,
    /// `median_ns / limit_ns`.
    pub ratio: f64,
    /// The lowest of the jobs' ratios, and the highest.
    pub ratio_lowest: f64,
    /// See `ratio_lowest`.
    pub ratio_highest: f64,
    /// What the ratio is promised not to exceed.
    pub bound: Option<f64>,
    /// Whether it stays within the bound, all jobs together and in at least half of them; `None` without a
    /// promise.
    pub holds: Option<bool>,
    /// How it stands to its bound; `None` without a promise.
    pub verdict: Option<Verdict>,
    /// Operations in one sample, whose mean the sample is.
    pub batch: u32,
    /// Samples of ours and of the limit, taken in turn.
    pub samples: usize,
    /// Jobs that they were taken in. Where there are several, all times are medians over them.
    pub jobs: usize,
    /// Jobs whose own ratio holds; `None` without a promise.
    pub jobs_holding: Option<usize>,
    /// Times that all of it was measured: a second time where it was little beyond its bound.
    pub runs: usize,
    /// How a flood or a stream flowed.
    #[serde(flatten)]
    pub flow: Option<Flow>,
    /// The time of the fastest thread for a message, where several sent; of the slowest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_fastest_ns: Option<f64>,
    /// See `thread_fastest_ns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_slowest_ns: Option<f64>,
    /// Bytes of the process's memory that one grant of a list takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_each: Option<f64>,
    /// Our bandwidth, for bulk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gbps: Option<f64>,
    /// The limit's bandwidth, for bulk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_gbps: Option<f64>,
}

impl Row {
    /// The row for what was measured.
    #[must_use]
    pub fn new(case: &Case, samples: &Samples) -> Row {
        let Samples { limit_name, batch, ours, limit, line, threads, bytes_each } = samples;
        let (median_ns, limit_ns) = (quantile(ours, 0.5), quantile(limit, 0.5));
        let ratio = median_ns / limit_ns;
        let ways = if case.flow.is_some_and(|flow| flow.ways == Ways::Both) { 2 } else { 1 };
        let bytes = (case.size * case.n * ways) as f64;
        let bulk = case.op == Op::Bandwidth
            || (case.op.has_memory() || case.op == Op::Flood) && !case.op.is_collective() && bytes >= 4096.0;
        let [fastest, slowest] =
            threads.each_ref().map(|times| (!times.is_empty()).then(|| quantile(times, 0.5)));
        Row {
            op: case.op.name().to_owned(),
            size: case.size,
            n: case.n,
            memory: case.memory,
            target: case.target,
            cores: case.cores,
            placement: case.placement,
            transport: "shm".to_owned(),
            median_ns,
            p99_ns: quantile(ours, 0.99),
            limit_name: limit_name.clone(),
            limit_ns,
            line_ns: (!line.is_empty()).then(|| quantile(line, 0.5)),
            ratio,
            ratio_lowest: ratio,
            ratio_highest: ratio,
            bound: case.bound,
            holds: case.bound.map(|bound| ratio <= bound),
            verdict: case.bound.map(|bound| Verdict::of(ratio, usize::from(ratio <= bound), 1, bound)),
            batch: *batch,
            samples: ours.len(),
            jobs: 1,
            jobs_holding: case.bound.map(|bound| usize::from(ratio <= bound)),
            runs: 1,
            flow: case.flow,
            thread_fastest_ns: fastest,
            thread_slowest_ns: slowest,
            bytes_each: *bytes_each,
            gbps: bulk.then(|| bytes / median_ns),
            limit_gbps: bulk.then(|| bytes / limit_ns),
        }
    }

    /// The row for a case of Active Messages that was measured in several jobs: of each time the median over
    /// them, and the ratio of these. `None` without jobs.
    #[must_use]
    pub fn over_jobs(rows: &[Row]) -> Option<Row> {
        let first = rows.first()?;
        let median = |of: fn(&Row) -> f64| quantile(&rows.iter().map(of).collect::<Vec<f64>>(), 0.5);
        let (median_ns, limit_ns) = (median(|row| row.median_ns), median(|row| row.limit_ns));
        let ratio = median_ns / limit_ns;
        let ratios = || rows.iter().map(|row| row.ratio);
        let lines: Vec<f64> = rows.iter().filter_map(|row| row.line_ns).collect();
        let holding = |bound| ratios().filter(|ratio| *ratio <= bound).count();
        let verdict = first.bound.map(|bound| Verdict::of(ratio, holding(bound), rows.len(), bound));
        Some(Row {
            median_ns,
            p99_ns: median(|row| row.p99_ns),
            limit_ns,
            line_ns: (!lines.is_empty()).then(|| quantile(&lines, 0.5)),
            ratio,
            ratio_lowest: ratios().fold(f64::INFINITY, f64::min),
            ratio_highest: ratios().fold(0.0, f64::max),
            jobs_holding: first.bound.map(holding),
            holds: verdict.map(|verdict| verdict == Verdict::Holds),
            verdict,
            thread_fastest_ns: first
                .thread_fastest_ns
                .map(|_| median(|row| row.thread_fastest_ns.unwrap_or(0.0))),
            thread_slowest_ns: first
                .thread_slowest_ns
                .map(|_| median(|row| row.thread_slowest_ns.unwrap_or(0.0))),
            gbps: first.gbps.map(|_| median(|row| row.gbps.unwrap_or(0.0))),
            limit_gbps: first.limit_gbps.map(|_| median(|row| row.limit_gbps.unwrap_or(0.0))),
            samples: rows.iter().map(|row| row.samples).sum(),
            jobs: rows.len(),
            ..first.clone()
        })
    }

    /// In words, the memory that one grant of a list takes.
    pub fn bytes_in_words(&self) -> Option<String> {
        let bytes = self.bytes_each?;
        let within = if bytes <= BYTES_EACH_MAX { "within" } else { "beyond" };
        Some(format!(
            "Each of {} grants took {bytes:.0} bytes of its owner's memory, handles and tables included: {within} the \
             {BYTES_EACH_MAX:.0} that are promised.",
            self.n
        ))
    }

    /// In words, the rates of a flood's threads, where several sent.
    #[must_use]
    pub fn threads_in_words(&self) -> Option<String> {
        let (fastest, slowest) = (self.thread_fastest_ns?, self.thread_slowest_ns?);
        let threads = self.flow?.threads;
        Some(format!(
            "Of {threads} threads the fastest sent a message in {fastest:.0} ns, {:.2} million a second, and the \
             slowest in {slowest:.0} ns, {:.2} million.",
            1e3 / fastest,
            1e3 / slowest
        ))
    }

    /// Whether it does not hold, but is beyond its bound by so little that it is measured again.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.holds == Some(false) && self.bound.is_some_and(|bound| self.ratio <= DOUBT * bound)
    }

    /// The better of this row and of another run's of the same: only what both say is broken.
    #[must_use]
    pub fn or(self, other: Row) -> Row {
        let runs = self.runs + other.runs;
        let is_better = other.verdict.cmp(&self.verdict).then(other.ratio.total_cmp(&self.ratio)).is_lt();
        Row { runs, ..if is_better { other } else { self } }
    }

    /// The row's verdict, and in how many of its jobs it is within its bound. On a busy machine a bound that
    /// does not hold says nothing of the library.
    #[must_use]
    pub fn verdict_in_words(&self, busy: bool) -> String {
        let Some(verdict) = self.verdict else { return String::new() };
        let again = if self.runs > 1 { ", second run" } else { "" };
        let jobs = format!("{} of {} jobs", self.jobs_holding.unwrap_or(0), self.jobs);
        let word = match verdict {
            Verdict::Holds if self.jobs > 1 => return format!("holds in {jobs}{again}"),
            Verdict::Holds => return format!("holds{again}"),
            Verdict::Unsteady => "unsteady",
            Verdict::Broken if busy => "beyond",
            Verdict::Broken => "BROKEN",
        };
        match self.jobs {
            1 => word.to_owned(),
            _ => format!("{word}: {jobs}, {:.2} to {:.2}", self.ratio_lowest, self.ratio_highest),
        }
    }
}

/// Times its bound up to which a row that does not hold is measured a second time.
const DOUBT: f64 = 1.3;

/// The `q`-quantile of some samples; NaN of none.
fn quantile(samples: &[f64], q: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (q * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::case::{AM, PROMISED};

    #[test]
    fn a_row_says_whether_the_promise_holds() {
        let case = PROMISED[0];
        let row = Row::new(&case, &Samples::new("memcpy", 1024, vec![4.0, 3.0, 100.0], vec![2.0; 3]));
        assert_eq!((row.median_ns, row.p99_ns, row.ratio, row.holds), (4.0, 100.0, 2.0, Some(true)));
        let row = Row::new(&case, &Samples::new("memcpy", 1024, vec![5.0], vec![2.0]));
        assert_eq!((row.holds, row.gbps), (Some(false), None));
    }

    #[test]
    fn of_several_jobs_each_time_is_the_median() {
        let case =
            PROMISED.iter().find(|case| case.op == Op::Am && case.bound == Some(AM)).expect("promised");
        let job =
            |ours: f64, limit: f64| Row::new(case, &Samples::new("line", 9, vec![ours; 3], vec![limit; 3]));
        let row = Row::over_jobs(&[job(30.0, 10.0), job(14.0, 20.0), job(12.0, 8.0)]).expect("three jobs");
        assert_eq!((row.median_ns, row.p99_ns, row.limit_ns, row.ratio), (14.0, 14.0, 10.0, 1.4));
        assert_eq!((row.holds, row.samples, row.jobs), (Some(false), 9, 3));
        assert_eq!((row.ratio_lowest, row.ratio_highest, row.jobs_holding), (0.7, 3.0, Some(1)));
        assert_eq!(row.verdict_in_words(false), "BROKEN: 1 of 3 jobs, 0.70 to 3.00");
        assert!(Row::over_jobs(&[]).is_none());
    }

    #[test]
    fn a_row_holds_only_where_half_of_its_jobs_do() {
        let case =
            PROMISED.iter().find(|case| case.op == Op::Am && case.bound == Some(AM)).expect("promised");
        let over = |jobs: &[(f64, f64)]| {
            let job = |(ours, limit)| Row::new(case, &Samples::new("line", 9, vec![ours], vec![limit]));
            Row::over_jobs(&jobs.iter().copied().map(job).collect::<Vec<_>>()).expect("some jobs")
        };
        // The medians' ratio is 1.0 in each, and the bound 1.2.
        let row = over(&[(9.0, 5.0), (10.0, 10.0), (20.0, 15.0)]);
        assert_eq!((row.ratio, row.jobs_holding), (1.0, Some(1)));
        assert_eq!((row.holds, row.verdict), (Some(false), Some(Verdict::Unsteady)));
        assert_eq!(row.verdict_in_words(true), "unsteady: 1 of 3 jobs, 1.00 to 1.80");
        assert!(row.is_doubtful(), "it is measured again");
        let steady = over(&[(9.0, 9.0), (10.0, 10.0), (20.0, 15.0)]);
        assert_eq!(steady.verdict_in_words(false), "holds in 2 of 3 jobs");
        // A better verdict counts more than a lower ratio.
        assert_eq!(row.or(steady).verdict_in_words(false), "holds in 2 of 3 jobs, second run");
        // Beyond the bound by the medians, and within it in most jobs.
        let row = over(&[(9.0, 8.0), (13.0, 12.0), (14.0, 10.0), (15.0, 14.0), (30.0, 9.0)]);
        assert_eq!((row.ratio, row.jobs_holding), (1.4, Some(3)));
        assert_eq!(row.verdict, Some(Verdict::Unsteady));
    }

    #[test]
    fn a_row_little_beyond_its_bound_is_broken_only_if_two_runs_say_so() {
        let row = |ours: f64| Row::new(&PROMISED[0], &Samples::new("memcpy", 9, vec![ours], vec![10.0]));
        assert_eq!(PROMISED[0].bound, Some(2.0));
        let doubtful = [20.0, 20.1, 26.0, 26.1].map(|ours| row(ours).is_doubtful());
        assert_eq!(doubtful, [false, true, true, false]);
        let held = row(22.0).or(row(19.0));
        assert_eq!((held.holds, held.runs, held.ratio), (Some(true), 2, 1.9));
        assert_eq!(held.verdict_in_words(false), "holds, second run");
        let broken = row(22.0).or(row(24.0));
        assert_eq!((broken.holds, broken.runs, broken.ratio), (Some(false), 2, 2.2));
        assert_eq!([false, true].map(|busy| broken.verdict_in_words(busy)), ["BROKEN", "beyond"]);
    }
}
