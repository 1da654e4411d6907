//! Which of a host's addresses data take, on hosts that are network namespaces: those by which the two have
//! met. Each case is tried by nodes that nobody launched, and by a job of the variables that torchrun leaves.
//!
//! The next case is a test of ten lines: see [`Case`].

#[path = "support/hosts.rs"]
mod hosts;
#[path = "support/members.rs"]
mod members;
#[path = "support/pids.rs"]
mod pids;
mod support;

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use hosts::{Family, Host, hosts_of};
use members::Other;
use standpipe::Node;
use support::{heap_of, hex, itself, network, publish, said, say, unhex};

/// Where ranks meet: the port after the one that they are told of.
const MEETING: u16 = 29501;

/// What nodes in roles without another transport reach each other by.
const OVER: &str = "ofi:tcp";

#[test]
fn child() {
    match std::env::var("STANDPIPE_TEST_ROLE").as_deref() {
        Ok("rank") => {
            support::role();
            match talk() {
                Ok(()) => say("all have put"),
                Err(error) => say(error),
            }
        }
        Ok("relay") => relay(),
        Ok("starved") => starve(),
        _ => members::play(),
    }
}

/// Passes a connection to the port of the ranks' meeting on to rank 0's host: what a service address does.
fn relay() {
    support::role();
    let listener = TcpListener::bind(("0.0.0.0", MEETING)).expect("a host of its own");
    let (mut from, _) = listener.accept().expect("rank 1 comes");
    let mut to = None;
    assert!(support::eventually(|| {
        to = TcpStream::connect((Family::V4.address(0), MEETING)).ok();
        to.is_some()
    }));
    let mut to = to.expect("connected");
    let (mut back_from, mut back_to) = (to.try_clone().expect("ours"), from.try_clone().expect("ours"));
    std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
    std::io::copy(&mut from, &mut to).expect("until the job ends");
}

/// Takes all ports for connections to where rank 0 is to listen, and then comes as rank 1.
fn starve() {
    support::role();
    let _listener = TcpListener::bind(("127.0.0.1", MEETING)).expect("a host of its own");
    let held: Vec<TcpStream> =
        (0..64).map_while(|_| TcpStream::connect(("127.0.0.1", MEETING)).ok()).collect();
    assert!(held.len() < 64, "there are few ports");
    match Node::open(support::config()) {
        Ok(_) => say("rank 0 came"),
        Err(error) => say(error),
    }
}

/// Puts a word to all other ranks of the job.
fn talk() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::open(support::config())?;
    let (own, size) = (node.rank(), node.size());
    let words = node.heap().alloc_zeroed::<u64>(size as usize)?;
    publish(&node, "words", words.ptr(0).to_words());
    for peer in 0..size {
        node.put(heap_of::<u64>(&node, peer, "words").add(own as usize), u64::from(own) + 1)?;
    }
    node.quiet()?;
    node.barrier()?;
    let found: Vec<u64> = (0..size as usize).map(|at| words.read(at)).collect();
    assert!(found.into_iter().eq(1..=u64::from(size)), "every rank has put its word");
    Ok(node.barrier()?)
}

/// Hosts at a switch, and what they have besides.
struct Case<'a> {
    family: Family,
    /// The commands that set up each of them.
    set_up: [&'a [&'a str]; 2],
    /// What the job's ranks are told of rank 0; `None`: the address at its cable.
    master: Option<&'a str>,
    settings: &'a [(&'a str, &'a str)],
}

const PLAIN: Case<'_> = Case { family: Family::V4, set_up: [&[], &[]], master: None, settings: &[] };

impl Case<'_> {
    /// The hosts; `None`, said aloud, where there is no network, or none can be made.
    fn hosts(&self) -> Option<Vec<Host>> {
        network()?;
        let hosts = hosts_of(2, self.family)?;
        for (host, lines) in hosts.iter().zip(self.set_up) {
            host.run_all(lines).expect("root may");
        }
        Some(hosts)
    }

    /// Nodes and a job talk across the hosts.
    fn all_talk(&self) {
        let Some(hosts) = self.hosts() else { return };
        self.nodes_talk(&hosts[0], &hosts[1]);
        self.ranks_talk([&hosts[0], &hosts[0], &hosts[1]]);
    }

    fn nodes_talk(&self, here: &Host, there: &Host) {
        let [mut one, mut other] = [here, there].map(|host| self.node(host, "found"));
        meet_well(&mut one, &mut other);
    }

    fn node(&self, host: &Host, role: &str) -> Other {
        let mut command = host.command(&itself(role));
        command.envs(self.settings.iter().copied());
        Other::start_by(command)
    }

    fn ranks_talk<const N: usize>(&self, at: [&Host; N]) {
        self.run_well(at.map(|host| host.command(&itself("rank"))));
    }

    fn run_well<const N: usize>(&self, ranks: [Command; N]) {
        for (rank, output) in self.run(ranks).into_iter().enumerate() {
            assert_eq!(last_said(&output), "all have put", "rank {rank}: {output:?}");
        }
    }

    /// Runs a job of these ranks.
    fn run<const N: usize>(&self, ranks: [Command; N]) -> [Output; N] {
        let master = self.master.map_or_else(|| self.family.address(0), str::to_owned);
        let mut rank = 0;
        let ranks = ranks.map(|mut command| {
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", N.to_string());
            command.env("MASTER_ADDR", &master).env("MASTER_PORT", "29500");
            command.env("STANDPIPE_SECRET", "5a".repeat(32)).envs(self.settings.iter().copied());
            rank += 1;
            start(command)
        });
        ranks.map(|rank| rank.wait_with_output().expect("it ends by itself"))
    }
}

fn start(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("nsenter runs")
}

fn last_said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(said).next_back().unwrap_or_default().to_owned()
}

/// Two nodes meet, and each reaches the memory of the other: they are each other's first peer.
fn meet_well(one: &mut Other, other: &mut Other) {
    assert_eq!(one.order(&format!("connect {}", hex(&other.address)), "peer"), "1");
    do_well(one, "1", other, 10);
    do_well(other, "1", one, 20);
}

/// All that one node can do with the memory of another, whose number it knows.
fn do_well(one: &mut Other, peer: &str, other: &mut Other, value: u64) {
    let word = other.array + 8;
    assert_eq!(one.order(&format!("put {peer} {word} {value}"), "put"), "Ok(())");
    assert_eq!(one.order(&format!("add {peer} {word}"), "added"), format!("Ok({value})"));
    assert_eq!(one.order(&format!("ask {peer} 5"), "ask"), "Ok(())");
    assert_eq!(other.order("read 1", "word"), (value + 1).to_string());
}

/// A bridge as Docker makes one, with a container at it: its address is the same on all hosts.
const DOCKER: &[&str] = &[
    "ip link add docker0 type bridge",
    "ip address add 172.17.0.1/16 dev docker0",
    "ip link set docker0 up",
    "ip link add container type veth peer name inside",
    "ip link set container master docker0 up",
    "ip link set inside up",
];

#[test]
fn a_docker_bridge_at_one_end_is_passed_by() {
    Case { set_up: [DOCKER, &[]], ..PLAIN }.all_talk();
    Case { set_up: [&[], DOCKER], ..PLAIN }.all_talk();
}

#[test]
fn docker_bridges_at_both_ends_with_one_address_are_passed_by() {
    Case { set_up: [DOCKER, DOCKER], ..PLAIN }.all_talk();
}

/// As load balancers add them, at `lo` and elsewhere. They lead nowhere, and are more than a host tells
/// others.
#[test]
fn more_addresses_than_are_told_leave_the_one_that_leads_to_the_peer() {
    let at_lo: Vec<String> = (1..=40).map(|last| format!("ip address add 10.9.0.{last}/32 dev lo")).collect();
    let elsewhere = (1..=40).map(|last| format!("ip address add 10.8.0.{last}/32 dev docker0"));
    let elsewhere: Vec<String> = DOCKER.iter().map(|line| (*line).to_owned()).chain(elsewhere).collect();
    let [at_lo, elsewhere] =
        [&at_lo, &elsewhere].map(|lines| lines.iter().map(String::as_str).collect::<Vec<_>>());
    let case = Case { set_up: [&at_lo, &elsewhere], ..PLAIN };
    let Some(hosts) = case.hosts() else { return };
    case.nodes_talk(&hosts[1], &hosts[0]);
    case.nodes_talk(&hosts[0], &hosts[1]);
    case.ranks_talk([&hosts[0], &hosts[0], &hosts[1]]);
}

#[test]
fn of_several_interfaces_the_one_that_leads_to_the_peer_is_taken() {
    let elsewhere = |address| {
        let address = format!("ip address add {address} dev side");
        ["ip link add side type veth peer name end", "ip link set end up", "ip link set side up", &address]
            .map(str::to_owned)
    };
    let [here, there] = ["10.1.0.1/24", "10.2.0.1/24"].map(elsewhere);
    let [here, there] = [&here, &there].map(|lines| lines.each_ref().map(String::as_str));
    Case { set_up: [&here, &there], ..PLAIN }.all_talk();
}

/// Processes of one network that cannot see each other, as those of a pod's containers, reach each other over
/// it.
#[test]
fn processes_that_share_a_network_and_do_not_see_each_other_talk() {
    if network().is_none() || !pids::are_given() {
        return;
    }
    let found = || pids::inside(&itself("found"));
    meet_well(&mut Other::start_by(found()), &mut Other::start("found"));
    meet_well(&mut Other::start("found"), &mut Other::start_by(found()));
    meet_well(&mut Other::start_by(found()), &mut Other::start_by(found()));
}

/// Without a network they are told why not.
#[test]
fn processes_that_do_not_see_each_other_are_told_so_without_a_network() {
    if !pids::are_given() {
        return;
    }
    let closed = |mut command: Command| {
        command.env("STANDPIPE_LIBFABRIC", "/dev/null");
        Other::start_by(command)
    };
    let (mut here, there) = (closed(itself("found")), closed(pids::inside(&itself("found"))));
    let said = here.order(&format!("connect {}", hex(&there.address)), "peer");
    let why = "not: the node is reached over a network only: it cannot open the network: libfabric cannot be loaded";
    assert!(said.starts_with(why), "{said}");
}

/// Launchers start ranks in containers, too.
#[test]
fn ranks_that_do_not_see_each_other_talk() {
    let Some(hosts) = PLAIN.hosts().filter(|_| pids::are_given()) else { return };
    let apart = pids::inside(&itself("rank"));
    let ranks = [hosts[0].command(&itself("rank")), hosts[0].around(&apart), hosts[0].around(&apart)];
    PLAIN.run_well(ranks);
}

/// A host may come to its network later than its nodes: what they listen at then, they listen at, too.
#[test]
fn a_node_that_was_there_before_the_network_is_reached_over_it() {
    let Some(hosts) = PLAIN.hosts() else { return };
    for settings in [&[("STANDPIPE_TRANSPORT", OVER)][..], &[]] {
        let case = Case { settings, ..PLAIN };
        hosts[0].set_link(false);
        let [mut early, mut other] = [(); 2].map(|()| case.node(&hosts[0], "found"));
        hosts[0].set_link(true);
        let is_up = || hosts[0].hears("ip -br link show cable").is_some_and(|shown| shown.contains(" UP "));
        assert!(support::eventually(is_up));
        early.address = unhex(&early.order("address", "address"));
        meet_well(&mut case.node(&hosts[1], "found"), &mut early);
        meet_well(&mut other, &mut case.node(&hosts[1], "found"));
    }
}

/// Ports for connections, as few as a container may have.
const FEW_PORTS: &[&str] = &["ipv4/ip_local_port_range = 40000 40003"];

#[test]
fn who_has_no_port_left_to_connect_from_is_told_so() {
    let Some(hosts) = (Case { set_up: [FEW_PORTS, &[]], ..PLAIN }).hosts() else { return };
    let mut starved = hosts[0].command(&itself("starved"));
    starved
        .env("RANK", "1")
        .env("WORLD_SIZE", "2")
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", "29500");
    starved.env("STANDPIPE_SECRET", "5a".repeat(32)).env("STANDPIPE_MEET_MS", "1000");
    let output = start(starved).wait_with_output().expect("it ends by itself");
    let said = last_said(&output);
    assert!(said.contains("all local ports are taken") && said.contains("ip_local_port_range"), "{output:?}");
    // Nor is one left for libfabric to listen at.
    hosts[0].run_all(&["ipv4/ip_local_port_range = 40000 40000"]).expect("root may");
    let settings = &[("STANDPIPE_TRANSPORT", OVER)][..];
    let _has_it = Case { settings, ..PLAIN }.node(&hosts[0], "found");
    let mut node = hosts[0].command(&itself("found"));
    node.envs(settings.iter().copied());
    let output = start(node).wait_with_output().expect("it ends by itself");
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(why.contains("cannot be opened") && why.contains("all local ports are taken"), "{output:?}");
}

/// One address serves no two networks that know nothing of each other.
#[test]
fn a_node_at_two_networks_reaches_the_peers_of_both() {
    let Some(hosts) = PLAIN.hosts() else { return };
    let Some(beyond) = hosts_of(1, Family::V4) else { return };
    hosts[0].join(&beyond[0], "side", ["10.5.0.1/24", "10.5.0.2/24"]).expect("root may");
    beyond[0].run("ip link set cable down").expect("root may");
    let [mut one, mut two, mut three] =
        [&hosts[0], &hosts[1], &beyond[0]].map(|host| PLAIN.node(host, "found"));
    meet_well(&mut two, &mut one);
    assert_eq!(one.order(&format!("connect {}", hex(&three.address)), "peer"), "2");
    do_well(&mut one, "2", &mut three, 30);
    do_well(&mut three, "1", &mut one, 40);
    do_well(&mut two, "1", &mut one, 50);
}

/// Two that have met, and cannot reach each other's data, do not meet again and again: each time takes a
/// number for good.
#[test]
fn who_is_met_in_vain_is_told_so_and_takes_few_numbers() {
    let Some(hosts) = PLAIN.hosts() else { return };
    // Nothing leads from there to any other host.
    let here = [("STANDPIPE_LISTEN", "127.0.0.1:0")];
    let mut here = Case { settings: &here, ..PLAIN }.node(&hosts[0], "found");
    let mut there = PLAIN.node(&hosts[1], "found");
    let said = here.order(&format!("connect {}", hex(&there.address)), "peer");
    assert!(said.starts_with("not: the node was not reached") && said.contains("10.77.0.2:"), "{said}");
    assert!(support::eventually(|| there.order("lost", "lost") != "[]"));
    let lost = [&mut here, &mut there].map(|node| node.order("lost", "lost"));
    assert!(lost.iter().all(|lost| ["[1]", "[1, 2]"].contains(&lost.as_str())), "{lost:?}");
}

/// The system may keep the families apart.
const APART: &[&str] = &["ipv6/bindv6only = 1"];

#[test]
fn hosts_that_keep_the_families_apart_talk() {
    Case { set_up: [APART, &[]], ..PLAIN }.all_talk();
    Case { family: Family::V6Global, set_up: [APART, APART], ..PLAIN }.all_talk();
}

/// Each with a bridge that the other has, too.
#[test]
fn hosts_of_ipv6_alone_talk_without_link_local_addresses() {
    let bridge = [
        DOCKER,
        &["ip address add fd17::1/64 dev docker0 nodad", "ip address del 172.17.0.1/16 dev docker0"],
    ];
    let bridge = bridge.concat();
    Case { family: Family::V6Global, set_up: [&bridge, &bridge], ..PLAIN }.all_talk();
}

#[test]
fn hosts_of_ipv6_alone_talk_with_link_local_addresses() {
    Case { family: Family::V6, ..PLAIN }.all_talk();
}

/// Of a link-local address each host must know by which of its own links.
#[test]
fn a_link_local_address_is_taken_where_it_is_what_the_ranks_have_met_by() {
    let case = Case { family: Family::V6, ..PLAIN };
    let Some(hosts) = case.hosts() else { return };
    let shown = |host: &Host| host.hears("ip -6 -o address show dev cable scope link").expect("ip runs");
    let is_ready = |host| shown(host).contains("fe80") && !shown(host).contains("tentative");
    assert!(support::eventually(|| hosts[..2].iter().all(is_ready)));
    let own = shown(&hosts[0]);
    let own = own.split([' ', '/']).find(|word| word.starts_with("fe80")).expect("it is ready");
    Case { master: Some(&format!("{own}%cable")), ..case }.ranks_talk([&hosts[0], &hosts[0], &hosts[1]]);
}

/// Where the loopback interface has not the address that all others have.
#[test]
fn processes_of_a_host_without_127_0_0_1_talk_over_the_network() {
    let bare: &[&str] = &["ip address del 127.0.0.1/8 dev lo"];
    let case = Case { set_up: [bare, &[]], settings: &[("STANDPIPE_TRANSPORT", OVER)], ..PLAIN };
    let Some(hosts) = case.hosts() else { return };
    case.nodes_talk(&hosts[0], &hosts[0]);
    case.ranks_talk([&hosts[0], &hosts[0]]);
    // Nor any other of loopback.
    hosts[0].run("ip address del ::1/128 dev lo").expect("root may");
    case.ranks_talk([&hosts[0], &hosts[0]]);
}

/// A name of the job's that leads to rank 0's host, whichever that is.
const SERVICE: &[&str] = &["ip route add 10.99.0.0/24 via 10.77.0.1"];

#[test]
fn rank_0_is_reached_by_a_service_address_of_its_host() {
    let own = [DOCKER, &["ip address add 10.99.0.1/32 dev lo"]].concat();
    Case { set_up: [&own, SERVICE], master: Some("10.99.0.1"), ..PLAIN }.all_talk();
}

/// Rank 0 then listens everywhere, also where the system would keep the two families apart.
#[test]
fn rank_0_is_reached_by_a_service_address_of_another_host() {
    let (Some(_), Some(hosts)) = (network(), hosts_of(3, Family::V4)) else { return };
    hosts[0].run_all(DOCKER).expect("root may");
    hosts[0].run_all(APART).expect("root may");
    let _relay = Killed(start(hosts[2].command(&itself("relay"))));
    let master = Family::V4.address(2);
    Case { master: Some(&master), ..PLAIN }.ranks_talk([&hosts[0], &hosts[1]]);
}

/// A process that ends with its test, however that does.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// Debian's installer has a host's own name lead to 127.0.1.1 there, where others find its address.
#[test]
fn rank_0_is_reached_by_a_name_that_leads_to_loopback_at_its_own_host() {
    let Some(hosts) = PLAIN.hosts() else { return };
    if !names_are_given() {
        return;
    }
    let ranks = [(0, "127.0.1.1"), (0, "127.0.1.1"), (1, "10.77.0.1")];
    let ranks = ranks.map(|(host, leads)| hosts[host].around(&named(leads, &itself("rank"))));
    Case { master: Some("node0"), ..PLAIN }.run_well(ranks);
    // Where the name leads a rank of another host to its own loopback, it is told.
    let mut astray = hosts[1].around(&named("127.0.1.1", &itself("rank")));
    astray.env("RANK", "1").env("WORLD_SIZE", "2").env("MASTER_ADDR", "node0").env("MASTER_PORT", "29500");
    astray.env("STANDPIPE_SECRET", "5a".repeat(32)).env("STANDPIPE_MEET_MS", "2000");
    let said = last_said(&start(astray).wait_with_output().expect("it ends by itself"));
    assert!(said.contains("this host's own loopback, 127.0.1.1"), "{said}");
}

/// A command run where the name `node0` leads to that address.
fn named(leads: &str, program: &Command) -> Command {
    let name = format!("f=$(mktemp) && echo '{leads} node0' > $f && mount --bind $f /etc/hosts && rm $f");
    among_mounts(&name, program)
}

/// A command run after another that has changed its own view of the files.
fn among_mounts(first: &str, program: &Command) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{first} && exec \"$@\""), "sh"]);
    command.arg(std::env::current_exe().expect("this program")).args(program.get_args());
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// As in a bare chroot: no process can tell its host from others by what the system says there.
#[test]
fn processes_that_cannot_read_which_host_they_are_on_talk_over_the_network() {
    let Some(hosts) = PLAIN.hosts().filter(|_| names_are_given()) else { return };
    let bare = |host: usize, role: &str| {
        hosts[host].around(&among_mounts("mount -t tmpfs none /proc", &itself(role)))
    };
    let start = |host: usize| Other::start_by(bare(host, "found"));
    meet_well(&mut start(0), &mut start(1));
    meet_well(&mut start(0), &mut start(0));
    meet_well(&mut start(0), &mut Other::start_by(hosts[1].command(&itself("found"))));
    PLAIN.run_well([bare(0, "rank"), bare(0, "rank"), bare(1, "rank")]);
    let alone = Case { master: Some("127.0.0.1"), ..PLAIN };
    alone.run_well([bare(1, "rank"), bare(1, "rank")]);
}

/// Whether hosts can have names of their own; otherwise says why not.
fn names_are_given() -> bool {
    let mut getent = Command::new("unshare");
    getent.args(["--mount", "sh", "-c", "mount --bind /etc/hosts /etc/hosts && getent hosts localhost"]);
    let given = getent.output().is_ok_and(|output| output.status.success());
    if !given {
        testbed::skip("no mount namespaces (they take root, and the commands unshare and mount)");
    }
    given
}

#[test]
fn rank_0_is_reached_by_a_service_address_of_no_interface() {
    let own = [DOCKER, &["ip route add local 10.99.0.0/24 dev lo"]].concat();
    Case { set_up: [&own, SERVICE], master: Some("10.99.0.5"), ..PLAIN }.all_talk();
}

/// The ranks' launcher has them meet, and no rank has reached another.
#[test]
fn ranks_of_mpiexec_pass_the_docker_bridges_of_their_hosts_by() {
    let Some(hosts) = (Case { set_up: [DOCKER, DOCKER], ..PLAIN }).hosts() else { return };
    let at = |host: usize| hosts[host].enter().join(" ");
    let rank = itself("rank");
    let program = std::env::current_exe().expect("this program");
    let enter = format!("if [ $PMI_RANK = 0 ]; then exec {} \"$@\"; else exec {} \"$@\"; fi", at(0), at(1));
    let mut command = Command::new("mpiexec.hydra");
    command.args(["-n", "2", "sh", "-c", &enter, "sh"]).arg(program).args(rank.get_args());
    command.envs(rank.get_envs().filter_map(|(name, value)| Some((name, value?))));
    match command.stdin(Stdio::null()).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(
                text.lines().filter_map(said).filter(|line| *line == "all have put").count(),
                2,
                "{output:?}"
            );
        }
        Err(error) => testbed::skip(format_args!("mpiexec.hydra: {error}")),
    }
}

/// Bytes that a host's interface has sent.
fn bytes_sent(host: &Host, name: &str) -> u64 {
    let all = host.hears("cat /proc/net/dev").expect("cat runs");
    let figures = all.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    figures.and_then(|all| all.split_whitespace().nth(8)?.parse().ok()).expect("the ninth figure")
}

/// The user's word counts before what was reached.
#[test]
fn ranks_take_the_interface_that_is_named() {
    let Some(hosts) = PLAIN.hosts() else { return };
    hosts[0].join(&hosts[1], "side", ["10.5.0.1/24", "10.5.0.2/24"]).expect("root may");
    let at = [&hosts[0], &hosts[1]];
    Case { settings: &[("STANDPIPE_INTERFACE", "side")], ..PLAIN }.ranks_talk(at);
    assert!(bytes_sent(&hosts[0], "side") > 1000, "they have taken the other");
}
