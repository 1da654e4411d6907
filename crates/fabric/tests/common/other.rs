//! Another process: the test binary again, in a role.
#![allow(dead_code)]

use fabric::{Endpoint, Peer};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

const ROLE: &str = "STANDPIPE_FABRIC_TEST_ROLE";

/// The other process; killed when dropped.
pub(crate) struct Other {
    pub(crate) child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Other {
    /// Starts this binary's test `the_other_process` in a role: words that it finds with [`role`].
    pub(crate) fn start(role: &[&str]) -> Other {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", "the_other_process", "--nocapture"]);
        command.env(ROLE, role.join(" ")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this binary starts");
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().expect("piped"));
        Other { child, to, from }
    }

    /// The next line that the role says.
    pub(crate) fn line(&mut self) -> String {
        for line in (&mut self.from).lines() {
            if let Some((_, line)) = line.expect("text").split_once("role: ") {
                return line.to_owned();
            }
        }
        panic!("the other process has ended: {:?}", self.child.try_wait());
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.to.as_mut().expect("still open"), "{line}").expect("it listens");
    }

    /// Tells each side's address to the other.
    pub(crate) fn meet(&mut self, endpoint: &mut Endpoint) -> Peer {
        self.say(&hex(endpoint.address()));
        endpoint.add_peer(&unhex(&self.line())).expect("its own address")
    }

    /// Stops its being scheduled, and waits until that is so.
    pub(crate) fn pause(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("our child");
        let paused = || {
            let status =
                std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("our child");
            status.lines().any(|line| line.starts_with("State:\tT"))
        };
        let start = Instant::now();
        while !paused() {
            assert!(start.elapsed() < crate::common::LIMIT, "it goes on");
        }
    }

    /// Lets the role end by itself, and returns what it says then.
    pub(crate) fn stop(&mut self) -> String {
        self.to = None;
        self.line()
    }

    /// Lets the role end by itself, and waits for that.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.to = None;
        self.wait()
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status;
            }
            assert!(start.elapsed() < crate::common::LIMIT, "the other process does not end");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The role that this process is in, if it is another one's.
pub(crate) fn role() -> Option<Vec<String>> {
    let role = std::env::var(ROLE).ok()?;
    Some(role.split(' ').map(str::to_owned).collect())
}

/// Says a line to the process that started this one.
pub(crate) fn tell(line: &str) {
    println!("role: {line}");
}

/// What the process that started this one says, line by line; disconnected when it wants this one to end.
pub(crate) fn listen() -> Receiver<String> {
    let (to, from) = channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lines();
        lines.map_while(Result::ok).take_while(|line| to.send(line.clone()).is_ok()).for_each(drop);
    });
    from
}

/// The other side of [`Other::meet`].
pub(crate) fn meet(endpoint: &mut Endpoint, from: &Receiver<String>) -> Peer {
    tell(&hex(endpoint.address()));
    let address = unhex(&from.recv_timeout(crate::common::LIMIT).expect("it says so"));
    endpoint.add_peer(&address).expect("its own address")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len()).step_by(2).map(digits).collect()
}
