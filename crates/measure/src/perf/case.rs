//! What `perf` measures: each case is an operation, its size, and the bound that its ratio has to keep.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use standpipe::host;

use super::flow::Flow;
use super::placement::Placement;

/// An operation that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Put contiguous bytes
    Put,
    /// Get contiguous bytes
    Get,
    /// Put 8 bytes to memory that must be asked for, which its owner still has registered, beside a message
    /// and its reply and a put to memory that need not; only over ofi
    Miss,
    /// Get many pieces by one call
    Scatter,
    /// Put blocks, next to each other here and every second one there, by one call
    Strided,
    /// An Active Message and its reply; medians over 9 jobs, unless on the same core
    Am,
    /// A put of bytes and then of a signal, there and back; medians over 9 jobs, unless on the same core or
    /// over a network
    PutSignal,
    /// A fetch-add on a word of the target's heap
    Atomic,
    /// A put of 8 bytes through a queue of completions
    Completion,
    /// An operation's end, until a task has it by its queue's descriptor
    CompletionFd,
    /// Gets that are awaited by as many tasks at a time
    Pending,
    /// A request that is tried, and its reply; medians over 9 jobs
    TryRequest,
    /// A request whose handler keeps the payload, and its reply; medians over 9 jobs
    TakePayload,
    /// A pin of memory that is registered still, and its end, beside mlock and munlock; only over ofi
    Pin,
    /// A grant of memory, its revocation, and the look whether anybody uses it, beside mlock and munlock
    Grant,
    /// A grant of each of a list, by one call, beside a time that is set; with the memory that each takes
    ShareMany,
    /// Messages as fast as one process sends them, until the other has run the last handler; within a host,
    /// medians over 3 jobs
    Flood,
    /// Puts, gets and messages with a payload, one after the other without waiting: one way and both
    Bandwidth,
    /// A barrier of all processes
    Barrier,
    /// An all-reduce: the greatest of each word
    Allreduce,
    /// A part of each process's bytes to each
    Alltoall,
    /// One process's bytes to all
    Broadcast,
    /// Processor time of a process that waits
    Idle,
    /// Starting a job until all its processes have met
    Open,
    /// What a message that nobody waits for takes of its sender's processor, and (as the limit) of its
    /// receiver's
    #[value(skip)]
    Overhead,
}

impl Op {
    /// Its name, as on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Op::Put => "put",
            Op::Get => "get",
            Op::Miss => "miss",
            Op::Scatter => "scatter",
            Op::Strided => "strided",
            Op::Am => "am",
            Op::PutSignal => "put-signal",
            Op::Atomic => "atomic",
            Op::Completion => "completion",
            Op::CompletionFd => "completion-fd",
            Op::Pending => "pending",
            Op::TryRequest => "try-request",
            Op::TakePayload => "take-payload",
            Op::Pin => "pin",
            Op::Grant => "grant",
            Op::ShareMany => "share-many",
            Op::Flood => "flood",
            Op::Bandwidth => "bandwidth",
            Op::Barrier => "barrier",
            Op::Allreduce => "allreduce",
            Op::Alltoall => "alltoall",
            Op::Broadcast => "broadcast",
            Op::Idle => "idle",
            Op::Open => "open",
            Op::Overhead => "overhead",
        }
    }

    /// Whether all processes of the job do it together.
    #[must_use]
    pub const fn is_collective(self) -> bool {
        matches!(self, Op::Barrier | Op::Allreduce | Op::Alltoall | Op::Broadcast)
    }

    /// Whether it moves bytes of the caller's, of which there may be more or fewer.
    #[must_use]
    pub const fn has_size(self) -> bool {
        use Op::{
            Allreduce, Alltoall, Am, Bandwidth, Broadcast, Flood, Get, Pin, Put, PutSignal, Scatter, Strided,
            TakePayload,
        };
        matches!(self, Put | Get | Scatter | Strided | Am | PutSignal | TakePayload | Pin)
            || matches!(self, Allreduce | Alltoall | Broadcast | Flood | Bandwidth)
    }

    /// Whether operations follow each other without waiting.
    #[must_use]
    pub const fn flows(self) -> bool {
        matches!(self, Op::Flood | Op::Bandwidth)
    }

    /// Whether the target takes no part in it, and can do something else.
    #[must_use]
    pub const fn is_one_sided(self) -> bool {
        matches!(self, Op::Put | Op::Get | Op::Scatter | Op::Strided)
    }

    /// Whether it can be between different kinds of memory.
    #[must_use]
    pub const fn has_memory(self) -> bool {
        matches!(self, Op::Put | Op::Get | Op::Scatter | Op::Allreduce | Op::Alltoall | Op::Broadcast)
    }
}

/// Which memory of the target is used; of collectives, which memory at all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// The heap, which is mapped
    Heap,
    /// Ordinary memory from the allocator
    Private,
    /// The same, by its owner's grants: one a piece
    Granted,
    /// The same, by one grant of all pieces of a scattered get
    OneGrant,
}

impl Memory {
    /// Whether it is reached by grants.
    pub(super) const fn is_granted(self) -> bool {
        matches!(self, Memory::Granted | Memory::OneGrant)
    }
}

/// What the target process does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// It sleeps
    Asleep,
    /// It computes, and calls nothing
    Busy,
    /// It makes progress all the time
    Serving,
}

/// Where the processes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cores {
    /// Each on a core of its own, where there are enough; otherwise wherever the system puts them.
    Apart,
    /// All on one core.
    Shared,
}

/// Bytes of each process up to which a collective is a matter of messages rather than of copies.
pub(super) const SMALL_MAX: usize = 1 << 10;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The operation.
    pub op: Op,
    /// Bytes of one piece; of the payload for Active Messages; of each process for collectives.
    pub size: usize,
    /// Pieces of a scattered get, or blocks of a strided put; awaits that are pending; grants of a list;
    /// processes of a collective, of idling or of opening; otherwise 1.
    pub n: usize,
    /// The memory at the target.
    pub memory: Memory,
    /// What the target does.
    pub target: Target,
    /// Where the processes run.
    pub cores: Cores,
    /// Which cores, where that decides the time.
    pub placement: Option<Placement>,
    /// What the ratio must not exceed; `None` where no bound is promised.
    pub bound: Option<f64>,
    /// How a flood or a stream flows.
    pub flow: Option<Flow>,
}

impl Case {
    /// The two cores that its processes are bound to, where there are two for each to have its own.
    #[must_use]
    pub fn pair(&self) -> Option<[usize; 2]> {
        let cores = host::core_numbers();
        let any = || cores.first_chunk::<2>().copied();
        self.placement.and_then(Placement::pair).or_else(any)
    }

    /// Bytes of the target's heap that it uses.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        match self.op {
            Op::Strided => self.size.saturating_mul(2).saturating_mul(self.n),
            // The two slots of its limit.
            Op::Flood | Op::Bandwidth => self.size.saturating_add(64).saturating_mul(2),
            _ => self.size,
        }
    }

    /// Processes of the job that it is measured in.
    #[must_use]
    pub const fn processes(&self) -> usize {
        match self.op {
            Op::Idle | Op::Open => self.n,
            Op::Completion | Op::CompletionFd | Op::ShareMany => 1,
            op if op.is_collective() => self.n,
            _ => 2,
        }
    }

    /// Whether cache lines that go between two cores are what its time depends on.
    #[must_use]
    pub fn is_of_lines(&self) -> bool {
        let small = self.op.is_collective() && self.n == 2 && self.size <= SMALL_MAX;
        self.cores == Cores::Apart
            && (matches!(self.op, Op::Am | Op::PutSignal | Op::TryRequest | Op::TakePayload) || small)
    }
}

impl Case {
    /// An operation of so many bytes between heaps, on two cores, with a target that sleeps; no bound, and of
    /// no flow.
    #[must_use]
    pub const fn of(op: Op, size: usize) -> Case {
        let (memory, target, cores) = (Memory::Heap, Target::Asleep, Cores::Apart);
        Case { op, size, n: 1, memory, target, cores, placement: None, bound: None, flow: None }
    }
}

const fn case(op: Op, size: usize, n: usize, memory: Memory, bound: f64) -> Case {
    Case { n, memory, bound: Some(bound), ..Case::of(op, size) }
}

/// On two cores that share a cache.
const fn near(case: Case) -> Case {
    Case { placement: Some(Placement::Near), ..case }
}

/// On two cores that share none.
const fn far(case: Case) -> Case {
    Case { placement: Some(Placement::Far), ..case }
}

const fn busy(case: Case) -> Case {
    Case { target: Target::Busy, ..case }
}

const fn shared(case: Case) -> Case {
    Case { cores: Cores::Shared, ..case }
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Grants of a list.
pub(super) const SHARED: usize = 100_000;

/// Nanoseconds of work that a limit between two cores has on each side: what a header, a handler's call and
/// its answer take.
pub(super) const WORK_NS: u32 = 25;

// Bounds between two cores. Each limit has `WORK_NS` of work on each side.

/// The bound of an Active Message and its reply. The limit bounces one cache line.
pub(super) const AM: f64 = 1.2;
/// The bound of a put with its signal. In the limit each side adds to the other's word.
const PUT_SIGNAL: f64 = 1.3;
/// The bound of a barrier of two processes. In the limit both sides write to each other at once.
const BARRIER: f64 = 2.0;
/// The bound of a small all-reduce of two processes. The limit is the barrier's.
const ALLREDUCE: f64 = 1.7;

/// Everything that is promised, as `standpipe perf` measures it when no operation is named.
pub const PROMISED: &[Case] = &[
    case(Op::Put, 8, 1, Memory::Heap, 2.0),
    case(Op::Get, 8, 1, Memory::Heap, 2.0),
    case(Op::Put, 8, 1, Memory::Private, 1.15),
    case(Op::Get, 8, 1, Memory::Private, 1.15),
    case(Op::Get, 8, 1, Memory::Granted, 1.25),
    case(Op::Get, 64 * KIB, 1, Memory::Granted, 1.1),
    case(Op::Put, 64 * KIB, 1, Memory::Heap, 1.053),
    case(Op::Get, 64 * KIB, 1, Memory::Heap, 1.053),
    case(Op::Put, MIB, 1, Memory::Heap, 1.053),
    case(Op::Get, MIB, 1, Memory::Heap, 1.053),
    case(Op::Put, 64 * MIB, 1, Memory::Heap, 1.053),
    case(Op::Get, 64 * MIB, 1, Memory::Heap, 1.053),
    case(Op::Scatter, 8 * KIB, 1024, Memory::Private, 1.1),
    busy(case(Op::Scatter, 8 * KIB, 1024, Memory::Private, 1.1)),
    case(Op::Scatter, 8 * KIB, 1024, Memory::Granted, 1.1),
    case(Op::Scatter, 8 * KIB, 1024, Memory::OneGrant, 1.1),
    case(Op::ShareMany, 0, SHARED, Memory::Private, 1.0),
    case(Op::Strided, 64, 1024, Memory::Heap, 1.1),
    near(case(Op::Am, 0, 1, Memory::Heap, AM)),
    far(case(Op::Am, 0, 1, Memory::Heap, AM)),
    shared(case(Op::Am, 0, 1, Memory::Heap, 4.0)),
    near(case(Op::PutSignal, 8, 1, Memory::Heap, PUT_SIGNAL)),
    far(case(Op::PutSignal, 8, 1, Memory::Heap, PUT_SIGNAL)),
    shared(case(Op::PutSignal, 8, 1, Memory::Heap, 4.0)),
    case(Op::Atomic, 8, 1, Memory::Heap, 1.2),
    case(Op::Completion, 8, 1, Memory::Heap, 1.0),
    near(case(Op::CompletionFd, 0, 1, Memory::Heap, 1.3)),
    far(case(Op::CompletionFd, 0, 1, Memory::Heap, 1.3)),
    case(Op::Pending, 8, 10_000, Memory::Private, 2.0),
    near(case(Op::TryRequest, 0, 1, Memory::Heap, 1.1)),
    near(case(Op::TakePayload, 1024, 1, Memory::Heap, 1.1)),
    near(case(Op::Barrier, 0, 2, Memory::Heap, BARRIER)),
    far(case(Op::Barrier, 0, 2, Memory::Heap, BARRIER)),
    shared(case(Op::Barrier, 0, 2, Memory::Heap, 4.0)),
    case(Op::Barrier, 0, 8, Memory::Heap, 1.5),
    near(case(Op::Allreduce, 8, 2, Memory::Heap, ALLREDUCE)),
    far(case(Op::Allreduce, 8, 2, Memory::Heap, ALLREDUCE)),
    case(Op::Allreduce, 8 * MIB, 4, Memory::Heap, 1.3),
    case(Op::Allreduce, 8 * MIB, 4, Memory::Private, 1.3),
    case(Op::Alltoall, 8 * MIB, 4, Memory::Heap, 1.3),
    case(Op::Alltoall, 8 * MIB, 4, Memory::Private, 1.3),
    case(Op::Idle, 0, 2, Memory::Heap, 1.0),
    case(Op::Open, 0, 8, Memory::Heap, 1.0),
];

/// The greatest of the short sizes that [`far_bound`] is for.
const WORDS_MAX: usize = 16;

/// What is promised besides, over a provider that writes and reads by itself: words take no longer than bare
/// ones, whatever the target does.
pub fn far_words() -> impl Iterator<Item = Case> {
    let kinds = [Op::Put, Op::Get].map(|op| [Memory::Heap, Memory::Private].map(|memory| (op, memory)));
    let sizes = |(op, memory)| [4, 8, WORDS_MAX].map(|size| case(op, size, 1, memory, FAR_WORDS));
    let targets =
        |case| [Target::Asleep, Target::Busy, Target::Serving].map(|target| Case { target, ..case });
    kinds.into_iter().flatten().flat_map(sizes).flat_map(targets)
}

/// The bound of [`far_words`].
const FAR_WORDS: f64 = 1.1;

/// The bound for a case over the provider of this name.
pub fn far_bound(case: &Case, provider: Option<&str>) -> Option<f64> {
    let is_word = matches!(case.op, Op::Put | Op::Get) && case.size <= WORDS_MAX;
    // The owner of granted memory looks at each access.
    let is_word = is_word && !case.memory.is_granted();
    (is_word && provider.is_some_and(writes_by_itself)).then_some(FAR_WORDS)
}

/// Whether a provider is known to leave the target's processor alone.
pub fn writes_by_itself(provider: &str) -> bool {
    provider.starts_with("verbs")
}

/// The bound for a case that the user composed: that of the promised case it falls under.
#[must_use]
pub fn bound_for(case: &Case) -> Option<f64> {
    let bulk = 64 * KIB..=64 * MIB;
    match (case.op, case.memory) {
        (Op::Put | Op::Get, Memory::Heap) if case.size == 8 => Some(2.0),
        (Op::Put | Op::Get, Memory::Private) if case.size == 8 => Some(1.15),
        (Op::Get, Memory::Granted) if case.size <= 512 => Some(1.25),
        (Op::Get, Memory::Granted) if bulk.contains(&case.size) => Some(1.1),
        (Op::Get, Memory::Granted) => Some(1.15),
        (Op::Put | Op::Get, Memory::Heap) if bulk.contains(&case.size) => Some(1.053),
        (Op::Scatter, _) if case.size == 8 * KIB && case.n == 1024 => Some(1.1),
        (Op::ShareMany, _) if case.n == SHARED => Some(1.0),
        (Op::Strided, _) if case.size == 64 && case.n == 1024 => Some(1.1),
        (Op::Am, _) if case.size == 0 => Some(AM),
        (Op::PutSignal, _) if case.size == 8 => Some(PUT_SIGNAL),
        (Op::Atomic, _) => Some(1.2),
        (Op::Completion, _) => Some(1.0),
        (Op::CompletionFd, _) => Some(1.3),
        (Op::Pending, _) if case.n == 10_000 => Some(2.0),
        (Op::TryRequest, _) => Some(1.1),
        (Op::TakePayload, _) if case.size == 1024 => Some(1.1),
        (Op::Barrier, _) if case.n == 8 => Some(1.5),
        (Op::Barrier, _) if case.n == 2 => Some(BARRIER),
        (Op::Allreduce, _) if case.n == 2 && case.size == 8 => Some(ALLREDUCE),
        (Op::Allreduce | Op::Alltoall, _) if case.n == 4 && case.size == 8 * MIB => Some(1.3),
        (Op::Idle, _) => Some(1.0),
        (Op::Open, _) if case.n == 8 => Some(1.0),
        _ => None,
    }
}

/// What one job measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Samples {
    /// What the limit is.
    pub limit_name: String,
    /// Operations in one sample, whose mean the sample is.
    pub batch: u32,
    /// Our times for one operation, in nanoseconds.
    pub ours: Vec<f64>,
    /// The limit's, taken in turn with ours.
    pub limit: Vec<f64>,
    /// Times of a bare line bounced between the same cores, where lines are what the time depends on.
    pub line: Vec<f64>,
    /// Times of the fastest thread for a message, and of the slowest, where several send.
    pub threads: [Vec<f64>; 2],
    /// Bytes of the process's memory that one operation takes, where that is measured.
    pub bytes_each: Option<f64>,
}

impl Samples {
    /// Samples of ours and of the limit.
    #[must_use]
    pub fn new(limit_name: &str, batch: u32, ours: Vec<f64>, limit: Vec<f64>) -> Samples {
        Samples {
            limit_name: limit_name.to_owned(),
            batch,
            ours,
            limit,
            line: Vec::new(),
            threads: [Vec::new(), Vec::new()],
            bytes_each: None,
        }
    }

    /// The same with times of a bare line.
    #[must_use]
    pub fn beside_line(self, line: Vec<f64>) -> Samples {
        Samples { line, ..self }
    }

    /// The same with times of the fastest and the slowest thread.
    #[must_use]
    pub fn of_threads(self, threads: [Vec<f64>; 2]) -> Samples {
        Samples { threads, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_promise_is_found_again_for_the_same_case() {
        for case in PROMISED.iter().filter(|case| case.cores == Cores::Apart) {
            assert_eq!(bound_for(case), case.bound, "{case:?}");
        }
    }
}
