//! Hosts, as far as their processes can tell: network namespaces, with cables between them and a switch.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Name of each host's end of its cable.
pub(crate) const CABLE: &str = "cable";

/// The addresses that a switch's hosts have at their cables.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "each test program uses its own part of this")]
pub(crate) enum Family {
    V4,
    /// IPv6 alone, with link-local addresses.
    V6,
    /// IPv6 alone, without them.
    V6Global,
}

impl Family {
    /// The address of a host, counted from 0.
    pub(crate) fn address(self, host: usize) -> String {
        match self {
            Family::V4 => format!("10.77.0.{}", host + 1),
            Family::V6 | Family::V6Global => format!("fd77::{}", host + 1),
        }
    }

    /// The commands that give a host its address.
    fn assign(self, host: usize) -> Vec<String> {
        let address = self.address(host);
        let generate = |mode: &str| format!("ip link set {CABLE} addrgenmode {mode}");
        let v6 = format!("ip address add {address}/64 dev {CABLE} nodad");
        match self {
            Family::V4 => vec![format!("ip address add {address}/24 dev {CABLE}")],
            Family::V6 => vec![generate("eui64"), v6],
            Family::V6Global => vec![generate("none"), v6],
        }
    }
}

/// A network namespace, kept by a process that sleeps: what a host is to its processes. It goes with the
/// process.
pub(crate) struct Host(Child);

impl Host {
    fn start() -> Option<Host> {
        let sleeper = Command::new("unshare").args(["--net", "sleep", "300"]).stderr(Stdio::null()).spawn();
        let host = Host(sleeper.ok()?);
        let own = std::fs::read_link("/proc/self/ns/net").ok()?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::fs::read_link(format!("/proc/{}/ns/net", host.0.id())).ok()? == own {
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        host.run("ip link set lo up")?;
        Some(host)
    }

    /// How to run something there.
    pub(crate) fn enter(&self) -> [String; 4] {
        ["nsenter".to_owned(), format!("--target={}", self.0.id()), "--net".to_owned(), "--".to_owned()]
    }

    /// Runs a command there; `None`, and what it said, if it fails.
    pub(crate) fn run(&self, line: &str) -> Option<()> {
        self.run_words(&line.split(' ').collect::<Vec<_>>())
    }

    fn run_words(&self, words: &[&str]) -> Option<()> {
        let [nsenter, args @ ..] = self.enter();
        let output = Command::new(nsenter).args(args).args(words).output().ok()?;
        if !output.status.success() {
            eprintln!("`{}`: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        output.status.success().then_some(())
    }

    /// Runs commands there, one after the other, up to the first that fails. One such as `ipv6/bindv6only =
    /// 1` sets a value of the system's settings for networks there.
    pub(crate) fn run_all<L: AsRef<str>>(&self, lines: &[L]) -> Option<()> {
        lines.iter().try_for_each(|line| match line.as_ref().split_once(" = ") {
            Some((name, value)) => {
                self.run_words(&["sh", "-c", &format!("echo {value} > /proc/sys/net/{name}")])
            }
            None => self.run(line.as_ref()),
        })
    }

    /// How to run a program there: [`Host::enter`] before that program and its arguments and variables.
    #[allow(dead_code, reason = "each test program uses its own part of this")]
    pub(crate) fn command(&self, program: &Command) -> Command {
        let [nsenter, args @ ..] = self.enter();
        let mut command = Command::new(nsenter);
        command.args(args).arg(std::env::current_exe().expect("this program")).args(program.get_args());
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }

    /// How to run a command there, with its arguments and variables.
    #[allow(dead_code, reason = "each test program uses its own part of this")]
    pub(crate) fn around(&self, inner: &Command) -> Command {
        let [nsenter, args @ ..] = self.enter();
        let mut command = Command::new(nsenter);
        command.args(args).arg(inner.get_program()).args(inner.get_args());
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }

    /// Lays a cable between two hosts alone: its name, and the address that each end has.
    #[allow(dead_code, reason = "each test program uses its own part of this")]
    pub(crate) fn join(&self, other: &Host, name: &str, [own, its]: [&str; 2]) -> Option<()> {
        let there = other.0.id();
        self.run(&format!("ip link add {name} type veth peer name {name} netns {there}"))?;
        for (host, address) in [(self, own), (other, its)] {
            host.run(&format!("ip address add {address} dev {name}"))?;
            host.run(&format!("ip link set {name} up"))?;
        }
        Some(())
    }

    /// What a command writes there.
    pub(crate) fn hears(&self, line: &str) -> Option<String> {
        let [nsenter, args @ ..] = self.enter();
        let output = Command::new(nsenter).args(args).args(line.split(' ')).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Lays a cable to the switch, and waits until it carries anything.
    fn plug(&self, switch: &Host, number: usize, family: Family) -> Option<()> {
        let (own, its) = (self.0.id(), switch.0.id());
        let cable = format!("ip link add {CABLE} netns {own} type veth peer name port{number} netns {its}");
        let words: Vec<&str> = cable.split(' ').collect();
        let laid = Command::new(words[0]).args(&words[1..]).status().ok()?;
        laid.success().then_some(())?;
        switch.run(&format!("ip link set port{number} master switch up"))?;
        self.run_all(&family.assign(number))?;
        self.run(&format!("ip link set {CABLE} up"))?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.hears(&format!("ip -br link show {CABLE}"))?.contains(" UP ") {
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(())
    }

    /// Takes the link down, or up again.
    #[allow(dead_code, reason = "each test program uses its own part of this")]
    pub(crate) fn set_link(&self, up: bool) {
        let state = if up { "up" } else { "down" };
        self.run(&format!("ip link set {CABLE} {state}")).expect("its cable has been up");
    }

    /// Delays all that it sends; `None` where the kernel cannot.
    #[allow(dead_code, reason = "each test program uses its own part of this")]
    pub(crate) fn delay(&self, by: &str) -> Option<()> {
        self.run(&format!("tc qdisc add dev {CABLE} root netem delay {by}"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The address of a host, counted from 0.
#[allow(dead_code, reason = "each test program uses its own part of this")]
pub(crate) fn address(host: usize) -> String {
    Family::V4.address(host)
}

/// Hosts at a switch, which is the last of them; `None`, said aloud, where this user may not make any.
#[allow(dead_code, reason = "each test program uses its own part of this")]
pub(crate) fn hosts(count: usize) -> Option<Vec<Host>> {
    hosts_of(count, Family::V4)
}

/// Hosts at a switch whose addresses are of one family.
pub(crate) fn hosts_of(count: usize, family: Family) -> Option<Vec<Host>> {
    let made = || {
        let mut hosts: Vec<Host> = (0..count).map(|_| Host::start()).collect::<Option<_>>()?;
        let switch = Host::start()?;
        switch.run("ip link add switch type bridge")?;
        switch.run("ip link set switch up")?;
        hosts.iter().enumerate().try_for_each(|(number, host)| host.plug(&switch, number, family))?;
        hosts.push(switch);
        Some(hosts)
    };
    let hosts = made();
    if hosts.is_none() {
        testbed::skip("no network namespaces (they take root, and the commands unshare, nsenter and ip)");
    }
    hosts
}
