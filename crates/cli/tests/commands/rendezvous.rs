//! `standpipe rendezvous` as a user calls it, and nodes that find each other there.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use standpipe::rendezvous::Rendezvous;
use standpipe::{Config, Node};

const LIMIT: Duration = Duration::from_secs(30);
const SECRET: &str = "STANDPIPE_SECRET";

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    command.arg("rendezvous").env_remove(SECRET);
    command
}

/// Ended with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nodes_find_each_other_by_name() {
    let secret = "5a".repeat(32);
    let mut command = command();
    command.args(["--listen", "127.0.0.1:0", "--json"]).env(SECRET, &secret).stdout(Stdio::piped());
    let mut running = Running(command.spawn().expect("the command runs"));
    let mut lines = BufReader::new(running.0.stdout.take().expect("piped")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("it says more").expect("text");
        serde_json::from_str(&line).expect("an object a line")
    };
    let at = next()["listening"].as_str().expect("where it listens").to_owned();

    let open = || Node::open_in(Config::new().heap_bytes(1 << 20), None).expect("a node");
    let (server, client) = (open(), open());
    let rendezvous = Rendezvous::new(&at, &secret).expect("good settings");
    rendezvous.leave("server", &server.address().expect("a node that listens"), LIMIT).expect("room");
    let address = rendezvous.find("server", LIMIT).expect("it was left");
    assert_eq!(client.connect_to(address).expect("connected"), 1);
    let mut all = [next(), next()].map(|visit| (visit["what"].clone(), visit["name"].clone()));
    all.sort_by_key(|(what, _)| what.to_string());
    assert_eq!(all, [("found".into(), "server".into()), ("left".into(), "server".into())]);

    kill_process(Pid::from_child(&running.0), Signal::TERM).expect("ours");
    assert_eq!(running.0.wait().expect("ours").code(), Some(143));
}

#[test]
fn what_nobody_reads_keeps_nobody_from_being_served() {
    let secret = "5a".repeat(32);
    let (read, write) = std::io::pipe().expect("a pipe");
    let size = rustix::pipe::fcntl_setpipe_size(&write, 4096).expect("a page");
    let mut command = command();
    let running = command.args(["--listen", "127.0.0.1:0"]).env(SECRET, &secret).stdout(write).spawn();
    let _running = Running(running.expect("the command runs"));
    let mut lines = BufReader::with_capacity(1, read).lines();
    let line = lines.next().expect("where it listens").expect("text");
    let at = line.strip_prefix("listening at ").expect("where it listens");
    let rendezvous = Rendezvous::new(at, &secret).expect("good settings");
    let node = Node::open_in(Config::new().heap_bytes(1 << 20), None).expect("a node");
    let (address, name) = (node.address().expect("a node that listens"), "n".repeat(250));
    // Twice what the pipe holds.
    for _ in 0..2 * size / name.len() {
        rendezvous.leave(&name, &address, LIMIT).expect("served");
    }
    assert!(rendezvous.find(&name, LIMIT).is_ok());
}

#[test]
fn without_a_secret_or_a_place_nothing_is_run() {
    let refused = |args: &[&str], secret: &str| {
        let output = command().args(args).env(SECRET, secret).output().expect("the command runs");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = refused(&["--listen", "127.0.0.1:0"], "");
    assert!(text.contains("STANDPIPE_SECRET is not set: it takes 64 hexadecimal digits"), "{text}");
    let text = refused(&["--listen", "nowhere"], &"5a".repeat(32));
    assert!(text.contains("nowhere"), "{text}");
}
