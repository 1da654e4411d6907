use super::*;
use loom::cell::UnsafeCell as Watched;
use loom::thread;
use std::sync::Arc;

const OWNER: u32 = 5;
const EPOCH: u64 = 0;
const LINE: u64 = 8;
/// Words of threads, behind their count.
const ALL: Announcements = Announcements { used: 0, first: 8, stride: 8, most: 2 };

/// The words of a process.
#[derive(Clone)]
struct Side(Arc<[AtomicU64]>);

impl Side {
    fn new(count: usize) -> Side {
        Side((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    fn line(&self) -> &[AtomicU64] {
        &self.0[1..][..LINE_WORDS]
    }
}

impl Theirs for Side {
    fn load_all<const N: usize>(&self, at: u64, orderings: [Ordering; N]) -> Option<[u64; N]> {
        let words = self.0.get(at as usize / 8..)?.get(..N)?;
        let mut loaded = [0; N];
        for ((into, word), ordering) in loaded.iter_mut().zip(words).zip(orderings) {
            *into = word.load(ordering);
        }
        Some(loaded)
    }
}

/// The owner's words, those of the process that uses what it shows, and two memories. Loom reports any access
/// to one of these that is not ordered with one that changes it.
#[derive(Clone)]
struct Scene {
    owner: Side,
    user: Side,
    memories: Arc<[Watched<u64>; 2]>,
}

/// What a line shows that stands for a memory: all of its words say which.
fn shows(memory: u64) -> [u64; LINE_WORDS - 1] {
    [memory + 1; LINE_WORDS - 1]
}

impl Scene {
    fn new() -> Scene {
        let scene = Scene {
            owner: Side::new(1 + LINE_WORDS),
            user: Side::new(3),
            memories: Arc::new([Watched::new(0), Watched::new(0)]),
        };
        show_line(scene.owner.line(), shows(0));
        begin_epoch(&scene.owner.0[0]);
        scene
    }

    /// Reaches what the line shows so many times, as a thread does that has this word.
    fn use_memory(&self, index: usize, times: usize) {
        count_word(&self.user.0[0], index as u64);
        let word = Announcement::in_word(&self.user.0[1 + index]);
        for _ in 0..times {
            word.announce(OWNER, epoch_at(&self.owner, EPOCH));
            let Some(words) = line_at(&self.owner, LINE) else { continue };
            assert!(words.iter().all(|word| *word == words[0]), "{words:?} were never together");
            let Some(memory) = (words[0] as usize).checked_sub(1) else { break };
            // SAFETY: the pointer is to the cell's number, which lives in the scene; that nobody changes it
            // meanwhile is what the model checks, and loom stops it where that is not so.
            assert_eq!(self.memories[memory].with(|value| unsafe { *value }), 0);
        }
        word.withdraw();
    }

    /// Has the line show this instead, and the first memory back once nobody is at it: then it is another
    /// object's.
    fn take_back(&self, now: [u64; LINE_WORDS - 1]) {
        show_line(self.owner.line(), now);
        let epoch = begin_epoch(&self.owner.0[0]);
        loop {
            before_looking_for_users();
            if oldest_use(&self.user, ALL, OWNER).is_none_or(|since| since >= epoch) {
                break;
            }
            thread::yield_now();
        }
        // SAFETY: as in `use_memory`: that nobody else reaches it is what the model checks.
        self.memories[0].with_mut(|value| unsafe { *value += 1 });
    }
}

/// Threads that reach what is shown so many times each, while the owner takes it back.
fn check(preemptions: usize, users: usize, times: usize, now: [u64; LINE_WORDS - 1]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(move || {
        let scene = Scene::new();
        let using: Vec<_> = (0..users)
            .map(|index| {
                let scene = scene.clone();
                thread::spawn(move || scene.use_memory(index, times))
            })
            .collect();
        scene.take_back(now);
        using.into_iter().for_each(|user| user.join().unwrap());
    });
}

#[test]
fn loom_memory_that_is_taken_back_is_reached_by_nobody() {
    check(3, 1, 2, [0; LINE_WORDS - 1]);
}

#[test]
fn loom_memory_that_two_threads_reach_is_taken_back_from_both() {
    check(2, 2, 1, [0; LINE_WORDS - 1]);
}

#[test]
fn loom_a_line_that_is_repointed_stands_for_one_memory_or_the_other() {
    check(3, 1, 2, shows(1));
}
