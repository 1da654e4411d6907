//! A flood of samples under iceoryx2: this process publishes, and another of the same program receives and
//! answers the last. Prints nanoseconds a sample, the median of 41 floods.
//!
//!     cargo new iceoryx2_flood && cd iceoryx2_flood && cargo add iceoryx2@=0.10.0
//!     cp …/iceoryx2_flood.rs src/main.rs && cargo run --release -- BYTES SAMPLES

use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

type Publishes<T> = Publisher<ipc::Service, T, ()>;
type Subscribes<T> = Subscriber<ipc::Service, T, ()>;

const UNDER_WAY: usize = 64;
const ROUNDS: usize = 41;

/// How long one flood may take: whichever process is left alone ends then.
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize| arguments.get(at).and_then(|word| word.parse::<usize>().ok());
    let (bytes, samples) = (number(1).unwrap_or(8192), number(2).unwrap_or(1000));
    set_log_level(LogLevel::Error);
    let name = arguments.get(3).cloned().unwrap_or_else(|| format!("flood {}", std::process::id()));
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let flood = node
        .service_builder(&name.as_str().try_into()?)
        .publish_subscribe::<[u8]>()
        .subscriber_max_buffer_size(UNDER_WAY)
        .enable_safe_overflow(false)
        .open_or_create()?;
    let answers =
        node.service_builder(&format!("{name} answer").as_str().try_into()?).publish_subscribe::<u64>().open_or_create()?;
    if arguments.len() > 3 {
        let (flood, answers) = (flood.subscriber_builder().create()?, answers.publisher_builder().create()?);
        return receive(&flood, &answers, samples);
    }
    let publisher = flood
        .publisher_builder()
        .initial_max_slice_len(bytes)
        .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
        .create()?;
    let answers = answers.subscriber_builder().create()?;
    let mut other = Command::new("taskset")
        .args(["-c", "1"])
        .arg(std::env::current_exe()?)
        .args([bytes.to_string(), samples.to_string(), name])
        .spawn()?;
    // So it says that it is there.
    let times = answer(&answers).and_then(|()| send(&publisher, &answers, &vec![5; bytes], samples));
    // One that has failed here would leave it waiting.
    if times.is_err() {
        other.kill()?;
    }
    other.wait()?;
    println!("{:.1}", times?[ROUNDS / 2]);
    Ok(())
}

/// The floods' nanoseconds a sample, least first.
fn send(
    publisher: &Publishes<[u8]>,
    answers: &Subscribes<u64>,
    payload: &[u8],
    samples: usize,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut times = Vec::new();
    // The first one warms up.
    for round in 0..=ROUNDS {
        let begun = Instant::now();
        for _ in 0..samples {
            publisher.loan_slice_uninit(payload.len())?.write_from_slice(payload).send()?;
        }
        answer(answers)?;
        if round > 0 {
            times.push(begun.elapsed().as_nanos() as f64 / samples as f64);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

fn answer(answers: &Subscribes<u64>) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    while answers.receive()?.is_none() {
        in_time(begun)?;
    }
    Ok(())
}

fn receive(flood: &Subscribes<[u8]>, answers: &Publishes<u64>, samples: usize) -> Result<(), Box<dyn Error>> {
    answers.send_copy(0)?;
    for round in 0..=ROUNDS {
        let (mut came, begun) = (0, Instant::now());
        while came < samples {
            match flood.receive()? {
                Some(_) => came += 1,
                None => in_time(begun)?,
            }
        }
        answers.send_copy(round as u64)?;
    }
    Ok(())
}

/// Looks whether there is time left, between two looks for a sample.
fn in_time(begun: Instant) -> Result<(), Box<dyn Error>> {
    std::hint::spin_loop();
    if begun.elapsed() < LIMIT { Ok(()) } else { Err("the other process has not come in 20 s".into()) }
}
