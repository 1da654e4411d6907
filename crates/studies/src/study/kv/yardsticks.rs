//! Times a pull beside a memcpy and a socket for the same bytes, before the replay. Then it measures how
//! much of its own work an owner still does while a peer pulls from it without a pause. Worker 1 measures,
//! worker 0 owns the block, and the others sleep.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use block_directory::{Directory, Pieces, Status, Words, addresses};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{
    job::Job,
    outcome::{percentile, sorted},
    pieces::allocate,
    plan::Plan,
    worker::Peers,
    worker_lines::Yardsticks,
};
use crate::{pattern, processor};

const OWNER: usize = 0;
const READER: usize = 1;
const ROUNDS: usize = 40;
/// Stretches of the owner's work of each kind, in turn without and with pulls; a few blocks each at least.
const STRETCHES: usize = 4;
const STRETCH: Duration = Duration::from_millis(60);
const BLOCKS_MIN: u64 = 4;
/// How long either waits for the other at its socket, and for a stretch.
const PATIENCE: Duration = Duration::from_secs(20);

/// Names of what the owner tells: its socket's port, its block's addresses, and what it has made so far.
const PORT: &str = "yardstick port";
const BLOCK: &str = "yardstick block";
const MADE: &str = "yardstick made";

/// Measures; all workers must call this, and come out of it together. Gives what was measured to worker 1.
///
/// # Errors
/// If a worker dies meanwhile, an operation fails, or the system gives no socket.
pub(crate) fn run(directory: &Directory<Job>, plan: &Plan) -> Result<Option<Yardsticks>> {
    let job = directory.words();
    let measured = match job.rank() {
        _ if job.size() <= READER => None,
        OWNER => own(directory, plan).map(|()| None)?,
        READER => Some(measure(directory, plan)?),
        _ => None,
    };
    job.barrier()?;
    directory.set_status(Status::Moving);
    job.barrier()?;
    Ok(measured)
}

/// Makes blocks until the reader is done, telling how many; a thread sends a block whenever it is asked.
fn own(directory: &Directory<Job>, plan: &Plan) -> Result<()> {
    let job = directory.words();
    let (mut block, mut other) = (new_block(plan), new_block(plan));
    fill(&mut block, 1);
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a socket for a yardstick")?;
    job.publish(MADE, &[0, 0])?;
    job.publish(BLOCK, &addresses(&block))?;
    job.publish(PORT, &[server.local_addr()?.port().into()])?;
    directory.set_status(Status::Computing);
    let sent = block.clone();
    let serving = std::thread::spawn(move || serve(&server, &sent));
    let begun = processor::time();
    let mut made = 0;
    while directory.status(READER)? != Status::Done {
        made += 1;
        fill(&mut other, made);
        // By its own processor time: what other programs take of its core is no loss to a puller.
        let took = processor::time().saturating_sub(begun);
        job.publish(MADE, &[made, u64::try_from(took.as_nanos())?])?;
        // Needed only where blocks go by message and no thread of the library's own serves them.
        job.progress();
    }
    let served = serving.join().ok().context("the thread at the yardstick's socket panicked")?;
    served.context("sending blocks by a yardstick's socket")
}

/// Sends a block for each byte that comes, until the other side closes.
fn serve(server: &TcpListener, block: &Pieces) -> Result<()> {
    let (mut stream, _) = server.accept()?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut asked = [0];
    while stream.read(&mut asked)? > 0 {
        block.iter().try_for_each(|piece| stream.write_all(piece))?;
    }
    Ok(())
}

fn measure(directory: &Directory<Job>, plan: &Plan) -> Result<Yardsticks> {
    let job = directory.words();
    let port = u16::try_from(job.find(OWNER, PORT)?.first().copied().context("a port")?)?;
    let addresses = job.find(OWNER, BLOCK)?;
    let (mut into, mut own) = (new_block(plan), new_block(plan));
    fill(&mut own, 1);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("a yardstick's socket")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let [mut pull, mut memcpy, mut socket] = [const { Vec::new() }; 3];
    // In turn: what disturbs the machine disturbs all alike. The first of each is not counted.
    for round in 0..=ROUNDS {
        let times = [
            timed(|| Ok(job.pull(OWNER, &addresses, &mut into)?))?,
            timed(|| {
                into.iter_mut().zip(&own).for_each(|(into, from)| into.copy_from_slice(from));
                Ok(())
            })?,
            timed(|| {
                stream.write_all(&[1])?;
                Ok(into.iter_mut().try_for_each(|piece| stream.read_exact(piece))?)
            })?,
        ];
        for (all, time) in [&mut pull, &mut memcpy, &mut socket].into_iter().zip(times) {
            all.extend((round > 0).then_some(time));
        }
    }
    drop(stream);
    let (mut alone, mut pulled) = (Vec::new(), Vec::new());
    for _ in 0..STRETCHES {
        alone.push(rate(job, || {
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        })?);
        pulled.push(rate(job, || Ok(job.pull(OWNER, &addresses, &mut into)?))?);
    }
    directory.set_status(Status::Done);
    let middle = |times: Vec<u64>| percentile(&sorted(times.into_iter()), 0.5);
    Ok(Yardsticks {
        pull_ns: middle(pull),
        memcpy_ns: middle(memcpy),
        socket_ns: middle(socket),
        made_alone: middle(alone),
        made_pulled: middle(pulled),
    })
}

fn timed(act: impl FnOnce() -> Result<()>) -> Result<u64> {
    let begun = Instant::now();
    act()?;
    Ok(u64::try_from(begun.elapsed().as_nanos())?)
}

/// Blocks that the owner fills in a thousand seconds of its processor time while this process does that,
/// again and again.
fn rate(job: &Job, mut act: impl FnMut() -> Result<()>) -> Result<u64> {
    let made =
        || -> Result<[u64; 2]> { job.find(OWNER, MADE)?.try_into().ok().context("a count and a time") };
    // From the end of a block on.
    let (begun, first) = (Instant::now(), made()?);
    let mut start = first;
    loop {
        act()?;
        let now = made()?;
        if start == first {
            start = now;
        }
        let [blocks, ns] = [now[0] - start[0], now[1] - start[1]];
        if begun.elapsed() >= STRETCH && blocks >= BLOCKS_MIN {
            return Ok((1e12 * blocks as f64 / ns.max(1) as f64) as u64);
        }
        ensure!(begun.elapsed() < PATIENCE, "worker {OWNER} has made {blocks} blocks in {PATIENCE:?}");
    }
}

fn new_block(plan: &Plan) -> Pieces {
    allocate(plan.layers, plan.piece_bytes, &mut ChaCha8Rng::seed_from_u64(1))
}

fn fill(block: &mut Pieces, id: u64) {
    (0..).zip(block).for_each(|(layer, piece)| pattern::fill(id, layer, piece));
}
