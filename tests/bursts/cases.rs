//! Cases of bursts, and which of them there are: any two values of any two factors come together in one at
//! least.

use std::fmt;

use standpipe::STAGED_MIN;
use standpipe::limits::{LIMITS, SMALL_BYTES};

use crate::support::Random;

/// What a burst consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Put,
    Get,
    PutNbi,
    GetNb,
    PutSignal,
    Atomic,
    Request,
    List,
    Strided,
    Collective,
    Directory,
}

/// How the link between the two is when the burst begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The two have never talked.
    Cold,
    /// They know of each other's memory, and have moved few bytes: nothing long has connected yet.
    Met,
    Warm,
    /// A call has just timed out, as the peer stood still.
    Lost,
    /// Its connections have just been cut.
    Cut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Heap,
    Private,
}

use Operation::{Atomic, Collective, Directory, Get, GetNb, List, Put, PutNbi, PutSignal, Request, Strided};

const OPERATIONS: [Operation; 11] =
    [Put, Get, PutNbi, GetNb, PutSignal, Atomic, Request, List, Strided, Collective, Directory];
const STATES: [State; 5] = [State::Cold, State::Met, State::Warm, State::Lost, State::Cut];
const MEMORIES: [Memory; 2] = [Memory::Heap, Memory::Private];

/// Inline, short, long and huge: what goes in an instruction, in a small buffer, straight from the caller's
/// memory, and through stages where nothing else reaches.
pub(crate) const SIZES: [usize; 4] = [8, SMALL_BYTES, SMALL_BYTES + 1, STAGED_MIN as usize + 1];
const THREADS: [usize; 2] = [1, 80];

/// Bytes of all operations of a burst together, at most: more would take seconds in any case.
const BYTES_MAX: usize = 96 << 20;

/// One burst: so many operations of so many bytes each, by these threads, one way or both ways at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) operation: Operation,
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    pub(crate) threads: usize,
    pub(crate) state: State,
    pub(crate) memory: Memory,
    pub(crate) both: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { operation, count, bytes, threads, state, memory, both } = self;
        write!(f, "{operation:?} {count} {bytes} {threads} {state:?} {memory:?} {both}")
    }
}

impl Case {
    /// The case that is written so.
    pub(crate) fn parse(text: &str) -> Option<Case> {
        let words: [&str; 7] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let [operation, count, bytes, threads, state, memory, both] = words;
        fn named<T: Copy + fmt::Debug>(all: &[T], name: &str) -> Option<T> {
            all.iter().copied().find(|one| format!("{one:?}") == name)
        }
        Some(Case {
            operation: named(&OPERATIONS, operation)?,
            count: count.parse().ok()?,
            bytes: bytes.parse().ok()?,
            threads: threads.parse().ok()?,
            state: named(&STATES, state)?,
            memory: named(&MEMORIES, memory)?,
            both: both.parse().ok()?,
        })
    }
}

/// How many at once, by a limit: one less, as many, one more, and ten times as many.
fn counts(places: usize) -> [usize; 4] {
    [places - 1, places, places + 1, 10 * places]
}

/// The numbers of places that there are, each once.
fn limits() -> Vec<usize> {
    let mut all: Vec<usize> = LIMITS.iter().map(|limit| limit.places).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What hung before places were held by what is under way alone, and its like.
pub(crate) fn first() -> Vec<Case> {
    let case = |operation, count, bytes, threads, state, memory| Case {
        operation,
        count,
        bytes,
        threads,
        state,
        memory,
        both: false,
    };
    vec![
        case(PutNbi, 65, 5000, 1, State::Met, Memory::Heap),
        case(Get, 80, 5000, 80, State::Met, Memory::Heap),
        case(PutNbi, 65, 5000, 1, State::Lost, Memory::Heap),
        case(GetNb, 65, 5000, 1, State::Lost, Memory::Heap),
        case(PutNbi, 90, 70_000, 1, State::Cut, Memory::Private),
    ]
}

/// The cases of a route whose connections can be `cut`, or not, in an order that seldom repeats what the one
/// before was about.
pub(crate) fn all(cut: bool) -> Vec<Case> {
    let limits = limits();
    let states = STATES.len() - usize::from(!cut);
    let factors = [limits.len(), 4, OPERATIONS.len(), SIZES.len(), THREADS.len(), states, MEMORIES.len(), 2];
    let case = |values: &[usize; 8]| {
        let [limit, at, operation, size, threads, state, memory, both] = *values;
        Case {
            operation: OPERATIONS[operation],
            count: counts(limits[limit])[at],
            bytes: SIZES[size],
            threads: THREADS[threads],
            state: STATES[state],
            memory: MEMORIES[memory],
            both: both == 1,
        }
    };
    let fits = |values: &[usize; 8]| {
        let case = case(values);
        let count = case.count * (1 + usize::from(case.both));
        // A copy that a cut connection took with it costs the peer: what that one begins then says nothing of
        // places.
        let is_one_sided = case.state != State::Cut || !case.both;
        is_one_sided && count * case.bytes <= BYTES_MAX && count <= most(case.operation)
    };
    let mut cases: Vec<Case> = pairwise(factors, fits).iter().map(case).collect();
    cases.retain(|case| case.count > 0);
    cases
}

/// How many of an operation a burst has at most: what one alone takes long of.
fn most(operation: Operation) -> usize {
    match operation {
        // Each is agreed on, or found, by several messages one after the other.
        Collective | Directory => 700,
        // What nobody asks about is looked at by each poll until it is over.
        PutNbi | PutSignal | List | Strided => 1_300,
        Put | Get | GetNb | Atomic | Request => 5_000,
    }
}

/// Combinations in which any two values of any two factors come together, if any that `fits` has both.
fn pairwise<const N: usize>(factors: [usize; N], fits: impl Fn(&[usize; N]) -> bool) -> Vec<[usize; N]> {
    let mut random = Random::new(1);
    let mut pairs = Vec::new();
    for (a, of_a) in factors.iter().enumerate() {
        for (b, of_b) in factors.iter().enumerate().skip(a + 1) {
            pairs.extend((0..*of_a).flat_map(|x| (0..*of_b).map(move |y| ((a, x), (b, y)))));
        }
    }
    let mut chosen: Vec<[usize; N]> = Vec::new();
    while !pairs.is_empty() {
        let ((a, x), (b, y)) = pairs[random.below(pairs.len())];
        let has = |values: &[usize; N], ((a, x), (b, y)): &((usize, usize), (usize, usize))| {
            values[*a] == *x && values[*b] == *y
        };
        let guess = |random: &mut Random| {
            let mut values = factors.map(|of| random.below(of));
            (values[a], values[b]) = (x, y);
            values
        };
        let guesses = (0..50).map(|_| guess(&mut random)).filter(&fits);
        let most = guesses.max_by_key(|values| pairs.iter().filter(|pair| has(values, pair)).count());
        match most {
            Some(values) => {
                pairs.retain(|pair| !has(&values, pair));
                chosen.push(values);
            }
            // Nothing that fits has these two.
            None => pairs.retain(|pair| *pair != ((a, x), (b, y))),
        }
    }
    chosen
}

#[test]
fn any_two_values_that_fit_come_together_and_every_case_can_be_told() {
    let cases = all(true);
    println!("{} cases", cases.len());
    for case in &cases {
        assert_eq!(Case::parse(&case.to_string()), Some(*case));
    }
    let has = |case: &Case, limit: usize, operation| {
        case.operation == operation && counts(limit).contains(&case.count)
    };
    for limit in limits() {
        for operation in OPERATIONS.into_iter().filter(|operation| most(*operation) > limit) {
            assert!(cases.iter().any(|case| has(case, limit, operation)), "{operation:?} at {limit}");
        }
    }
    for (state, threads) in STATES.iter().flat_map(|state| THREADS.map(|threads| (*state, threads))) {
        assert!(cases.iter().any(|case| case.state == state && case.threads == threads));
    }
    assert_eq!(cases, all(true), "the same each time");
}
