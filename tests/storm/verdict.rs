//! What a storm is told by in the end, and what must not be left of it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::eventually;

/// Figures of a storm.
#[derive(Default)]
pub(crate) struct Figures {
    started: usize,
    killed: usize,
    operations: u64,
    slowest: (u64, String),
    /// From each kill to the moment when each survivor's library knew of it.
    noticed: Vec<Duration>,
    /// The same to the end of its first call that told of it, be that call's turn ever so late.
    told: Vec<Duration>,
    /// From a call to the peer.
    met: Vec<Duration>,
}

impl Figures {
    pub(crate) fn lost(&mut self, noticed: bool, after: Duration) {
        if noticed { self.noticed.push(after) } else { self.told.push(after) }
    }

    /// The longest time from a kill until a survivor's library knew of it.
    pub(crate) fn slowest_notice(&self) -> Option<Duration> {
        self.noticed.iter().max().copied()
    }

    /// What was said of a meeting: with whom, and microseconds.
    pub(crate) fn met(&mut self, text: &str) {
        let took = text.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
        self.met.push(Duration::from_micros(took));
    }

    pub(crate) fn processes(&mut self, started: usize, killed: usize) {
        (self.started, self.killed) = (started, killed);
    }

    /// Operations of a thread, microseconds of the slowest, and of what kind it was.
    pub(crate) fn did(&mut self, text: &str) {
        let mut words = text.splitn(3, ' ');
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
        let (count, slowest) = (number(), number());
        self.operations += count;
        self.slowest = self.slowest.clone().max((slowest, words.next().unwrap_or_default().to_owned()));
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { started, killed, operations, slowest, noticed, told, met } = self;
        write!(
            f,
            "{started} processes, {killed} killed; {operations} operations, the slowest ({}) ",
            slowest.1
        )?;
        write!(f, "in {:?}", Duration::from_micros(slowest.0))?;
        spread(f, "losses known", noticed)?;
        spread(f, "told", told)?;
        spread(f, "met", met)
    }
}

/// The median and the last of some times.
fn spread(f: &mut fmt::Formatter<'_>, what: &str, times: &[Duration]) -> fmt::Result {
    let mut times = times.to_vec();
    times.sort_unstable();
    match (times.get(times.len() / 2), times.last()) {
        (Some(median), Some(last)) => {
            write!(f, "; {what} after {median:.1?} (median of {}), {last:.1?} (the last)", times.len())
        }
        _ => Ok(()),
    }
}

/// What there was before a storm, whose processes have a folder of their own for temporary files: others on
/// the machine make some, too.
pub(crate) struct Before {
    shared: Vec<String>,
    temporary: PathBuf,
}

impl Before {
    /// `name` is the storm's.
    pub(crate) fn now(name: &str) -> Before {
        let temporary = std::env::temp_dir().join(name);
        std::fs::create_dir(&temporary).expect("a folder");
        Before { shared: names_in(Path::new("/dev/shm")), temporary }
    }

    /// Where the storm's processes are to put temporary files.
    pub(crate) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Nothing of the library's is in memory or on disk that was not there before, and none of these sockets.
    pub(crate) fn nothing_is_left(&self, sockets: &[String]) {
        let ours = |name: &String| name.contains("standpipe") || name.contains("storm-");
        let shared = || -> Vec<String> {
            let now = names_in(Path::new("/dev/shm"));
            now.into_iter().filter(ours).filter(|name| !self.shared.contains(name)).collect()
        };
        assert!(eventually(|| shared().is_empty()), "shared memory is left: {:?}", shared());
        let files = || names_in(&self.temporary);
        assert!(eventually(|| files().is_empty()), "files are left: {:?}", files());
        assert!(
            eventually(|| {
                let all = std::fs::read_to_string("/proc/net/unix").expect("Linux has it");
                !sockets.iter().any(|socket| all.contains(socket.as_str()))
            }),
            "a socket is left"
        );
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        // After a failure there may be something in it to look at.
        let _ = std::fs::remove_dir(&self.temporary);
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Names, in the abstract namespace, of sockets that this process listens at.
pub(crate) fn own_sockets() -> Vec<String> {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().filter_map(Result::ok);
    let links = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let inodes: Vec<String> = links
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let all = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let rows = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let own = rows.filter(|row| row.len() == 8 && inodes.iter().any(|inode| inode == row[6]));
    own.map(|row| row[7].to_owned()).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16);
    digits.map(|pair| byte(pair).expect("digits")).collect()
}
