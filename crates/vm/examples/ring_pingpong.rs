//! Bounces a cache line between two cores, and a message through two rings, in turns: what a ring adds to the least
//! that the machine allows. `cargo run --release -p standpipe-vm --example ring_pingpong`
//!
//! Two threads, bound to different cores, over shared memory as two processes would use it. Each figure is the mean
//! of a batch of round trips; printed are the best and the median batch.

#[cfg(not(loom))]
mod bench {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Instant;
    use vm::{Attention, Consumer, FenceMode, Producer, RingLayout, Segment, SharedMemory, Words};

    const TRIPS: u64 = 50_000;
    const BATCHES: usize = 15;
    const RING: RingLayout = RingLayout { slots: 64, payload_bytes: 4096 };

    fn memory(len: u64) -> Arc<SharedMemory> {
        Arc::clone(Segment::create("pingpong", len).expect("a memfd").memory())
    }

    fn nanoseconds(round_trips: impl FnOnce()) -> f64 {
        let start = Instant::now();
        round_trips();
        start.elapsed().as_nanos() as f64 / TRIPS as f64
    }

    fn await_value(word: &AtomicU64, value: u64) {
        while word.load(Ordering::Acquire) != value {}
    }

    fn bounce() -> f64 {
        let line = memory(4096).words(0, 1).expect("a page");
        let other = line.clone();
        let echo = thread::spawn(move || {
            bind(1);
            for n in 0..TRIPS {
                await_value(&other[0], 2 * n + 1);
                other[0].store(2 * n + 2, Ordering::Release);
            }
        });
        let took = nanoseconds(|| {
            for n in 0..TRIPS {
                line[0].store(2 * n + 1, Ordering::Release);
                await_value(&line[0], 2 * n + 2);
            }
        });
        echo.join().expect("the echo ends");
        took
    }

    fn ring(fence: FenceMode) -> (Producer<Words>, Consumer<Words>) {
        let memory = memory(RING.words() as u64 * 8);
        let words = memory.words(0, RING.words()).expect("just long enough");
        let producer = Producer::new(words.clone(), RING, fence).expect("a good layout");
        let mut consumer = Consumer::new(words, RING).expect("a good layout");
        consumer.set_attention(Attention::Polled);
        (producer, consumer)
    }

    fn exchange(fence: FenceMode, len: usize) -> f64 {
        let (mut there, mut at_there) = ring(fence);
        let (mut back, mut at_back) = ring(fence);
        let echo = thread::spawn(move || {
            bind(1);
            let (mut body, mut payload) = ([0; 7], Vec::new());
            for _ in 0..TRIPS {
                while !at_there.pop(&mut body, &mut payload).expect("an honest peer") {}
                assert!(!back.push(&body, &payload).expect("room").doorbell);
            }
        });
        let (mut body, mut payload) = ([0; 7], Vec::new());
        let data = vec![7; len];
        let took = nanoseconds(|| {
            for n in 0..TRIPS {
                assert!(!there.push(&[n; 7], &data).expect("room").doorbell);
                while !at_back.pop(&mut body, &mut payload).expect("an honest peer") {}
                assert_eq!(body[6], n);
            }
        });
        echo.join().expect("the echo ends");
        took
    }

    fn bind(core: usize) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        if rustix::thread::sched_setaffinity(None, &set).is_err() {
            eprintln!("cannot bind to core {core}: the figures mean little");
        }
    }

    pub(super) fn main() {
        bind(0);
        let mut figures = [const { Vec::new() }; 5];
        for _ in 0..BATCHES {
            figures[0].push(bounce());
            figures[1].push(exchange(FenceMode::Asymmetric, 0));
            figures[2].push(exchange(FenceMode::Symmetric, 0));
            figures[3].push(exchange(FenceMode::Asymmetric, 64));
            figures[4].push(exchange(FenceMode::Asymmetric, 1024));
        }
        let names =
            ["cache line, bare", "ring", "ring, full fences", "ring, 64 B payload", "ring, 1 KiB payload"];
        let median = |batches: &mut Vec<f64>| {
            batches.sort_by(f64::total_cmp);
            batches[batches.len() / 2]
        };
        let bare = median(&mut figures[0]);
        for (name, batches) in names.iter().zip(&mut figures) {
            let middle = median(batches);
            println!(
                "{name:20} best {:7.1} ns  median {middle:7.1} ns  ratio {:.2}",
                batches[0],
                middle / bare
            );
        }
    }
}

fn main() {
    #[cfg(not(loom))]
    bench::main();
}
