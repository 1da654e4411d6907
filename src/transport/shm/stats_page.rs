//! The counters that a process shows in its control segment, for readers that look at the job from outside.
//!
//! There are two parts of figures, one of rows about [`peers`], and one of [`latencies`], each with one
//! writer at a time. A part is a run of words: a sequence number, odd while the rest is being written; the
//! time of writing, on the process's own clock; what is shown. Watchers read it from a descriptor that does
//! not let them write, and map nothing. They may read anything: they get numbers that add up without
//! overflow.

pub(crate) mod latencies;
pub(crate) mod listener;
pub(crate) mod peers;

use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

use engine::node::RegistrationCounters;
use engine::{Counters, Mechanism, Nanos, Operation, PathReason, Tally};
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::io::Errno;

use super::control::{Control, FIGURES_AT, MAGIC_AT, STATS_AT, has_this_layout};

/// Which of a process's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Operations that complete at the call and never enter the engine.
    Direct,
    Engine,
}

const TALLIES: usize = Operation::ALL.len() * Mechanism::ALL.len();
const REGISTRATION_WORDS: usize = size_of::<RegistrationCounters>() / size_of::<u64>();
const SCALARS: usize = Counters::SCALARS.len();
const WORDS: usize = 2 * TALLIES + PathReason::ALL.len() + SCALARS + REGISTRATION_WORDS;

const PART_BYTES: u64 = ((2 + WORDS) as u64 * 8).next_multiple_of(64);
const PARTS_END: u64 = STATS_AT + 2 * PART_BYTES;

/// How often to read again what is being written. A writer takes well under a microsecond, unless it loses
/// its core.
const TRIES: usize = 16;

/// No figure is larger, so that a rank's operations of one kind add up: both parts, all mechanisms.
const FIGURE_MAX: u64 = u64::MAX >> 4;
const _: () = assert!(2 * Mechanism::ALL.len() < 1 << 4);

/// Counters as words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageCounters([u64; WORDS]);

/// The contents of a part when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageSnapshot {
    pub(crate) at: Nanos,
    pub(crate) figures: PageCounters,
}

impl PageCounters {
    pub(crate) fn new(counters: &Counters, mut registration: RegistrationCounters) -> PageCounters {
        let tallies =
            Operation::by_mechanism().map(|(operation, mechanism)| counters.get(operation, mechanism));
        let words = tallies
            .flat_map(|tally| [tally.count, tally.bytes])
            .chain(PathReason::ALL.iter().map(|why| counters.why(*why)))
            .chain(Counters::SCALARS.iter().map(|scalar| scalar.get(counters)))
            .chain(registration_words(&mut registration).map(|word| *word));
        let mut figures = [0; WORDS];
        figures.iter_mut().zip(words).for_each(|(figure, word)| *figure = word);
        PageCounters(figures)
    }

    /// The operations among them.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        let (tallies, rest) = self.0.split_at(2 * TALLIES);
        for ((operation, mechanism), words) in Operation::by_mechanism().zip(tallies.chunks_exact(2)) {
            counters.add_many(operation, mechanism, Tally { count: words[0], bytes: words[1] });
        }
        let (reasons, rest) = rest.split_at(PathReason::ALL.len());
        for (why, times) in PathReason::ALL.iter().zip(reasons) {
            counters.add_why(*why, *times);
        }
        for (scalar, word) in Counters::SCALARS.iter().zip(rest) {
            *scalar.get_mut(&mut counters) = *word;
        }
        counters
    }

    /// Counts of registration.
    pub(crate) fn registration(&self) -> RegistrationCounters {
        let mut counters = RegistrationCounters::default();
        let words = &self.0[WORDS - REGISTRATION_WORDS..];
        registration_words(&mut counters).into_iter().zip(words).for_each(|(field, word)| *field = *word);
        counters
    }
}

/// The one list of what is counted about registration. As each field can be lent once and there are as many
/// words as fields, it names all.
fn registration_words(counters: &mut RegistrationCounters) -> [&mut u64; REGISTRATION_WORDS] {
    let table = &mut counters.table;
    [
        &mut counters.hits,
        &mut counters.misses,
        &mut counters.moves,
        &mut counters.puts_in_moves,
        &mut counters.bounced,
        &mut counters.given_back,
        &mut counters.served,
        &mut table.hits,
        &mut table.rescues,
        &mut table.registrations,
        &mut table.once,
        &mut table.evictions,
        &mut table.refusals,
        &mut table.failures,
        &mut table.stuck,
        &mut table.invalidations,
        &mut table.recalls,
        &mut table.pinned,
        &mut table.pinned_peak,
        &mut table.budget,
    ]
}

impl Part {
    fn at(self) -> u64 {
        STATS_AT + u64::from(self == Part::Engine) * PART_BYTES
    }
}

impl Control {
    /// Shows figures of this process to whoever looks. One thread at a time for each part.
    pub(crate) fn publish(&self, part: Part, at: Nanos, figures: &PageCounters) {
        self.word(FIGURES_AT).store(WORDS as u64, Ordering::Relaxed);
        self.publish_words(part.at(), at, &figures.0);
    }

    fn publish_words(&self, part: u64, at: Nanos, words: &[u64]) {
        let sequence = self.word(part);
        // Any peer may have written there; odd it is all the same.
        let odd = sequence.load(Ordering::Relaxed) | 1;
        sequence.store(odd, Ordering::Relaxed);
        // A reader that sees one of the words below sees the odd number too.
        fence(Ordering::Release);
        for (index, word) in (1..).zip([at].iter().chain(words)) {
            self.word(part + 8 * index).store(*word, Ordering::Relaxed);
        }
        sequence.store(odd.wrapping_add(1), Ordering::Release);
    }
}

/// The counters that the process behind a control segment shows. `None` where it has shown nothing yet, is
/// writing without end, counts other things than this version, or the descriptor is of something else.
pub(crate) fn read(page: &OwnedFd, part: Part) -> Option<PageSnapshot> {
    let words: [u64; 1 + WORDS] = read_settled(page, part.at())?;
    if read_words(page, FIGURES_AT) != Ok([WORDS as u64]) {
        return None;
    }
    let mut figures = [0; WORDS];
    figures.iter_mut().zip(&words[1..]).for_each(|(figure, word)| *figure = (*word).min(FIGURE_MAX));
    Some(PageSnapshot { at: words[0], figures: PageCounters(figures) })
}

/// The time and the words of the part at `part`, of one time.
fn read_settled<const N: usize>(page: &OwnedFd, part: u64) -> Option<[u64; N]> {
    // Nothing but memory: reading a file of another kind may take any time.
    if !fcntl_get_seals(page).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return None;
    }
    let [mark] = read_words(page, MAGIC_AT).ok()?;
    if !has_this_layout(mark) {
        return None;
    }
    (0..TRIES).find_map(|_| read_once(page, part).unwrap_or(None))
}

/// `None` inside where it was being written.
fn read_once<const N: usize>(page: &OwnedFd, part: u64) -> Result<Option<[u64; N]>, Errno> {
    let [before] = read_words(page, part)?;
    fence(Ordering::Acquire);
    let words = read_words(page, part + 8)?;
    fence(Ordering::Acquire);
    let [after] = read_words(page, part)?;
    let settled = before == after && before != 0 && before % 2 == 0;
    Ok(settled.then_some(words))
}

fn read_words<const N: usize>(page: &OwnedFd, at: u64) -> Result<[u64; N], Errno> {
    let mut words = [0u64; N];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words[..]);
    match rustix::io::pread(page, &mut *bytes, at)? {
        all if all == bytes.len() => Ok(words),
        _ => Err(Errno::IO),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::transport::shm::control::{Identity, Mapping};
    use engine::HandlerKey;
    use vm::Segment;

    /// One of the process's.
    const HANDLER: HandlerKey = HandlerKey { number: 7, check: 8 };

    fn process() -> (Control, OwnedFd, Segment) {
        let identity = Identity {
            rank: 0,
            size: 1,
            nonce: 0,
            nonce_addr: 0,
            fences_asymmetric: false,
            ranges_only: false,
            unattended: false,
            directory: 0,
            allocated: Mapping::default(),
            heap: Mapping::default(),
        };
        let (control, segment) = Control::create(1, &identity).expect("memory for one page");
        control.show_handlers(&[HANDLER]);
        let page = segment.fd().try_clone_to_owned().expect("a descriptor");
        (control, page, segment)
    }

    fn figures(seed: u64) -> PageCounters {
        let mut counters = Counters::default();
        for (index, (operation, mechanism)) in (0..).zip(Operation::by_mechanism()) {
            counters.add_many(operation, mechanism, Tally { count: seed + index, bytes: seed * index });
        }
        for (index, why) in (0..).zip(PathReason::ALL) {
            counters.add_why(why, seed + 100 + index);
        }
        for (index, scalar) in (150..).zip(Counters::SCALARS) {
            *scalar.get_mut(&mut counters) = seed + index;
        }
        let mut registration = RegistrationCounters::default();
        for (index, word) in (200..).zip(registration_words(&mut registration)) {
            *word = seed + index;
        }
        let figures = PageCounters::new(&counters, registration);
        assert_eq!((figures.counters(), figures.registration()), (counters, registration));
        figures
    }

    #[test]
    fn what_is_shown_is_read_and_the_parts_stay_apart() {
        let (control, page, _segment) = process();
        assert_eq!(read(&page, Part::Direct), None, "nothing shown yet");
        control.publish(Part::Direct, 5, &figures(1));
        control.publish(Part::Engine, 7, &figures(1000));
        assert_eq!(read(&page, Part::Direct), Some(PageSnapshot { at: 5, figures: figures(1) }));
        assert_eq!(read(&page, Part::Engine), Some(PageSnapshot { at: 7, figures: figures(1000) }));
        assert_eq!(control.handlers(), Some((1 | 1 << 32, vec![HANDLER])), "and nothing else is overwritten");
        assert_eq!(control.barrier().load(Ordering::Relaxed), 0);
    }

    #[test]
    fn whatever_a_process_writes_there_reading_ends_and_its_figures_add_up() {
        let (control, page, _segment) = process();
        let sequence = control.word(Part::Direct.at());
        sequence.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(read(&page, Part::Direct), None, "being written, for ever");
        control.publish(Part::Direct, 1, &figures(1));
        assert_eq!(read(&page, Part::Direct), None, "a number that has gone round stands for nothing");
        control.publish(Part::Direct, 2, &PageCounters([u64::MAX; WORDS]));
        let shown = read(&page, Part::Direct).expect("shown");
        assert!(shown.figures.0.iter().all(|figure| *figure == FIGURE_MAX));
        let (messages, layout) = Control::VERSIONS;
        control.mark_as((messages + 1, layout));
        assert!(read(&page, Part::Direct).is_some(), "its messages are nothing to watchers");
        control.mark_as((messages, layout + 1));
        assert_eq!(read(&page, Part::Direct), None, "another version, which lays out otherwise");
        control.mark_as(Control::VERSIONS);
        control.word(FIGURES_AT).store(WORDS as u64 + 1, Ordering::Relaxed);
        assert_eq!(read(&page, Part::Direct), None, "another version, which counts more");
        let file = std::fs::File::open("/dev/zero").expect("every system has it");
        assert_eq!(read(&file.into(), Part::Direct), None);
    }

    #[test]
    fn no_half_of_one_time_is_read_with_half_of_another() {
        const READS: usize = 2_000;
        let (control, page, _segment) = process();
        let all = [figures(1), figures(1_000_000)];
        let done = AtomicBool::new(false);
        let give_up = Instant::now() + Duration::from_secs(60);
        let mut read_at = BTreeSet::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in (0..).take_while(|_| !done.load(Ordering::Relaxed)) {
                    control.publish(Part::Engine, at, &all[at as usize % 2]);
                    // Of many lengths: too short for a read, and long enough.
                    (0..at % 512).for_each(|_| std::hint::spin_loop());
                }
            });
            while read_at.len() < READS && Instant::now() < give_up {
                if let Some(PageSnapshot { at, figures }) = read(&page, Part::Engine) {
                    done.store(figures != all[at as usize % 2], Ordering::Relaxed);
                    assert!(!done.load(Ordering::Relaxed), "of two times, at {at}");
                    read_at.insert(at);
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(read_at.len(), READS, "so many of different times are read while others are written");
    }
}
