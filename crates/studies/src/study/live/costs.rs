//! What everything costs on a provider, measured on it, as a file for the simulator.

use anyhow::{Result, bail};
use sim::Costs;
use standpipe::{Strategy, host, limits};

use super::case::{Answer, Case};
use super::job::{Job, Plan};
use crate::sim_costs::figures::{Figure, flag, nanos, real, text, whole};
use crate::sim_costs::fit::Line;
use measure::machine;

/// What was measured, each in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    /// An Active Message there and back, without payload and with [`PAYLOAD`] bytes there.
    round_trip: f64,
    round_trip_long: f64,
    /// Writes by bare libfabric, of [`SHORT`] and [`LONG`] bytes.
    write: f64,
    write_long: f64,
    /// A put of [`SHORT`] bytes to memory that is held.
    put: f64,
    /// Registrations of so many pages, and their ends.
    register: [f64; 3],
    deregister: [f64; 3],
    /// Whether local ends need no registration.
    locally_free: bool,
}

/// The longest write that is measured.
pub(crate) const LONG: u64 = 64 << 10;
const SHORT: u64 = 8;
const PAYLOAD: u64 = 4096;
/// Pages of a registration: one, a long put's, and as many as a run has.
const PAGES: [usize; 3] = [1, 16, 256];

/// Measures costs, as often as it is asked to: medians count.
#[derive(Debug)]
pub(crate) struct Taker {
    job: Job,
    times: u32,
    rounds: Vec<Measured>,
}

impl Taker {
    /// With a job of its own, which does each thing so many times in a round.
    ///
    /// # Errors
    /// If that cannot be started.
    pub(crate) fn start(plan: &Plan, times: u32) -> Result<Taker> {
        let plan = Plan { written: (LONG as usize).max(4096 * PAGES[2]), ..plan.clone() };
        Ok(Taker { job: Job::start(&plan, Strategy::Firehose)?, times, rounds: Vec::new() })
    }

    /// Measures everything once more.
    ///
    /// # Errors
    /// If something fails.
    pub(crate) fn round(&mut self) -> Result<()> {
        self.rounds.push(Measured::once(&mut self.job, self.times)?);
        Ok(())
    }

    /// What a write of so many bytes by bare libfabric takes, in ns.
    ///
    /// # Errors
    /// If it fails.
    pub(crate) fn write(&mut self, len: u64) -> Result<f64> {
        match self.job.ask(&Case::Writes { len: usize::try_from(len)?, times: self.times })? {
            Answer::Took(ns) => Ok(ns),
            other => bail!("writes were answered by {other:?}"),
        }
    }

    /// The medians over all rounds.
    pub(crate) fn measured(&self) -> Measured {
        let rounds = &self.rounds;
        let of = |what: fn(&Measured) -> f64| median(rounds.iter().map(what).collect());
        let pages = |what: fn(&Measured) -> [f64; 3]| {
            std::array::from_fn(|index| median(rounds.iter().map(|round| what(round)[index]).collect()))
        };
        Measured {
            round_trip: of(|round| round.round_trip),
            round_trip_long: of(|round| round.round_trip_long),
            write: of(|round| round.write),
            write_long: of(|round| round.write_long),
            put: of(|round| round.put),
            register: pages(|round| round.register),
            deregister: pages(|round| round.deregister),
            locally_free: rounds.iter().all(|round| round.locally_free),
        }
    }
}

impl Measured {
    fn once(job: &mut Job, times: u32) -> Result<Measured> {
        let (mut register, mut deregister, mut free) = ([0.0; 3], [0.0; 3], false);
        for (index, pages) in PAGES.into_iter().enumerate() {
            (register[index], deregister[index], free) =
                match job.ask(&Case::Registrations { pages, times })? {
                    Answer::Registered { register_ns, deregister_ns, locally_free } => {
                        (register_ns, deregister_ns, locally_free)
                    }
                    other => bail!("registrations were answered by {other:?}"),
                };
        }
        let mut took = |case: Case| match job.ask(&case)? {
            Answer::Took(ns) => Ok(ns),
            Answer::Puts(puts) => Ok(puts.mean_ns),
            other @ Answer::Registered { .. } => bail!("{case:?} was answered by {other:?}"),
        };
        Ok(Measured {
            round_trip: took(Case::RoundTrips { payload: 0, times })?,
            round_trip_long: took(Case::RoundTrips { payload: PAYLOAD as usize, times })?,
            write: took(Case::Writes { len: SHORT as usize, times })?,
            write_long: took(Case::Writes { len: LONG as usize, times })?,
            put: took(Case::Random { len: SHORT, working_set: 4096, puts: u64::from(times), seed: 0 })?,
            register,
            deregister,
            locally_free: free,
        })
    }

    /// As the simulator has them, with the text of their file.
    ///
    /// # Errors
    /// If they are beyond what the simulator takes.
    pub(crate) fn file(&self, transport: &str) -> Result<(String, Costs)> {
        let text = text(HEAD, &name(transport), machine::load_before(), &self.figures());
        let costs = Costs::parse(&text)?;
        Ok((text, costs))
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = self.ways().to_vec();
        figures.extend(self.registering());
        figures.extend(settings(self.locally_free));
        figures
    }

    /// A put by key is the send overhead, the wire there and back, and the completion overhead; a message the
    /// send overhead, the wire, and the receive overhead.
    fn ways(&self) -> [Figure; 8] {
        let gap = ((self.write_long - self.write) / (LONG - SHORT) as f64).max(0.0);
        let copy = ((self.round_trip_long - self.round_trip) / PAYLOAD as f64 - gap).max(0.0) / 2.0;
        // What both a write and a message take, neither more than either has.
        let latency = (self.write / 2.0).min(self.round_trip / 2.0);
        let processors = (self.round_trip / 2.0 - latency) / 2.0;
        let completion = (self.put - 2.0 * latency - processors).max(0.0);
        let write =
            format!("a write of {SHORT} bytes by bare libfabric, {:.0} ns until it is complete", self.write);
        let trip = format!("half a round trip of Active Messages, {:.0} ns", self.round_trip / 2.0);
        [
            whole(
                "latency_ns",
                nanos(latency),
                format!("[measured] half of {write}, but no more than {trip}"),
            ),
            real(
                "gap_ns_per_byte",
                gap,
                format!(
                    "[measured] what each byte adds to such a write, up to {LONG} bytes in {:.0} ns",
                    self.write_long
                ),
            ),
            whole(
                "send_overhead_ns",
                processors.round() as u64,
                format!("[derived] half of {trip}, less the latency"),
            ),
            whole("receive_overhead_ns", processors.round() as u64, "[derived] the other half".to_owned()),
            whole(
                "completion_overhead_ns",
                completion.round() as u64,
                format!(
                    "[derived] what is left of a put of {SHORT} bytes to memory that is held, {:.0} ns, after the \
                     latency twice and the send overhead",
                    self.put
                ),
            ),
            whole("message_ns", 0, "[none] it is in the overheads"),
            whole("header_bytes", 0, "[none] it is in the overheads"),
            real(
                "copy_ns_per_byte",
                copy,
                format!(
                    "[derived] half of what each byte of a payload of {PAYLOAD} adds to a round trip of Active Messages, \
                     then {:.0} ns, besides the time of the wire: it is copied at both ends",
                    self.round_trip_long
                ),
            ),
        ]
    }

    fn registering(&self) -> [Figure; 4] {
        let line =
            |times: [f64; 3]| Line::through(&[0, 1, 2].map(|index| (PAGES[index] as f64, times[index])));
        let (register, deregister) = (line(self.register), line(self.deregister));
        let how = |call: &str, times: [f64; 3]| {
            let [few, some, many] = PAGES;
            let times = times.map(|ns| format!("{ns:.0}")).join(", ");
            format!(
                "[measured] a line through the medians of {call} of {few}, {some} and {many} pages, {times} ns"
            )
        };
        let (made, ended) = (how("fi_mr_reg", self.register), how("fi_close", self.deregister));
        let each = || "[measured] what that line adds for each page";
        [
            whole("register_fixed_ns", register.fixed.round() as u64, made),
            whole("register_page_ns", register.each.round() as u64, each()),
            whole("deregister_fixed_ns", deregister.fixed.round() as u64, ended),
            whole("deregister_page_ns", deregister.each.round() as u64, each()),
        ]
    }
}

fn settings(locally_free: bool) -> [Figure; 8] {
    let (unregistered, why) = match locally_free {
        true => (1 << 40, "[read] the provider wants no local end registered"),
        false => {
            (4096, "[read] longer ones go from the caller's memory, which the provider wants registered")
        }
    };
    let (pinnable, limit) = match host::memlock().soft {
        Some(bytes) if !locally_free => (bytes, "[read] the limit on locked memory (ulimit -l)"),
        Some(_) => (1 << 40, "[assumed] a provider that wants no local end registered pins nothing"),
        None => (1 << 40, "[read] locking is not limited here"),
    };
    let none = "[none] nothing is known of a table of translations";
    [
        whole("pinnable_bytes", pinnable, limit),
        whole("table_entries", 0, none),
        whole("table_miss_ns", 0, none),
        whole("payload_max_bytes", 8192, "[read] the engine's chunks"),
        whole("lane_messages", u64::from(limits::CREDITS), "[read] the transport's, of short messages"),
        flag("gathers", true, "[read] the transport's"),
        whole("unregistered_max_bytes", unregistered, why),
        whole("page_bytes", rustix::param::page_size() as u64, "[read] of the system"),
    ]
}

fn name(transport: &str) -> String {
    let facts = machine::facts();
    let processor =
        facts.iter().find(|(what, _)| what == "processor").map_or("this machine", |(_, value)| value);
    format!("{processor}, {} cores, by {transport}", host::cores())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

const HEAD: &str = "Costs of one machine and one provider of libfabric's, measured on it by `standpipe-study firehose --transport`.\n\
                    \n\
                    Where a number comes from: [measured] here, between two processes; [derived] arithmetic on that; \
                    [read] from the system or the library; [none] the model's part is in other figures.";

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        Measured {
            round_trip: 30_000.0,
            round_trip_long: 38_192.0,
            write: 20_000.0,
            write_long: 20_000.0 + 0.5 * (LONG - SHORT) as f64,
            put: 24_000.0,
            register: [1100.0, 2600.0, 26_600.0],
            deregister: [500.0, 500.0, 500.0],
            locally_free: true,
        }
    }

    #[test]
    fn what_was_measured_comes_out_of_the_model_again() {
        let (text, costs) = measured().file("ofi:tcp").expect("all costs are in it");
        assert_eq!(costs.latency_ns + costs.send_overhead_ns + costs.receive_overhead_ns, 15_000, "{text}");
        let put = costs.send_overhead_ns + 2 * costs.latency_ns + costs.completion_overhead_ns;
        assert_eq!((put, costs.gap_ns_per_byte), (24_000, 0.5));
        assert_eq!((costs.copy_ns_per_byte, costs.register_ns(4096 * 16)), (0.75, 2600));
        assert_eq!(costs.pinnable_bytes, 1 << 40, "tcp pins nothing, whatever may be locked");
        assert!(costs.name.ends_with("by ofi:tcp") && text.lines().all(|line| line.chars().count() <= 120));
    }

    #[test]
    fn what_noise_turns_upside_down_is_a_file_all_the_same() {
        let odd = Measured {
            locally_free: false,
            put: 10.0,
            write: 90_000.0,
            write_long: 80_000.0,
            round_trip_long: 1.0,
            ..measured()
        };
        let (_, costs) = odd.file("ofi:tcp").expect("no cost is negative");
        assert_eq!((costs.completion_overhead_ns, costs.unregistered_max_bytes), (0, 4096));
        assert_eq!(costs.latency_ns, 15_000, "no more than half a round trip");
    }
}
