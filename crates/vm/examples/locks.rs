//! What it costs to lock and unlock when nobody competes: the biased lock for its owner and after the bias
//! was revoked, a spin lock, and the standard library's mutex. `cargo run --release -p standpipe-vm --example
//! locks`
//!
//! Printed are the best and the median of short batches, in nanoseconds for one lock and unlock.

#[cfg(not(loom))]
mod bench {
    use std::hint::black_box;
    use std::sync::Mutex;
    use std::thread;
    use std::time::Instant;
    use vm::BiasedLock;

    const TURNS: u32 = 20_000;
    const BATCHES: usize = 51;

    fn nothing() -> impl FnMut() {
        let mut value = 0_u64;
        move || *black_box(&mut value) += 1
    }

    fn biased() -> impl FnMut() {
        let lock = BiasedLock::new(0_u64);
        move || *black_box(&lock).lock() += 1
    }

    fn revoked() -> impl FnMut() {
        let lock = BiasedLock::new(0_u64);
        *lock.lock() += 1;
        thread::scope(|scope| scope.spawn(|| *lock.lock() += 1).join().expect("it only counts"));
        move || *black_box(&lock).lock() += 1
    }

    fn spin() -> impl FnMut() {
        let lock = spin::mutex::SpinMutex::<u64, spin::relax::Yield>::new(0);
        move || *black_box(&lock).lock() += 1
    }

    fn standard() -> impl FnMut() {
        let lock = Mutex::new(0_u64);
        move || *black_box(&lock).lock().expect("nobody panics") += 1
    }

    fn measure(name: &str, mut turn: impl FnMut()) {
        let mut batches: Vec<f64> = (0..BATCHES)
            .map(|_| {
                let start = Instant::now();
                (0..TURNS).for_each(|_| turn());
                start.elapsed().as_nanos() as f64 / f64::from(TURNS)
            })
            .collect();
        batches.sort_by(f64::total_cmp);
        println!("{name:22} best {:6.2} ns  median {:6.2} ns", batches[0], batches[BATCHES / 2]);
    }

    pub(super) fn main() {
        measure("no lock", nothing());
        measure("biased, owner", biased());
        measure("biased, after revoking", revoked());
        measure("spin", spin());
        measure("std", standard());
    }
}

fn main() {
    #[cfg(not(loom))]
    bench::main();
}
