//! Bounces a cache line between two cores, and a message through two rings and through a link, in turns: what
//! each adds to the least that the machine allows. `cargo run --release -p standpipe-vm --example
//! ring_pingpong`
//!
//! Two threads, bound to different cores, over shared memory as two processes would use it. Each figure is
//! the mean of a batch of round trips; printed are the best and the median batch. Batches are short, so that
//! on a busy machine some of them run undisturbed.

#[cfg(not(loom))]
mod bench {
    use std::hint::{black_box, spin_loop};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};
    use vm::{
        Attention, BATON_WORDS, Consumer, Duplex, FenceMode, Producer, RingLayout, Segment, SharedMemory,
        Side, Words,
    };

    const TRIPS: u64 = 4_000;
    const BATCHES: usize = 25;
    const RING: RingLayout = RingLayout { slots: 64, payload_bytes: 4096, spill_bytes: 0 };

    fn memory(words: usize) -> SharedMemory {
        Segment::create("pingpong", words as u64 * 8).expect("a memfd").memory().clone()
    }

    fn words(count: usize) -> Words {
        memory(count).words(0, count).expect("just long enough")
    }

    /// Between two polls: without a pause the poller takes the line away from the writer.
    #[inline(always)]
    fn pause() {
        spin_loop();
        spin_loop();
    }

    /// Nanoseconds a round trip, with an echo on another core.
    fn round_trips(echo: impl FnOnce() + Send, trips: impl FnOnce()) -> f64 {
        let started = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                bind(1);
                started.store(true, Ordering::Release);
                echo();
            });
            while !started.load(Ordering::Acquire) {
                thread::sleep(Duration::from_micros(20));
            }
            bind(0);
            let start = Instant::now();
            trips();
            start.elapsed().as_nanos() as f64 / TRIPS as f64
        })
    }

    fn await_value(word: &AtomicU64, value: u64) {
        while word.load(Ordering::Acquire) != value {
            pause();
        }
    }

    fn bounce() -> f64 {
        let line = words(1);
        let other = line.clone();
        let echo = move || {
            for n in 0..TRIPS {
                await_value(&other[0], 2 * n + 1);
                other[0].store(2 * n + 2, Ordering::Release);
            }
        };
        round_trips(echo, || {
            for n in 0..TRIPS {
                line[0].store(2 * n + 1, Ordering::Release);
                await_value(&line[0], 2 * n + 2);
            }
        })
    }

    fn ring(fence: FenceMode) -> (Producer<Words>, Consumer<Words>) {
        let words = words(RING.words());
        let producer = Producer::new(words.clone(), RING, fence).expect("a good layout");
        let mut consumer = Consumer::new(words, RING).expect("a good layout");
        consumer.set_attention(Attention::Polled);
        (producer, consumer)
    }

    fn rings(fence: FenceMode, len: usize) -> f64 {
        let (mut there, mut at_there) = ring(fence);
        let (mut back, mut at_back) = ring(fence);
        let echo = move || {
            let (mut body, mut payload) = ([0; 7], Vec::new());
            for _ in 0..TRIPS {
                while !at_there.pop(&mut body, &mut payload).expect("an honest peer") {
                    pause();
                }
                assert!(!back.push(&body, &payload).expect("room").doorbell);
            }
        };
        let (mut body, mut payload) = ([0; 7], Vec::new());
        let data = vec![7; len];
        round_trips(echo, || {
            for n in 0..TRIPS {
                assert!(!there.push(&[n; 7], &data).expect("room").doorbell);
                while !at_back.pop(&mut body, &mut payload).expect("an honest peer") {
                    pause();
                }
                assert_eq!(body[6], n);
            }
        })
    }

    fn link(fence: FenceMode, len: usize) -> f64 {
        let (there, at_there) = ring(fence);
        let (back, at_back) = ring(fence);
        let baton = words(BATON_WORDS);
        let mut first = Duplex::new(Side::First, baton.clone(), there, at_back).expect("enough words");
        let mut second = Duplex::new(Side::Second, baton, back, at_there).expect("enough words");
        let echo = move || {
            let (mut body, mut payload) = ([0; 7], Vec::new());
            for _ in 0..TRIPS {
                while !second.pop(&mut body, &mut payload).expect("an honest peer") {
                    pause();
                }
                assert!(!second.push(&body, &payload).expect("room").doorbell);
            }
        };
        let (mut body, mut payload) = ([0; 7], Vec::new());
        let data = vec![7; len];
        round_trips(echo, || {
            for n in 0..TRIPS {
                assert!(!first.push(&[n; 7], &data).expect("room").doorbell);
                while !first.pop(&mut body, &mut payload).expect("an honest peer") {
                    pause();
                }
                assert_eq!(body[6], n);
            }
        })
    }

    /// As `link`, with `work` ns of computing between taking a message and answering it, on both sides;
    /// `kept`: the line is not handed over.
    fn slow_link(work: u32, kept: bool) -> f64 {
        let (there, at_there) = ring(FenceMode::Asymmetric);
        let (back, at_back) = ring(FenceMode::Asymmetric);
        let baton = words(BATON_WORDS);
        let as_wanted = |link: Duplex<Words>| if kept { link.with_oneself() } else { link };
        let first = Duplex::new(Side::First, baton.clone(), there, at_back).expect("enough words");
        let second = Duplex::new(Side::Second, baton, back, at_there).expect("enough words");
        let (mut first, mut second) = (as_wanted(first), as_wanted(second));
        let steps = steps_for(work);
        let echo = move || {
            let (mut body, mut payload) = ([0; 7], Vec::new());
            for _ in 0..TRIPS {
                while !second.pop(&mut body, &mut payload).expect("an honest peer") {
                    pause();
                }
                body[0] = compute(steps, body[0]);
                assert!(!second.push(&body, &payload).expect("room").doorbell);
            }
        };
        let (mut body, mut payload) = ([0; 7], Vec::new());
        round_trips(echo, || {
            for _ in 0..TRIPS {
                body[0] = compute(steps, body[0]);
                assert!(!first.push(&body, &[]).expect("room").doorbell);
                while !first.pop(&mut body, &mut payload).expect("an honest peer") {
                    pause();
                }
            }
        })
    }

    /// Something that takes as long as `steps` multiplications, one after the other.
    #[inline(always)]
    fn compute(steps: u32, seed: u64) -> u64 {
        (0..steps).fold(seed, |value, _| black_box(value).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The steps that take so many nanoseconds.
    fn steps_for(nanos: u32) -> u32 {
        const MANY: u32 = 100_000;
        let start = Instant::now();
        black_box(compute(MANY, 1));
        (f64::from(nanos) * f64::from(MANY) / start.elapsed().as_nanos() as f64) as u32
    }

    fn bind(core: usize) {
        if vm::host::bind_to_core(core).is_err() {
            eprintln!("cannot bind to core {core}: the figures mean little");
        }
    }

    type Measure = (&'static str, fn() -> f64);

    const MEASURES: [Measure; 17] = [
        ("cache line, bare", bounce),
        ("link", || link(FenceMode::Asymmetric, 0)),
        ("link, full fences", || link(FenceMode::Symmetric, 0)),
        ("link, 16 B payload", || link(FenceMode::Asymmetric, 16)),
        ("link, 64 B payload", || link(FenceMode::Asymmetric, 64)),
        ("link, 448 B payload", || link(FenceMode::Asymmetric, 448)),
        ("link, 10 ns of work", || slow_link(10, false)),
        ("  the line kept", || slow_link(10, true)),
        ("link, 25 ns of work", || slow_link(25, false)),
        ("  the line kept", || slow_link(25, true)),
        ("link, 40 ns of work", || slow_link(40, false)),
        ("  the line kept", || slow_link(40, true)),
        ("rings", || rings(FenceMode::Asymmetric, 0)),
        ("rings, full fences", || rings(FenceMode::Symmetric, 0)),
        ("rings, 64 B payload", || rings(FenceMode::Asymmetric, 64)),
        ("rings, 448 B payload", || rings(FenceMode::Asymmetric, 448)),
        ("rings, 1 KiB payload", || rings(FenceMode::Asymmetric, 1024)),
    ];

    pub(super) fn main() {
        let mut figures = MEASURES.map(|_| Vec::new());
        for _ in 0..BATCHES {
            for (batches, (_, measure)) in figures.iter_mut().zip(MEASURES) {
                batches.push(measure());
            }
        }
        for batches in &mut figures {
            batches.sort_by(f64::total_cmp);
        }
        let bare = &figures[0];
        for ((name, _), batches) in MEASURES.iter().zip(&figures) {
            let (best, median) = (batches[0], batches[BATCHES / 2]);
            let ratios = (best / bare[0], median / bare[BATCHES / 2]);
            println!(
                "{name:21} best {best:7.1} ns ({:.2})  median {median:7.1} ns ({:.2})",
                ratios.0, ratios.1
            );
        }
    }
}

fn main() {
    #[cfg(not(loom))]
    bench::main();
}
