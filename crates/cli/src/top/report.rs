//! The difference of two looks at a job: counts since its start, and rates between the two.

use serde::Serialize;
use standpipe::host::pinned_by;
use standpipe::metrics::Labels;
use standpipe::watch::{
    GrantPeers, How, Job, Peers, RankView, Rate, Rates, RegistrationCounters, Snapshot, State,
};
use standpipe::{Latencies, Mechanism, Operation, Stats};

use crate::elsewhere::Far;
use crate::latency_figures::Calls;

/// What moves data: where it goes by messages that is no Active Message of the program.
pub(super) const TRANSFERS: [Operation; 2] = [Operation::Put, Operation::Get];

/// A job between two looks.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) id: String,
    pub(super) program: String,
    pub(super) launcher_pid: u32,
    pub(super) size: usize,
    pub(super) running: usize,
    /// Ranks that are gone and did not take leave.
    pub(super) lost: usize,
    pub(super) ended: bool,
    /// Ranks that have not opened a node.
    pub(super) awaited: usize,
    /// Other jobs and nodes, which cannot be looked at from here.
    #[serde(rename = "elsewhere", skip_serializing_if = "Vec::is_empty")]
    pub(super) far: Vec<Far>,
    pub(super) ranks: Vec<RankReport>,
    pub(super) totals: Figures,
}

/// One rank.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RankReport {
    pub(super) rank: u32,
    pub(super) pid: Option<u32>,
    pub(super) state: String,
    /// How old its counts of messages are.
    pub(super) away_seconds: Option<f64>,
    /// All that its process has pinned for devices, what a provider takes for its queues and buffers
    /// included. `None` where the kernel does not say, and of one that is gone.
    pub(super) process_pinned_bytes: Option<u64>,
    #[serde(flatten)]
    pub(super) figures: Figures,
    /// Shown where it is asked for.
    #[serde(skip)]
    pub(super) peers: Option<Peers>,
    #[serde(skip)]
    pub(super) grant_peers: Option<GrantPeers>,
}

/// The figures of one rank, or all.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Figures {
    /// The ones that there were any of.
    pub(super) operations: Vec<Line>,
    #[serde(flatten)]
    pub(super) scalars: Scalars,
    /// `None` where no memory was ever registered.
    pub(super) registration: Option<Registration>,
    /// Of each kind that was timed: how many calls were, and how long they took.
    #[serde(serialize_with = "by_kind")]
    pub(super) latencies: Latencies,
}

/// The plain counters that tell of grants, each with its column.
pub(super) const GRANT_COLUMNS: [(&str, &str); 7] = [
    ("grants", "grants"),
    ("granted_bytes", "granted B"),
    ("grants_made", "made"),
    ("denied", "denied"),
    ("barred", "barred"),
    ("revocations_waited", "waited"),
    ("revocations_in_use", "in use"),
];

impl Figures {
    /// Whether any grant was ever made or used, or any access refused.
    pub(super) fn tells_of_grants(&self) -> bool {
        GRANT_COLUMNS.iter().any(|(key, _)| self.scalars.get(key) > 0)
    }

    /// Whether any put or get has gone by registered memory.
    pub(super) fn uses_registered(&self) -> bool {
        let is_one =
            |line: &Line| line.mechanism == Mechanism::Registered && TRANSFERS.contains(&line.operation);
        self.operations.iter().any(is_one)
    }
}

/// Operations of one kind by one mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Line {
    #[serde(serialize_with = "operation_name")]
    pub(super) operation: Operation,
    #[serde(serialize_with = "mechanism_name")]
    pub(super) mechanism: Mechanism,
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) per_second: f64,
    pub(super) bytes_per_second: f64,
}

/// The plain counters of one rank, or of all, by their keys.
#[derive(Clone, Debug)]
pub(super) struct Scalars(Vec<(&'static str, u64)>);

/// The columns of figures about registration; `None` for a figure without one.
pub(super) const REGISTRATION_COLUMNS: [Option<&str>; REGISTRATION] = [
    Some("hits"),
    Some("misses"),
    Some("moves"),
    None,
    Some("recalls"),
    Some("evictions"),
    None,
    None,
    None,
    None,
    Some("pinned B"),
    Some("peak B"),
    Some("budget B"),
];

/// Figures about registration.
const REGISTRATION: usize = RegistrationCounters::FIGURES.len();

/// The counts of a node that registers memory: a value for each of [`RegistrationCounters::FIGURES`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Registration(pub(super) [u64; REGISTRATION]);

impl Report {
    pub(super) fn of(job: &Job, before: &Snapshot, now: &Snapshot) -> Report {
        let pair = |(before, now): (&RankView, &RankView)| {
            let started = (now.state == State::Awaited).then(|| job.process_of(now.rank)).flatten();
            RankReport { pid: now.pid.or(started), ..RankReport::of(before, now) }
        };
        let ranks: Vec<RankReport> = before.ranks.iter().zip(&now.ranks).map(pair).collect();
        let count = |is: fn(State) -> bool| now.ranks.iter().filter(|rank| is(rank.state)).count();
        Report {
            id: job.id().to_owned(),
            program: job.program().to_owned(),
            launcher_pid: now.launcher_pid,
            size: now.ranks.len(),
            running: count(runs),
            lost: count(|state| matches!(state, State::Over(how) if how != How::Left)),
            ended: now.ended,
            awaited: count(|state| state == State::Awaited),
            far: Vec::new(),
            totals: Figures::total(ranks.iter().map(|rank| &rank.figures)),
            ranks,
        }
    }
}

impl RankReport {
    /// Bytes that its process has pinned beyond the registered ones: a provider's queues and buffers, which
    /// no budget counts.
    pub(super) fn pinned_besides(&self) -> Option<u64> {
        let registered = self.figures.registration.map_or(0, |registration| registration.pinned()[0]);
        self.process_pinned_bytes?.checked_sub(registered).filter(|bytes| *bytes > 0)
    }

    fn of(before: &RankView, now: &RankView) -> RankReport {
        RankReport {
            rank: now.rank,
            pid: now.pid,
            state: state_name(now.state),
            away_seconds: now.away().map(|away| away.as_secs_f64()),
            process_pinned_bytes: now.pid.filter(|_| runs(now.state)).and_then(pinned_by),
            figures: Figures::of(now, &now.rates_since(before)),
            peers: now.peers().cloned(),
            grant_peers: now.grant_peers().cloned(),
        }
    }
}

fn runs(state: State) -> bool {
    matches!(state, State::Running | State::Silent)
}

/// All ranks of these jobs, and what tells each from the others on this host. A collector of
/// their figures names the host.
pub(super) fn labelled(reports: &[Report]) -> impl Iterator<Item = (Labels, &RankReport)> {
    let labels = |report: &Report, rank: &RankReport| {
        vec![
            ("id", report.id.clone()),
            ("launcher", report.launcher_pid.to_string()),
            ("program", report.program.clone()),
            ("rank", rank.rank.to_string()),
        ]
    };
    reports.iter().flat_map(move |report| report.ranks.iter().map(move |rank| (labels(report, rank), rank)))
}

/// The state of a rank that has not opened a node.
pub(super) const AWAITED: &str = "awaited";

fn state_name(state: State) -> String {
    match state {
        State::Awaited => AWAITED.into(),
        State::Running => "running".into(),
        State::Silent => "silent".into(),
        State::Over(How::Left) => "left".into(),
        State::Over(How::Exited(code)) => format!("exited {code}"),
        State::Over(How::Killed(signal)) => format!("killed {signal}"),
        State::Over(How::Vanished) => "vanished".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

impl Figures {
    fn of(rank: &RankView, rates: &Rates) -> Figures {
        let stats = rank.stats();
        let lines = Operation::by_mechanism().map(|(operation, mechanism)| {
            let tally = stats.get(operation, mechanism);
            let Rate { operations, bytes } = rates.get(operation, mechanism);
            Line {
                operation,
                mechanism,
                count: tally.count,
                bytes: tally.bytes,
                per_second: operations,
                bytes_per_second: bytes,
            }
        });
        Figures {
            operations: lines.filter(|line| line.count > 0).collect(),
            scalars: Scalars::of(&stats),
            registration: Registration::of(&rank.registration()),
            latencies: rank.latencies().cloned().unwrap_or_default(),
        }
    }

    /// What several ranks do together. What a rank says of itself may be anything, so nothing here overflows.
    pub(super) fn total<'a>(ranks: impl Iterator<Item = &'a Figures> + Clone) -> Figures {
        let lines = Operation::by_mechanism().filter_map(|(operation, mechanism)| {
            let same = ranks.clone().flat_map(|figures| &figures.operations);
            same.filter(|line| (line.operation, line.mechanism) == (operation, mechanism))
                .copied()
                .reduce(Line::plus)
        });
        let mut latencies = Latencies::default();
        ranks.clone().for_each(|figures| latencies.merge(&figures.latencies));
        Figures {
            latencies,
            operations: lines.collect(),
            scalars: ranks.clone().map(|figures| &figures.scalars).fold(Scalars::default(), Scalars::plus),
            registration: ranks.filter_map(|figures| figures.registration).reduce(Registration::plus),
        }
    }

    /// Of these kinds, by any of these mechanisms: operations and bytes a second.
    pub(super) fn rate(&self, operations: &[Operation], mechanisms: &[Mechanism]) -> (f64, f64) {
        let lines = self.operations.iter();
        lines
            .filter(|line| operations.contains(&line.operation) && mechanisms.contains(&line.mechanism))
            .fold((0.0, 0.0), |sum, line| (sum.0 + line.per_second, sum.1 + line.bytes_per_second))
    }
}

impl Line {
    fn plus(self, other: Line) -> Line {
        Line {
            count: self.count.saturating_add(other.count),
            bytes: self.bytes.saturating_add(other.bytes),
            per_second: self.per_second + other.per_second,
            bytes_per_second: self.bytes_per_second + other.bytes_per_second,
            ..self
        }
    }
}

impl Default for Scalars {
    fn default() -> Scalars {
        Scalars::of(&Stats::default())
    }
}

impl Scalars {
    fn of(stats: &Stats) -> Scalars {
        Scalars(stats.scalars().collect())
    }

    /// The counter with this key.
    pub(super) fn get(&self, key: &str) -> u64 {
        self.0.iter().find(|(known, _)| *known == key).expect("the list has all keys that are named here").1
    }

    pub(super) fn values(&self) -> Vec<u64> {
        self.0.iter().map(|(_, value)| *value).collect()
    }

    fn plus(mut self, other: &Scalars) -> Scalars {
        for ((_, mine), (_, theirs)) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.saturating_add(*theirs);
        }
        self
    }

    #[cfg(test)]
    pub(super) fn set(&mut self, key: &str, value: u64) {
        self.0.iter_mut().find(|(known, _)| *known == key).expect("a counter").1 = value;
    }
}

impl Serialize for Scalars {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl Registration {
    /// `None` where nothing was ever counted.
    fn of(counters: &RegistrationCounters) -> Option<Registration> {
        let any = *counters != RegistrationCounters::default();
        any.then(|| Registration(std::array::from_fn(|at| RegistrationCounters::FIGURES[at].1(counters))))
    }

    /// Bytes that are pinned now, at the peak, and at most.
    pub(super) fn pinned(&self) -> [u64; 3] {
        let [.., now, peak, budget] = self.0;
        [now, peak, budget]
    }

    fn plus(mut self, other: Registration) -> Registration {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine = mine.saturating_add(theirs));
        self
    }
}

impl Serialize for Registration {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(RegistrationCounters::FIGURES.iter().map(|(name, _)| name).zip(self.0))
    }
}

fn operation_name<S: serde::Serializer>(operation: &Operation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(operation.name())
}

fn by_kind<S: serde::Serializer>(latencies: &Latencies, serializer: S) -> Result<S::Ok, S::Error> {
    Calls::of(latencies).serialize(serializer)
}

fn mechanism_name<S: serde::Serializer>(mechanism: &Mechanism, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(mechanism.name())
}

#[cfg(test)]
pub(super) mod tests {
    use standpipe::watch::TableCounters;

    use super::*;

    pub(crate) fn registration(hits: u64, pinned_peak: u64) -> Registration {
        let table = TableCounters { pinned: pinned_peak, pinned_peak, ..TableCounters::default() };
        Registration::of(&RegistrationCounters { hits, table, ..RegistrationCounters::default() })
            .expect("some")
    }

    /// A job of two ranks, of which one is gone.
    pub(crate) fn sample(registration: Option<Registration>) -> Report {
        let line = |operation, mechanism, count| Line {
            operation,
            mechanism,
            count,
            bytes: 8 * count,
            per_second: count as f64 / 2.0,
            bytes_per_second: 4.0 * count as f64,
        };
        let figures = |scale| Figures {
            operations: vec![
                line(Operation::Put, Mechanism::Mapped, scale * 3_000_000),
                line(Operation::Get, Mechanism::Mapped, scale),
                line(Operation::Atomic, Mechanism::Mapped, scale * 10),
                line(Operation::Request, Mechanism::Message, scale * 2000),
            ],
            scalars: Scalars::default(),
            registration,
            latencies: Latencies::default(),
        };
        let rank = |rank, state: &str, scale| RankReport {
            rank,
            pid: Some(100 + rank),
            state: state.into(),
            away_seconds: Some(0.0),
            process_pinned_bytes: (state == "running").then_some(0),
            figures: figures(scale),
            peers: None,
            grant_peers: None,
        };
        let ranks = vec![rank(0, "running", 1), rank(1, "killed 9", u64::MAX / 100_000_000)];
        Report {
            id: "0123456789abcdef".into(),
            program: "stencil".into(),
            launcher_pid: 99,
            size: 2,
            running: 1,
            lost: 1,
            ended: false,
            awaited: 0,
            far: Vec::new(),
            totals: Figures::total(ranks.iter().map(|rank| &rank.figures)),
            ranks,
        }
    }

    /// The same, with a different number in each plain counter.
    pub(crate) fn counted() -> Report {
        let mut report = sample(Some(registration(41, 8192)));
        for (rank, scale) in report.ranks.iter_mut().zip([1, 100]) {
            for (key, value) in [("malformed", 2), ("refused", 3), ("staged_bytes", 4)] {
                rank.figures.scalars.set(key, value * scale);
            }
        }
        report.totals = Figures::total(report.ranks.iter().map(|rank| &rank.figures));
        report
    }

    /// A job whose rank 1 grants memory, with a different number in each counter.
    pub(crate) fn granting() -> Report {
        let mut report = sample(None);
        for (value, (key, _)) in (1..).zip(GRANT_COLUMNS) {
            report.ranks[1].figures.scalars.set(key, value);
        }
        report.totals = Figures::total(report.ranks.iter().map(|rank| &rank.figures));
        report
    }

    #[test]
    fn totals_add_up_and_do_not_overflow() {
        let report = sample(Some(registration(u64::MAX, 5)));
        let get = report.totals.operations.iter().find(|line| line.operation == Operation::Get);
        assert_eq!(get.map(|line| line.count), Some(1 + u64::MAX / 100_000_000));
        let both = report.totals.registration.expect("two ranks that register");
        assert_eq!(both, registration(u64::MAX, 10));
        let (operations, bytes) = report.ranks[0].figures.rate(&[Operation::Put], &[Mechanism::Mapped]);
        assert_eq!((operations, bytes), (1_500_000.0, 12_000_000.0));
    }

    #[test]
    fn json_has_what_is_counted_of_grants() {
        let report = granting();
        let json = serde_json::to_value(&report).expect("numbers, texts and lists");
        for (value, (key, _)) in (1..).zip(GRANT_COLUMNS) {
            assert_eq!(json["ranks"][1][key], value, "{key}");
            assert_eq!((&json["ranks"][0][key], &json["totals"][key]), (&0.into(), &value.into()), "{key}");
        }
        assert!(report.totals.tells_of_grants() && !report.ranks[0].figures.tells_of_grants());
    }

    #[test]
    fn json_has_names_and_numbers() {
        let json = serde_json::to_value(sample(None)).expect("numbers, texts and lists");
        assert_eq!(json["ranks"][0]["operations"][0]["operation"], "put");
        assert_eq!(json["ranks"][0]["operations"][0]["mechanism"], "mapped");
        assert_eq!(json["ranks"][1]["state"], "killed 9");
        assert!(json["totals"]["registration"].is_null());
        let json = serde_json::to_value(sample(Some(registration(3, 4)))).expect("numbers, texts and lists");
        let of_one = &json["ranks"][0]["registration"];
        let figures = (&of_one["hits"], &of_one["misses"], &of_one["pinned_peak_bytes"]);
        assert_eq!(figures, (&3.into(), &0.into(), &4.into()));
        assert_eq!(of_one.as_object().map(|fields| fields.len()), Some(REGISTRATION));
    }
}
