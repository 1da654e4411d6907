//! Bare libfabric between two processes of this machine: what Standpipe's network transport is measured
//! against.
//!
//! `cargo run --release -p standpipe-fabric --example bare -- [PROVIDER] [auto]` prints, for each size, the
//! time of
//! - a *write* until its buffer may be used again, one at a time;
//! - a *delivered* write, until the data are in the target's memory;
//! - a *read*;
//! - a *ping-pong* of writes, half the way there and back: each side sees the other's last byte change;
//!
//! and the bandwidth of writes and reads with sixteen in flight. Each number is the median over batches. The
//! other process polls all the time. By default providers make progress only when polled; `auto` leaves it to
//! them.

use fabric::{
    Access, Completion, Desc, Endpoint, Fabric, Hints, Local, Options, Peer, Post, Provider, Remote,
    RemotePiece, Until,
};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BYTES_MAX: usize = 1 << 20;
const KEY: u64 = 1;
/// Half of each side's memory: what it sends ends at its end, and what comes in ends at the end of the other
/// half.
const HALF: usize = BYTES_MAX;
const IN_FLIGHT: u64 = 16;
/// How long one number is measured.
const CELL: Duration = Duration::from_millis(200);
const BATCHES: usize = 20;
/// Set in the process that is only there to be written and read.
const TARGET: &str = "STANDPIPE_FABRIC_BARE_TARGET";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let auto = words.iter().any(|word| word == "auto");
    let name = words.iter().find(|word| *word != "auto").map_or("tcp", String::as_str);
    let source = (name != "shm").then(|| "127.0.0.1".to_owned());
    let hints =
        Hints { provider: Some(name.into()), source, manual: !auto, delivery: true, ..Hints::default() };
    let provider = Fabric::load()?.providers(&hints)?.into_iter().next().ok_or("no such provider here")?;
    let mut side = Side::open(&provider)?;
    if std::env::var_os(TARGET).is_some() {
        return side.serve();
    }
    println!("{} of libfabric {}", provider.description().provider, Fabric::load()?.version());
    println!("progress of transfers: {:?}", provider.description().data_progress);
    let mut target = side.start_target()?;
    let measured = side.table();
    target.kill()?;
    target.wait()?;
    measured
}

/// One process's end: an endpoint, and memory for it and for the peer.
struct Side {
    endpoint: Endpoint,
    memory: *mut u8,
    desc: Desc,
    key: u64,
    remote_addr: u64,
    /// Known once the other side has said so.
    at: Option<Remote>,
}

impl Side {
    fn open(provider: &Provider) -> Result<Side> {
        let mut endpoint = Endpoint::open(provider, &Options::default())?;
        let memory = Box::leak(vec![0_u64; 2 * HALF / 8].into_boxed_slice()).as_mut_ptr().cast();
        // SAFETY: the memory is leaked, and reached through raw pointers only.
        let region = unsafe { endpoint.register(memory, 2 * HALF, Access::ALL, KEY) }?;
        Ok(Side {
            endpoint,
            memory,
            desc: region.desc,
            key: region.key,
            remote_addr: region.remote_addr,
            at: None,
        })
    }

    /// The end of what is sent from here.
    fn source(&self, len: usize) -> Local {
        Local { addr: self.memory.wrapping_add(HALF - len), len, desc: self.desc }
    }

    /// The end of where the other side's memory takes what is sent.
    fn landing(&self, len: usize) -> Remote {
        let at = self.at.expect("met before anything is measured");
        Remote { addr: at.addr + (2 * HALF - len) as u64, ..at }
    }

    /// The last word sent from here.
    fn sent(&self) -> *mut u64 {
        self.memory.wrapping_add(HALF - 8).cast()
    }

    /// The last word that has come in.
    fn landed(&self) -> u64 {
        // SAFETY: inside the leaked memory and aligned; volatile, as the other side writes it.
        unsafe { self.memory.add(2 * HALF - 8).cast::<u64>().read_volatile() }
    }

    /// What the other side must know, in one line.
    fn introduction(&self) -> String {
        let address: String = self.endpoint.address().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("bare: {address} {} {}", self.remote_addr, self.key)
    }

    fn meet(&mut self, line: &str) -> Result<()> {
        let mut words = line.split(' ').skip(1);
        let mut word = || words.next().ok_or("a word is missing");
        let address = word()?;
        let digits = |at: usize| u8::from_str_radix(&address[at..at + 2], 16);
        let address =
            (0..address.len()).step_by(2).map(digits).collect::<std::result::Result<Vec<u8>, _>>()?;
        let (addr, key) = (word()?.parse()?, word()?.parse()?);
        let peer: Peer = self.endpoint.add_peer(&address)?;
        self.at = Some(Remote { peer, addr, key });
        Ok(())
    }

    fn start_target(&mut self) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args().skip(1)).env(TARGET, "").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().ok_or("it was piped")?).read_line(&mut said)?;
        self.meet(said.trim())?;
        writeln!(child.stdin.as_mut().ok_or("it was piped")?, "{}", self.introduction())?;
        Ok(child)
    }

    /// Lets the other side write and read, and answers its pings, until it ends this process.
    fn serve(&mut self) -> Result<()> {
        println!("{}", self.introduction());
        let mut said = String::new();
        std::io::stdin().read_line(&mut said)?;
        self.meet(said.trim())?;
        std::thread::spawn(|| {
            // Nothing more is said: this ends when the other process does, however that happens.
            let _ = std::io::stdin().read_line(&mut String::new());
            std::process::exit(0);
        });
        let mut last = self.landed();
        loop {
            self.progress()?;
            let ping = self.landed();
            if ping != last {
                last = ping;
                self.ping(ping)?;
            }
        }
    }

    /// Takes completions; how many there were.
    fn progress(&mut self) -> Result<u64> {
        let mut ended = 0;
        while let Some(completion) = self.endpoint.poll()? {
            match completion {
                Completion::Done { .. } => ended += 1,
                Completion::Failed { failure, .. } => return Err(failure.into()),
            }
        }
        Ok(ended)
    }

    /// Starts one operation, as soon as it is taken.
    fn post(&mut self, kind: Kind, len: usize) -> Result<()> {
        while self.try_post(kind, len)? == Post::Busy {
            if let Some(Completion::Failed { failure, .. }) = self.endpoint.poll()? {
                return Err(failure.into());
            }
        }
        Ok(())
    }

    fn try_post(&mut self, kind: Kind, len: usize) -> Result<Post> {
        let (local, remote) = (self.source(len), self.landing(len));
        let piece = RemotePiece { addr: remote.addr, len, key: remote.key };
        let endpoint = &mut self.endpoint;
        // SAFETY: the memory is leaked; all that writes to it are operations whose bytes nobody minds.
        let post = unsafe {
            match kind {
                Kind::Write => endpoint.write(local, remote, 0),
                Kind::Read => endpoint.read(local, remote, 0),
                Kind::Delivered => {
                    endpoint.write_pieces(&[local], remote.peer, &[piece], Until::Delivered, 0)
                }
            }
        };
        Ok(post?)
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Write,
    Delivered,
    Read,
}

/// What is measured.
impl Side {
    fn table(&mut self) -> Result<()> {
        let heads = ["write", "delivered", "read", "ping-pong", "write", "read"];
        let units = ["us", "us", "us", "us", "GB/s", "GB/s"];
        for words in [heads, units] {
            let first = if words == heads { "bytes" } else { "" };
            println!("{first:>8} {}", words.map(|word| format!("{word:>10}")).join(""));
        }
        let mut len = 8;
        while len <= BYTES_MAX {
            let one = |side: &mut Side, kind| side.median(|side| side.alone(kind, len));
            let many = |side: &mut Side, kind| side.median(|side| side.together(kind, len));
            let times = [
                one(self, Kind::Write)?,
                one(self, Kind::Delivered)?,
                one(self, Kind::Read)?,
                self.median(|side| side.ping_pong(len))? / 2.0,
            ];
            let rates = [many(self, Kind::Write)?, many(self, Kind::Read)?].map(|ns| len as f64 / ns);
            let times = times.map(|ns| format!("{:>10.2}", ns / 1000.0)).join("");
            println!("{len:>8} {times}{}", rates.map(|rate| format!("{rate:>10.2}")).join(""));
            len *= 4;
        }
        Ok(())
    }

    /// The median of batches of an operation, in nanoseconds an operation.
    fn median(&mut self, mut operation: impl FnMut(&mut Side) -> Result<u64>) -> Result<f64> {
        let mut batches = Vec::new();
        operation(self)?;
        for _ in 0..BATCHES {
            let (start, mut count) = (Instant::now(), 0);
            while start.elapsed() < CELL / BATCHES as u32 {
                count += operation(self)?;
            }
            batches.push(start.elapsed().as_nanos() as f64 / count as f64);
        }
        batches.sort_by(f64::total_cmp);
        Ok(batches[BATCHES / 2])
    }

    /// Operations one after the other; how many.
    fn alone(&mut self, kind: Kind, len: usize) -> Result<u64> {
        const COUNT: u64 = 16;
        for _ in 0..COUNT {
            self.post(kind, len)?;
            while self.progress()? == 0 {}
        }
        Ok(COUNT)
    }

    /// Operations of which many are under way at once; how many.
    fn together(&mut self, kind: Kind, len: usize) -> Result<u64> {
        const COUNT: u64 = 8 * IN_FLIGHT;
        let (mut posted, mut ended) = (0, 0);
        while ended < COUNT {
            if posted < COUNT && posted - ended < IN_FLIGHT {
                let before = self.endpoint.in_flight() as u64;
                self.post(kind, len)?;
                posted += 1;
                // What ended while it was not taken has been counted by nobody.
                ended += before + 1 - self.endpoint.in_flight() as u64;
            } else {
                ended += self.progress()?;
            }
        }
        Ok(COUNT)
    }

    /// Writes there and back, the last word telling that all of it has come; how many round trips.
    fn ping_pong(&mut self, len: usize) -> Result<u64> {
        const COUNT: u64 = 16;
        for _ in 0..COUNT {
            let ping = (len as u64) << 32 | (self.landed() as u32).wrapping_add(1) as u64;
            self.ping(ping)?;
            while self.landed() != ping {
                self.progress()?;
            }
        }
        Ok(COUNT)
    }

    /// Writes as many bytes as the upper half of `ping` says, with `ping` as the last ones.
    fn ping(&mut self, ping: u64) -> Result<()> {
        let len = ((ping >> 32) as usize).clamp(8, HALF);
        // SAFETY: inside the leaked memory and aligned; the last write from there has ended, or it could not
        // have been answered.
        unsafe { self.sent().write_volatile(ping) };
        if len > self.endpoint.description().inline_bytes {
            return self.post(Kind::Write, len);
        }
        let to = self.landing(len);
        let bytes = ping.to_ne_bytes();
        let mut few = vec![0; len];
        few[len - 8..].copy_from_slice(&bytes);
        while self.endpoint.write_inline(&few, to)? == Post::Busy {
            self.progress()?;
        }
        Ok(())
    }
}
