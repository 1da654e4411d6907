//! What watching memory costs: page faults, calls that unmap, and lookups while changes rain.
//!
//! `cargo run --release -p standpipe-vm --example watch_cost [ROUNDS]`. Watched and not watched take turns;
//! the figures are medians, and worth nothing on a machine that does other things.

fn main() {
    let rounds = std::env::args().nth(1).map_or(2001, |rounds| rounds.parse().expect("a number of rounds"));
    let monitor = match vm::Monitor::of_process() {
        Ok(monitor) => monitor,
        Err(error) => return eprintln!("{error}"),
    };
    println!("rounds: {rounds}; medians");
    for pages in [1, 16, 256] {
        measure::unmapping(&monitor, pages, rounds);
    }
    measure::faulting(&monitor, 4096);
    measure::looking_up(&monitor, rounds);
}

mod measure {
    use std::hint::black_box;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use vm::Monitor;

    const PAGE: usize = 4096;
    /// Lookups between two readings of the clock.
    const LOOKUPS: u32 = 1024;

    /// Fresh pages.
    struct Pages(*mut u8, usize);

    impl Pages {
        fn new(count: usize) -> Pages {
            let (bytes, rights) = (count * PAGE, ProtFlags::READ | ProtFlags::WRITE);
            // SAFETY: a new mapping wherever there is room, of which nobody knows but this.
            let at = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, rights, MapFlags::PRIVATE) };
            Pages(at.expect("memory").cast(), bytes)
        }

        fn write(&self) {
            for at in (0..self.1).step_by(PAGE) {
                // SAFETY: inside the mapping, which is writable and nobody else's while this lives.
                unsafe { self.0.add(at).write_volatile(1) }
            }
        }

        fn watch(&self, monitor: &Monitor) {
            monitor.watch(self.0 as u64, self.1 as u64).expect("it is private");
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: the mapping is this value's alone, and nobody borrows of it when it goes.
            unsafe { munmap(self.0.cast(), self.1) }.expect("mapped so far");
        }
    }

    fn median(mut ns: Vec<f64>) -> f64 {
        ns.sort_by(f64::total_cmp);
        ns[ns.len() / 2]
    }

    pub(super) fn unmapping(monitor: &Monitor, pages: usize, rounds: usize) {
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (watched, took) in took.iter_mut().enumerate() {
                let memory = Pages::new(pages);
                memory.write();
                if watched == 1 {
                    memory.watch(monitor);
                }
                let start = Instant::now();
                drop(memory);
                took.push(start.elapsed().as_nanos() as f64);
            }
        }
        let [plain, watched] = took.map(median);
        println!("munmap of {pages} pages: {plain:.0} ns, watched {watched:.0} ns, {:.2} x", watched / plain);
    }

    pub(super) fn faulting(monitor: &Monitor, pages: usize) {
        let faults = |watched: bool| {
            let memory = Pages::new(pages);
            memory.write();
            if watched {
                memory.watch(monitor);
            }
            let before = minor_faults();
            memory.write();
            minor_faults() - before
        };
        println!("page faults of writing {pages} pages again: {}, watched {}", faults(false), faults(true));
    }

    fn minor_faults() -> i64 {
        // SAFETY: the structure is written to where it fits; zero is a value of all its fields.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
            usage.ru_minflt
        }
    }

    pub(super) fn looking_up(monitor: &Arc<Monitor>, rounds: usize) {
        let mut follower = monitor.follow();
        let mut lookups = || {
            let start = Instant::now();
            for _ in 0..LOOKUPS {
                follower.catch_up(|changed| _ = black_box(changed));
            }
            start.elapsed().as_nanos() as f64 / f64::from(LOOKUPS)
        };
        let quiet = median((0..rounds).map(|_| lookups()).collect());
        let stop = AtomicBool::new(false);
        let before = monitor.counters().unmapped;
        let rain = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    Pages::new(1).watch(monitor);
                }
            });
            let rain = median((0..rounds).map(|_| lookups()).collect());
            stop.store(true, Ordering::Relaxed);
            rain
        });
        let changes = monitor.counters().unmapped - before;
        println!(
            "a lookup: {quiet:.2} ns, while {changes} changes rained {rain:.2} ns, {:.2} x",
            rain / quiet
        );
    }
}
