//! The work, and who does it by which command.

use std::collections::BTreeMap;

use serde_json::Value;

use super::environment::Environment;
use super::figures::Figures;
use crate::command::{Run, run};

/// One work, and all who do it.
pub(super) struct Row {
    pub(super) work: &'static str,
    pub(super) contestants: &'static [Contestant],
}

/// One that does the work.
pub(super) enum Contestant {
    /// `standpipe perf` with these arguments.
    Ours(&'static str),
    /// The limit of the same command: its name, and the arguments.
    Limit(&'static str, &'static str),
    /// `ucx_perftest`: its transports, test, bytes, and how many.
    Ucx { tls: &'static str, test: &'static str, bytes: u32, count: u32 },
    /// A flood under MPICH, by libfabric's `tcp` or else by shared memory: bytes, and how many.
    Mpich { tcp: bool, bytes: u32, count: u32 },
    /// A figure of a peer that no registry has, entered by hand: its name, the least and the most.
    ByHand(&'static str, [f64; 2]),
    /// A flood under iceoryx2, by shared memory: bytes, and how many.
    Iceoryx2 { bytes: u32, count: u32 },
    /// A transfer of many puts under NIXL, by UCX's `tcp`: bytes of each, and how many.
    Nixl { bytes: u32, count: u32 },
    /// A transfer of many gets under NIXL, by what its UCX picks within a host: bytes of each, and how many.
    /// The time is that of all.
    NixlList { bytes: u32, count: u32 },
    /// One call in a loop, by C or by Rust (`face` of the C library's examples): the call, and how many.
    Face { by: Language, call: &'static str, count: u32 },
}

/// In which the same calls are made.
#[derive(Clone, Copy)]
pub(super) enum Language {
    C,
    Rust,
}

use Contestant::{ByHand, Face, Iceoryx2, Limit, Mpich, Nixl, NixlList, Ours, Ucx};
use Language::{C, Rust};

const SHM: &str = "posix,self";
const TCP: &str = "tcp,self";

/// The name of the two-process copy, and that of bare libfabric.
const COPY: &str = "memcpy by two processes";
const BARE: &str = "bare libfabric";

const GASNET: &str = "GASNet-EX 2025.8 smp";

/// UCX over its `posix` transport, medium.
const fn ucx(tls: &'static str, test: &'static str, bytes: u32, count: u32) -> Contestant {
    Ucx { tls, test, bytes, count }
}

/// The same call by C and by Rust.
const fn faces(call: &'static str, count: u32) -> [Contestant; 2] {
    [Face { by: C, call, count }, Face { by: Rust, call, count }]
}

/// All rows of the page.
pub(super) const ROWS: &[Row] = &[
    Row {
        work: "short message, one way, shm",
        contestants: &[
            Ours("flood"),
            ucx(SHM, "ucp_am_bw", 8, 20_000),
            Mpich { tcp: false, bytes: 8, count: 20_000 },
            ByHand(GASNET, [78.0, 87.0]),
        ],
    },
    Row {
        work: "8 KiB, one way, shm",
        contestants: &[
            Ours("flood --size 8192"),
            ucx(SHM, "ucp_am_bw", 8192, 1000),
            Mpich { tcp: false, bytes: 8192, count: 1000 },
            ByHand(GASNET, [540.0, 540.0]),
            Iceoryx2 { bytes: 8192, count: 1000 },
        ],
    },
    Row {
        work: "1 KiB, copied out, shm",
        contestants: &[
            Ours("flood --size 1024 --copy"),
            Limit(COPY, "flood --size 1024 --copy"),
            ByHand(GASNET, [270.0, 270.0]),
        ],
    },
    Row {
        work: "8 KiB, copied out, shm",
        contestants: &[Ours("flood --size 8192 --copy"), Limit(COPY, "flood --size 8192 --copy")],
    },
    Row {
        work: "64 KiB, copied out, shm",
        contestants: &[Ours("flood --size 65536 --copy"), Limit(COPY, "flood --size 65536 --copy")],
    },
    Row {
        work: "8 bytes, one way, tcp",
        contestants: &[
            Ours("flood --size 8 --transport ofi:tcp"),
            Limit(BARE, "flood --size 8 --transport ofi:tcp"),
            ucx(TCP, "ucp_am_bw", 8, 20_000),
            Mpich { tcp: true, bytes: 8, count: 20_000 },
        ],
    },
    Row {
        work: "8 KiB, one way, tcp",
        contestants: &[
            Ours("flood --size 8192 --transport ofi:tcp"),
            Limit(BARE, "flood --size 8192 --transport ofi:tcp"),
            ucx(TCP, "ucp_am_bw", 8192, 1000),
            Mpich { tcp: true, bytes: 8192, count: 1000 },
        ],
    },
    Row {
        work: "puts of 8 bytes, then quiet, tcp",
        contestants: &[
            Ours("bandwidth --moves put --ways one --size 8 --transport ofi:tcp"),
            Limit(BARE, "bandwidth --moves put --ways one --size 8 --transport ofi:tcp"),
            ucx(TCP, "ucp_put_bw", 8, 2000),
            Nixl { bytes: 8, count: 2000 },
        ],
    },
    Row {
        work: "2,048 gets of 16 KiB, private",
        contestants: &[
            Ours("scatter --memory granted --n 2048 --size 16384"),
            Limit("process_vm_readv", "scatter --memory granted --n 2048 --size 16384"),
            NixlList { bytes: 16384, count: 2048 },
        ],
    },
    Row {
        work: "8-byte put, mapped heap",
        contestants: &[
            Face { by: C, call: "put", count: 1_000_000 },
            Face { by: Rust, call: "put", count: 1_000_000 },
            Face { by: C, call: "memcpy", count: 1_000_000 },
        ],
    },
    Row { work: "8-byte get, mapped heap", contestants: &faces("get", 1_000_000) },
    Row { work: "fetch-add, mapped heap", contestants: &faces("add", 200_000) },
    Row { work: "64-byte put, mapped heap", contestants: &faces("put64", 200_000) },
    Row { work: "64-byte get, mapped heap", contestants: &faces("get64", 200_000) },
    Row { work: "message and reply, shm", contestants: &faces("message", 10_000) },
    Row { work: "open, until the first put", contestants: &faces("open", 1) },
];

/// A server on the second core, and a client on the first that tries until the server listens.
const UCX_PAIR: &str = "taskset -c 1 $1 -p $2 -b $3 >&2 & s=$!; for try in 1 2 3 4 5 6; do sleep 0.5; \
                        taskset -c 0 $1 127.0.0.1 -p $2 -f -b $3 && break; done; kill $s 2>&-; wait $s; true";

/// Floods of `ucx_perftest` in a turn, of which the median counts: short ones, as ours are, so that other
/// programs disturb both alike.
const UCX_FLOODS: usize = 21;

/// The port at which the two meet.
const UCX_PORT: &str = "23457";

/// The rows of our own commands in one turn, by their arguments.
pub(super) type Said = BTreeMap<&'static str, Value>;

/// Seconds that one turn may take.
const LIMIT_S: u64 = 120;

impl Contestant {
    /// Its name, for the table.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Ours(_) => "Standpipe",
            Limit(name, _) | ByHand(name, _) => name,
            Ucx { .. } => "UCX 1.22.0",
            Mpich { .. } => "MPICH 5.0.2",
            Iceoryx2 { .. } => "iceoryx2 0.10.0",
            Nixl { .. } | NixlList { .. } => "NIXL 1.5.1",
            Face { call: "memcpy", .. } => "a call of memcpy",
            Face { by: C, .. } => "Standpipe by C",
            Face { by: Rust, .. } => "Standpipe by Rust",
        }
    }

    /// Its whole command line, for the page.
    pub(super) fn line(&self) -> Option<String> {
        Some(match self {
            Ours(arguments) => format!("standpipe perf {arguments}"),
            Ucx { tls, test, bytes, count } => {
                let (env, flood) = (ucx_env(tls), ucx_flood(test, *bytes, *count));
                format!(
                    "for i in $(seq {UCX_FLOODS}); do echo {flood}; done > floods\n\
                     {env} taskset -c 1 ucx_perftest -p {UCX_PORT} -b floods &\n\
                     {env} taskset -c 0 ucx_perftest 127.0.0.1 -p {UCX_PORT} -f -b floods"
                )
            }
            Mpich { tcp, bytes, count } => {
                let env: Vec<String> =
                    mpich_env(*tcp).iter().map(|(name, value)| format!("{name}={value} ")).collect();
                format!("{}mpiexec -n 2 -bind-to user:0,1 mpi_flood {bytes} {count}", env.concat())
            }
            Iceoryx2 { bytes, count } => format!("taskset -c 0 iceoryx2_flood {bytes} {count}"),
            Nixl { bytes, count } => format!("{} python3 nixl_flood.py {bytes} {count}", ucx_env(TCP)),
            NixlList { bytes, count } => format!("python3 nixl_flood.py {bytes} {count} READ"),
            Face { by, call, count } => {
                format!("standpipe run -n 2 -- {} {call} {count}", by.program())
            }
            Limit(..) | ByHand(..) => return None,
        })
    }

    /// Nanoseconds of one operation, or why there are none. A limit's is in what our own command has `said`.
    pub(super) fn measure(&self, environment: &Environment, said: &mut Said) -> Result<f64, String> {
        let figure =
            |object: &Value, key: &str| object[key].as_f64().ok_or_else(|| format!("it has no {key}"));
        match self {
            Ours(arguments) => {
                let row = perf(arguments)?;
                let median = figure(&row, "median_ns");
                said.insert(arguments, row);
                median
            }
            Limit(_, arguments) => figure(said.get(arguments).ok_or("not measured")?, "limit_ns"),
            Ucx { tls, test, bytes, count } => {
                environment.look_for("libucx-cu12")?;
                let folder = environment.ucx().ok_or("the wheel has no such folder")?;
                let program = folder.join("bin/ucx_perftest");
                let pair = with_env(run("sh -c").arg(UCX_PAIR).arg("sh"), &ucx_env(tls));
                let pair = pair.env("LD_LIBRARY_PATH", folder.join("lib")).arg(program).arg(UCX_PORT);
                let (batch, flood) = (folder.join("floods"), ucx_flood(test, *bytes, *count) + "\n");
                std::fs::write(&batch, flood.repeat(UCX_FLOODS))
                    .map_err(|error| format!("no file: {error}"))?;
                let pair = pair.arg(batch);
                let said = pair.limit_s(LIMIT_S).output().map_err(|failure| failure.0)?;
                ucx_ns(&said).ok_or_else(|| format!("it printed no figures: {}", said.trim()))
            }
            Mpich { tcp, bytes, count } => {
                environment.look_for("mpich")?;
                let job = run(&environment.bin("mpiexec")).arg("-n").arg("2").arg("-bind-to").arg("user:0,1");
                let job = job.arg(environment.bin("mpi_flood")).arg(bytes.to_string()).arg(count.to_string());
                let job = mpich_env(*tcp).iter().fold(job, |job, (name, value)| job.env(name, value));
                printed(job)
            }
            ByHand(_, [least, most]) => Ok(f64::midpoint(*least, *most)),
            Iceoryx2 { bytes, count } => {
                environment.look_for("iceoryx2")?;
                let flood = run("taskset -c 0").arg(environment.crate_flood());
                printed(flood.arg(bytes.to_string()).arg(count.to_string()))
            }
            Nixl { bytes, count } => {
                printed(with_env(environment.nixl_flood(*bytes, *count)?, &ucx_env(TCP)))
            }
            NixlList { bytes, count } => {
                let each = printed(environment.nixl_flood(*bytes, *count)?.arg("READ"))?;
                Ok(each * f64::from(*count))
            }
            Face { by, call, count } => {
                environment.look_for("face")?;
                let job = run(&format!("{}/release/standpipe run -n 2 --", target()));
                let job = job.arg(by.path(environment));
                printed(job.arg(call).arg(count.to_string()))
            }
        }
    }
}

impl Language {
    /// Where the program is that makes the calls.
    pub(super) fn path(self, environment: &Environment) -> String {
        match self {
            C => environment.bin("face"),
            Rust => format!("{}/release/examples/face", target()),
        }
    }

    fn program(self) -> &'static str {
        match self {
            C => "./face",
            Rust => "target/release/examples/face",
        }
    }
}

/// Cargo's folder.
fn target() -> String {
    std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned())
}

/// The only number that a program prints.
fn printed(program: Run) -> Result<f64, String> {
    let said = program.limit_s(LIMIT_S).output().map_err(|failure| failure.0)?;
    said.trim().parse().map_err(|_| format!("it printed no figure: {}", said.trim()))
}

/// A program with settings as a shell has them, one blank apart.
fn with_env(program: Run, settings: &str) -> Run {
    settings.split(' ').fold(program, |program, pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        program.env(name, value)
    })
}

fn ucx_env(tls: &str) -> String {
    let device = if tls == TCP { " UCX_NET_DEVICES=lo" } else { "" };
    format!("UCX_TLS={tls}{device}")
}

/// A line of a batch of `ucx_perftest`.
fn ucx_flood(test: &str, bytes: u32, count: u32) -> String {
    format!("flood -t {test} -s {bytes} -n {count} -w 200")
}

const fn mpich_env(tcp: bool) -> &'static [(&'static str, &'static str)] {
    match tcp {
        false => &[],
        true => &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1"), ("FI_PROVIDER", "tcp")],
    }
}

/// A row of `standpipe perf`.
fn perf(arguments: &str) -> Result<Value, String> {
    let command = || {
        run(&format!("{}/release/standpipe perf", target())).args(arguments).arg("--json").limit_s(LIMIT_S)
    };
    let said = match command().output() {
        Ok(said) => said,
        // A second time for its reason: it is refused at once.
        Err(_) => return Err(command().complaint().1.trim().replace('\n', " ")),
    };
    let object: Value = serde_json::from_str(&said).map_err(|error| format!("no JSON: {error}"))?;
    // A stream's rows are a list, here of one.
    Ok(object.get("rows").and_then(|rows| rows.get(0)).cloned().unwrap_or(object))
}

/// The median time of one operation over the lines of figures of `ucx_perftest -f`.
fn ucx_ns(said: &str) -> Option<f64> {
    let overall = |line: &str| {
        let figures = line.strip_prefix("flood")?.split_whitespace();
        let figures: Vec<f64> = figures.map_while(|word| word.parse().ok()).collect();
        let [_, _, _, overall, _, _, _, _] = figures[..] else { return None };
        Some(1e3 * overall)
    };
    let floods = Figures::Taken(said.lines().filter_map(overall).collect());
    floods.spread().map(|[median, ..]| median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_ucx_are_read() {
        let line =
            |us| format!("flood  20000      0.055     0.068     {us}      112.4     112.4    147    147\n");
        let said = ["+---+\n|  Test | # iterations |\n+---+\n", &line(0.5), &line(0.25), &line(9.0)].concat();
        assert_eq!(ucx_ns(&said), Some(500.0));
        assert_eq!(ucx_ns("connection refused\n"), None);
    }

    #[test]
    fn command_lines_are_whole() {
        let line = |contestant: &Contestant| contestant.line().expect("it runs");
        let ucx = line(&ucx(TCP, "ucp_am_bw", 8, 9));
        assert!(ucx.contains("\nUCX_TLS=tcp,self UCX_NET_DEVICES=lo taskset -c 1 ucx_perftest -p"), "{ucx}");
        assert!(ucx.contains("echo flood -t ucp_am_bw -s 8 -n 9 -w 200;"), "{ucx}");
        let mpich = line(&Mpich { tcp: true, bytes: 8, count: 9 });
        assert!(
            mpich.starts_with("MPIR_CVAR_CH4_NETMOD=ofi ") && mpich.ends_with("mpi_flood 8 9"),
            "{mpich}"
        );
        assert_eq!(line(&Ours("flood")), "standpipe perf flood");
    }

    #[test]
    fn every_limit_is_of_a_command_of_ours_in_its_row() {
        for row in ROWS {
            for contestant in row.contestants {
                let Limit(_, arguments) = contestant else { continue };
                let is_it = |other: &Contestant| matches!(other, Ours(ours) if ours == arguments);
                assert!(row.contestants.iter().any(is_it), "{}: {arguments}", row.work);
            }
        }
    }
}
