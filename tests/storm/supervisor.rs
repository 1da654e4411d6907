//! Who starts the processes of a storm, kills some of them, and holds the others to this:
//!
//! - every byte, word, answer and letter is what was put, by a model of the one who put it; results of
//!   collectives are a plain model's;
//! - whoever is killed or leaves is lost to everybody else, and nobody else is lost; nothing fails but with
//!   it; in a job all who live notice each kill, and soon;
//! - nothing hangs: each step ends in time, or the storm fails with what every thread is at;
//! - nothing is left when all have ended: no process, socket, shared memory or file.
//!
//! What one is killed at is no matter: everybody writes only where nobody else does, and is asked only by
//! itself.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use standpipe::host::monotonic_ns;
use standpipe::launch::{self, Launch, Outcome};

use crate::memory::{IDS, THREADS};
use crate::process::{ID, LINE, ROUGH_MS};
use crate::support::{Heard, Random, eventually, in_role, is_running, itself, job_in_role, job_of};
use crate::thread::ADDS;
use crate::verdict::{Before, Figures};

/// The storm's program of another commit, which every second process then is: what goes between the two is
/// what it was.
const BESIDE: &str = "STANDPIPE_TEST_BESIDE";

/// For a shell that is to become the first program or, as every second rank, the second, with the arguments
/// behind them.
const ONE_OF_TWO: &str =
    r#"own=$1 other=$2; shift 2; [ $((STANDPIPE_RANK % 2)) = 0 ] || own=$other; exec "$own" "$@""#;

/// Processes at first.
const PROCESSES: usize = 5;
/// At most so many at a time, and so few.
const LIVE_MAX: usize = 6;
const LIVE_MIN: usize = 2;
/// How long processes are killed.
static ROUGH: LazyLock<Duration> = LazyLock::new(|| {
    Duration::from_secs(if testbed::has_time_for("a storm of 5 seconds instead of 2") { 5 } else { 2 })
});
/// No call may take longer.
pub(crate) const CALL_MAX: Duration = Duration::from_secs(20);
/// No loss may stay unnoticed for longer in a job; the promise is 100 ms, on a machine that has time.
const NOTICE_MAX: Duration = Duration::from_secs(2);
/// No step of the storm's end may.
const STEP_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Processes that nobody launched, which join and leave at any time.
    Elastic,
    /// The ranks of a job, some of which are killed.
    Job,
}

/// One storm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) form: Form,
    /// What processes reach each other by, drawn for each.
    pub(crate) transports: &'static [&'static str],
    pub(crate) settings: &'static [(&'static str, &'static str)],
    pub(crate) seed: u64,
}

/// How a process has ended, as far as the supervisor had a part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Killed { ns: u64 },
    Leaves,
}

#[derive(Default)]
struct Process {
    child: Option<Child>,
    pid: u32,
    line: Option<UnixStream>,
    /// Where it and its memory are.
    places: Option<String>,
    said: Vec<String>,
    end: Option<End>,
    /// Its line has ended.
    gone: bool,
}

impl Process {
    fn lives(&self) -> bool {
        self.end.is_none()
    }

    fn has_said(&self, what: &str) -> bool {
        self.said.iter().any(|line| line == what)
    }
}

/// What comes by the processes' lines.
enum Said {
    Hello { id: usize, pid: u32, line: UnixStream },
    Line { id: usize, text: String },
    Gone { id: usize },
}

/// Set: what is wrong is told with the stacks of the processes, by gdb.
const STACKS: &str = "STANDPIPE_TEST_STACKS";

/// The stacks of a process's threads, if anybody wants them. Not to be asked by that process, which gdb
/// stops.
fn stacks(pid: u32) -> Option<String> {
    std::env::var_os(STACKS)?;
    let mut gdb = Command::new("timeout");
    gdb.args(["30", "gdb", "-batch", "-ex", "thread apply all bt 25", "-p", &pid.to_string()]);
    let told = gdb.output();
    Some(match told {
        Ok(told) if told.status.success() => String::from_utf8_lossy(&told.stdout).into(),
        Ok(told) => format!("gdb: {}: {}", told.status, String::from_utf8_lossy(&told.stderr)),
        Err(error) => format!("gdb: {error}"),
    })
}

struct Storm {
    setting: Setting,
    name: String,
    temporary: PathBuf,
    random: Random,
    processes: BTreeMap<usize, Process>,
    heard: Receiver<Said>,
    figures: Figures,
    failed: bool,
}

/// One storm from beginning to end. Panics where anything is not as it should be.
pub(crate) fn storm(setting: &Setting) {
    let Setting { form, transports, settings, seed } = setting;
    println!("{}={seed}: {form:?} over {transports:?} {settings:?}", crate::SEED);
    static STORMS: AtomicU32 = AtomicU32::new(0);
    let name = format!("storm-{}-{}", std::process::id(), STORMS.fetch_add(1, Ordering::Relaxed));
    let before = Before::now(&name);
    let (to, heard) = channel();
    let over = Arc::new(AtomicBool::new(false));
    let listens = listen(&name, to, Arc::clone(&over));
    let (random, processes) = (Random::new(*seed), BTreeMap::new());
    let (figures, failed) = (Figures::default(), false);
    let mut storm = Storm {
        setting: *setting,
        name: name.clone(),
        temporary: before.temporary().to_owned(),
        random,
        processes,
        heard,
        figures,
        failed,
    };
    match form {
        Form::Elastic => {
            (0..PROCESSES).for_each(|id| storm.start(id));
            storm.weather();
        }
        Form::Job => {
            let job = storm.launch();
            storm.weather();
            let outcome = job.join().expect("the launcher does not panic");
            storm.check_ends(&outcome);
            let worst = storm.figures.slowest_notice().expect("a storm without a kill");
            assert!(worst < NOTICE_MAX, "a loss went unnoticed for {worst:?}");
        }
    }
    storm.nothing_runs();
    before.nothing_is_left(&storm.all("socket "));
    println!("{}", storm.figures);
    over.store(true, Ordering::SeqCst);
    // Wakes the one who listens.
    let _ = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).expect("a name"));
    listens.join().expect("no panic");
}

/// Hands on what the processes say, until all is over.
fn listen(name: &str, to: Sender<Said>, over: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let listener = SocketAddr::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name));
    let listener = listener.expect("a free name");
    std::thread::spawn(move || {
        for line in listener.incoming().map_while(Result::ok) {
            if over.load(Ordering::SeqCst) {
                return;
            }
            let to = to.clone();
            std::thread::spawn(move || hear(line, &to));
        }
    })
}

fn hear(line: UnixStream, to: &Sender<Said>) {
    let mut lines = BufReader::new(line.try_clone().expect("a descriptor")).lines();
    // Killed before it has said a word.
    let Some(Ok(first)) = lines.next() else { return };
    let words: Vec<&str> = first.split(' ').collect();
    let ["id", id, pid] = words[..] else { panic!("no process of the storm: {first}") };
    let (id, pid) = (id.parse().expect("a number"), pid.parse().expect("a number"));
    let mut said = Some(Said::Hello { id, pid, line });
    while let Some(word) = said.take()
        && to.send(word).is_ok()
    {
        said = lines.next().and_then(Result::ok).map(|text| Said::Line { id, text });
    }
    let _ = to.send(Said::Gone { id });
}

impl Storm {
    fn transport(&mut self) -> &'static str {
        let transports = self.setting.transports;
        transports[self.random.below(transports.len())]
    }

    /// What all processes are told by their environment.
    fn environment(&mut self) -> Vec<(&'static str, String)> {
        let own = [
            (LINE, self.name.clone()),
            (crate::SEED, self.setting.seed.to_string()),
            (ROUGH_MS, ROUGH.as_millis().to_string()),
            ("STANDPIPE_TRANSPORT", self.transport().to_owned()),
            ("TMPDIR", self.temporary.display().to_string()),
        ];
        let given = self.setting.settings.iter().map(|(name, value)| (*name, (*value).to_owned()));
        own.into_iter().chain(given).collect()
    }

    fn start(&mut self, id: usize) {
        let mut command = match std::env::var_os(BESIDE) {
            Some(other) if id % 2 == 1 => in_role(Command::new(other), "storm"),
            _ => itself("storm"),
        };
        command.envs(self.environment()).env(ID, id.to_string()).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().expect("this program runs");
        let (pid, child) = (child.id(), Some(child));
        self.processes.insert(id, Process { pid, child, ..Process::default() });
    }

    fn launch(&mut self) -> std::thread::JoinHandle<Outcome> {
        let job = match std::env::var_os(BESIDE) {
            Some(other) => {
                let own = std::env::current_exe().expect("this program has a path");
                let shell = Launch::new("sh").args(["-c", ONE_OF_TWO, "sh"]).arg(own).arg(other);
                job_in_role(shell, PROCESSES as u32, "storm")
            }
            None => job_of(PROCESSES as u32, "storm"),
        };
        let job = job.keep_going(true);
        let job = self.environment().into_iter().fold(job, |job, (name, value)| job.env(name, value));
        (0..PROCESSES).for_each(|id| drop(self.processes.insert(id, Process::default())));
        std::thread::spawn(move || Heard::default().run(job))
    }

    fn weather(&mut self) {
        self.wait("all are ready", |storm| storm.living().all(|process| process.has_said("ready")));
        self.rough();
        self.calm();
    }

    fn living(&self) -> impl Iterator<Item = &Process> {
        self.processes.values().filter(|process| process.lives())
    }

    fn ids(&self) -> Vec<usize> {
        self.processes.iter().filter(|(_, process)| process.lives()).map(|(id, _)| *id).collect()
    }

    /// Kills, ends and starts processes at random moments.
    fn rough(&mut self) {
        let until = Instant::now() + *ROUGH;
        while Instant::now() < until {
            let pause = Duration::from_millis(self.random.below(700) as u64);
            self.listen_until((Instant::now() + pause).min(until));
            let (live, next) = (self.ids(), self.processes.len());
            let join = self.setting.form == Form::Elastic && live.len() < LIVE_MAX && next < IDS;
            match self.random.below(4) {
                0 | 1 if join => {
                    self.start(next);
                    if self.random.below(4) == 0 {
                        // In the middle of coming.
                        let moment = Duration::from_millis(self.random.below(60) as u64);
                        self.listen_until(Instant::now() + moment);
                        self.kill(next);
                    }
                }
                2 if self.setting.form == Form::Elastic && live.len() > LIVE_MIN => {
                    let id = live[self.random.below(live.len())];
                    if self.processes[&id].has_said("ready") {
                        self.order(id, "leave");
                        self.process(id).end = Some(End::Leaves);
                    }
                }
                _ if live.len() > LIVE_MIN => {
                    let id = live[self.random.below(live.len())];
                    self.kill(id);
                }
                _ => {}
            }
        }
    }

    fn process(&mut self, id: usize) -> &mut Process {
        self.processes.get_mut(&id).expect("it was started")
    }

    fn kill(&mut self, id: usize) {
        let process = self.process(id);
        let pid = Pid::from_raw(process.pid as i32).expect("it was started");
        process.end = Some(End::Killed { ns: monotonic_ns() });
        kill_process(pid, Signal::KILL)
            .unwrap_or_else(|error| panic!("process {id} has ended by itself: {error}"));
    }

    fn order(&mut self, id: usize, order: &str) {
        if let Some(line) = &mut self.process(id).line {
            // Where that fails, it has been killed or has failed: both show.
            let _ = writeln!(line, "{order}");
        }
    }

    fn listen_until(&mut self, moment: Instant) {
        loop {
            match self.heard.recv_timeout(moment.saturating_duration_since(Instant::now())) {
                Ok(said) => self.hear(said),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => panic!("nobody listens to the processes"),
            }
        }
    }

    /// Waits for something that must come true in time.
    fn wait(&mut self, what: &str, mut holds: impl FnMut(&Storm) -> bool) {
        let until = Instant::now() + STEP_MAX;
        while !holds(self) {
            if Instant::now() > until {
                self.fail(&format!("not in {STEP_MAX:?}: {what}"));
            }
            self.listen_until(Instant::now() + Duration::from_millis(5));
        }
    }

    /// Says what is wrong, and all that the processes have said and are at.
    fn fail(&mut self, why: &str) {
        if std::mem::replace(&mut self.failed, true) {
            return;
        }
        let all: Vec<usize> = self.processes.keys().copied().collect();
        all.into_iter().for_each(|id| self.order(id, "state"));
        self.listen_until(Instant::now() + Duration::from_secs(1));
        for (id, process) in &self.processes {
            eprintln!("process {id}, pid {}, {:?}, gone: {}", process.pid, process.end, process.gone);
            process
                .said
                .iter()
                .filter(|line| !line.starts_with("open"))
                .for_each(|line| eprintln!("    {line}"));
            if !process.gone
                && let Some(stacks) = stacks(process.pid)
            {
                eprintln!("{stacks}");
            }
        }
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let (name, seed) = (crate::SEED, self.setting.seed);
        panic!("{why}\nagain: {name}={seed} cargo test -p standpipe --test storm -- --exact {test}");
    }

    fn hear(&mut self, said: Said) {
        match said {
            Said::Hello { id, pid, line } => {
                let process = self.process(id);
                (process.pid, process.line) = (pid, Some(line));
            }
            Said::Line { id, text } => {
                self.process(id).said.push(text.clone());
                // While it is stuck: it may have gone on by the time that anything fails, or nothing may.
                if text.starts_with("state stuck") {
                    eprintln!("process {id}: {text}");
                    stacks(self.process(id).pid).into_iter().for_each(|stacks| eprintln!("{stacks}"));
                }
                if let Some(places) = text.strip_prefix("open ") {
                    self.introduce(id, places);
                } else if text.starts_with("failed") {
                    self.fail(&format!("process {id} {text}"));
                } else if ["lost ", "noticed ", "unmet "].iter().any(|word| text.starts_with(word)) {
                    self.is_gone(id, &text);
                }
            }
            Said::Gone { id } => {
                self.process(id).gone = true;
                let left = self.process(id).has_said("left");
                match self.process(id).end {
                    None => self.fail(&format!("process {id} has ended by itself")),
                    Some(End::Leaves) if !left => self.fail(&format!("process {id} did not leave well")),
                    _ => {}
                }
            }
        }
    }

    /// Each of those who live is to meet the new one, and it them, at the same time.
    fn introduce(&mut self, new: usize, places: &str) {
        self.process(new).places = Some(places.to_owned());
        for id in self.ids().into_iter().filter(|id| *id != new) {
            if let Some(others) = self.process(id).places.clone() {
                self.order(id, &format!("meet {new} {places}"));
                self.order(new, &format!("meet {id} {others}"));
            }
        }
    }

    /// One process says that another is gone. That must be true.
    fn is_gone(&mut self, by: usize, text: &str) {
        let words: Vec<&str> = text.split(' ').collect();
        let id: usize = words[1].parse().expect("a number");
        match self.processes[&id].end {
            None => self.fail(&format!("process {by} says of {id}, which lives: {text}")),
            Some(End::Killed { ns }) if words[0] != "unmet" => {
                let told: u64 = words[2].parse().expect("a time");
                // Those who were told to leave look no more.
                if self.processes[&by].lives() {
                    self.figures.lost(words[0] == "noticed", Duration::from_nanos(told.saturating_sub(ns)));
                }
            }
            Some(_) => {}
        }
    }

    /// Nobody is killed any more; the living look at all that they have done.
    fn calm(&mut self) {
        let all_are_in = |storm: &Storm| storm.living().all(|process| process.has_said("ready"));
        self.wait("all who were started are ready", all_are_in);
        let live = self.ids();
        let list: Vec<String> = live.iter().map(|id| id.to_string()).collect();
        live.iter().for_each(|id| self.order(*id, &format!("calm {}", list.join(","))));
        self.wait("all have verified what they did", |storm| {
            storm.living().all(|one| one.has_said("verified"))
        });
        if self.setting.form == Form::Job {
            self.wait("all have noticed each kill", Storm::all_have_noticed);
        }
        let total = (live.len() as u64 - 1) * THREADS as u64 * ADDS;
        live.iter().for_each(|id| self.order(*id, &format!("check {total}")));
        self.wait("all have checked what was added", |storm| {
            storm.living().all(|one| one.has_said("checked"))
        });
        for id in &live {
            self.process(*id).end = Some(End::Leaves);
            self.order(*id, "leave");
        }
        self.wait("all have ended", |storm| {
            storm.processes.values().all(|process| process.gone || process.line.is_none())
        });
        let killed =
            self.processes.values().filter(|process| matches!(process.end, Some(End::Killed { .. })));
        self.figures.processes(self.processes.len(), killed.count());
        for text in self.all("did ") {
            self.figures.did(&text);
        }
        for text in self.all("met ") {
            self.figures.met(&text);
        }
    }

    /// Whether each rank that lives has noticed each that was killed.
    fn all_have_noticed(&self) -> bool {
        let mut killed = self.processes.iter().filter(|(_, process)| !process.lives());
        killed.all(|(id, _)| {
            let noticed = format!("noticed {id} ");
            self.living().all(|one| one.said.iter().any(|line| line.starts_with(&noticed)))
        })
    }

    /// What comes after a word in everything that was said.
    fn all(&self, word: &str) -> Vec<String> {
        let said = self.processes.values().flat_map(|process| &process.said);
        said.filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect()
    }

    fn nothing_runs(&mut self) {
        for (id, process) in &mut self.processes {
            let Some(child) = &mut process.child else { continue };
            let status = child.wait().expect("ours");
            let killed = matches!(process.end, Some(End::Killed { .. }));
            assert!(killed || status.success(), "process {id} ended with {status}");
        }
        let pids: Vec<u32> = self.processes.values().map(|process| process.pid).collect();
        assert!(eventually(|| !pids.iter().any(|pid| is_running(*pid))), "a process still runs");
    }

    fn check_ends(&self, outcome: &Outcome) {
        for (id, process) in &self.processes {
            let killed = matches!(process.end, Some(End::Killed { .. }));
            let expected = if killed { launch::End::Killed(9) } else { launch::End::Exited(0) };
            assert_eq!(outcome.ranks[*id].end, expected, "rank {id}");
        }
    }
}

impl Drop for Storm {
    /// Where a storm has failed, its processes end when nobody orders them about any more; those that hang
    /// are killed.
    fn drop(&mut self) {
        for child in self.processes.values_mut().filter_map(|process| process.child.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
