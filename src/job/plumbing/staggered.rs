//! Reaching a host by any of its addresses.
//!
//! Most addresses that do not lead to the host do not say so: the packets are dropped. So none is waited for.
//! The next is tried when one has failed, or a little later while all before it are still tried, as RFC 8305
//! wants it ("Happy Eyeballs"); the first that leads there counts.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// From one try to the next, while the one before is under way.
const APART: Duration = Duration::from_millis(100);

/// How each address failed, in the addresses' order.
#[derive(Debug)]
pub(in crate::job) struct Failed(pub(in crate::job) Vec<(SocketAddr, io::Error)>);

impl Failed {
    /// All of it in one error, of the kind that all have in common, if there is one.
    pub(in crate::job) fn into_error(mut self) -> io::Error {
        if self.0.len() == 1 {
            return self.0.remove(0).1;
        }
        let Some(kind) = self.0.first().map(|(_, error)| error.kind()) else {
            return ErrorKind::NotFound.into();
        };
        let all_alike = self.0.iter().all(|(_, error)| error.kind() == kind);
        io::Error::new(if all_alike { kind } else { ErrorKind::Other }, self.to_string())
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (address, error)) in self.0.iter().enumerate() {
            let between = if at == 0 { "" } else { "; " };
            write!(f, "{between}{address}: {error}")?;
        }
        Ok(())
    }
}

/// The value that the first try that succeeds gives. `attempt` is told by when to end, and is called in
/// threads of its own, which end by that moment after another has succeeded; what they then give is dropped.
/// The caller looks at `stop` between tries, and gives up once it holds.
///
/// # Errors
/// The result of each address that was tried.
pub(in crate::job) fn first<T, F>(
    addresses: &[SocketAddr],
    deadline: Instant,
    attempt: F,
    stop: impl Fn() -> bool,
) -> Result<T, Failed>
where
    T: Send + 'static,
    F: Fn(&SocketAddr, Instant) -> io::Result<T> + Send + Sync + 'static,
{
    let (attempt, (tell, told)) = (Arc::new(attempt), channel());
    let (mut failed, mut under_way, mut begun) = (Vec::new(), 0, 0);
    let mut next = Instant::now();
    loop {
        let now = Instant::now();
        let is_over = stop() || now >= deadline && begun > 0;
        if begun < addresses.len() && !is_over && (under_way == 0 || now >= next) {
            start(addresses, begun, deadline, &attempt, &tell);
            (begun, under_way, next) = (begun + 1, under_way + 1, now + APART);
            continue;
        }
        if is_over || under_way == 0 {
            break;
        }
        let until = if begun < addresses.len() { next.min(deadline) } else { deadline };
        // A caller that asks to stop rings no bell.
        match told.recv_timeout(until.saturating_duration_since(now).min(APART)) {
            Ok((_, Ok(found))) => return Ok(found),
            Ok((at, Err(error))) => {
                failed.push((at, error));
                (under_way, next) = (under_way - 1, now);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => unreachable!("this thread could tell itself"),
        }
    }
    // A result that has come in the last moment.
    while let Ok((at, result)) = told.try_recv() {
        match result {
            Ok(found) => return Ok(found),
            Err(error) => failed.push((at, error)),
        }
    }
    for at in 0..begun {
        if failed.iter().all(|(of, _)| *of != at) {
            failed.push((at, ErrorKind::TimedOut.into()));
        }
    }
    failed.sort_by_key(|(at, _)| *at);
    Err(Failed(failed.into_iter().map(|(at, error)| (addresses[at], error)).collect()))
}

/// Begins to try one of the addresses: in this thread, where there is no other or no need of one.
fn start<T, F>(
    addresses: &[SocketAddr],
    at: usize,
    deadline: Instant,
    attempt: &Arc<F>,
    tell: &Sender<(usize, io::Result<T>)>,
) where
    T: Send + 'static,
    F: Fn(&SocketAddr, Instant) -> io::Result<T> + Send + Sync + 'static,
{
    let (tried, tell, address) = (Arc::clone(attempt), tell.clone(), addresses[at]);
    // Nobody hears what comes too late.
    let run = move || _ = tell.send((at, tried(&address, deadline)));
    if addresses.len() == 1 {
        return run();
    }
    let here = run.clone();
    if vm::threads::spawn("standpipe-reach", run).is_err() {
        here();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn addresses(count: u16) -> Vec<SocketAddr> {
        (0..count).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect()
    }

    fn soon() -> Instant {
        Instant::now() + LIMIT
    }

    /// A try of an address that never answers.
    fn wait(until: Instant) -> io::Error {
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        ErrorKind::TimedOut.into()
    }

    #[test]
    fn the_good_one_behind_eight_that_do_not_answer_is_reached_in_a_second() {
        let begun = Instant::now();
        let attempt = |address: &SocketAddr, until| match address.port() {
            8 => Ok(8),
            _ => Err(wait(until)),
        };
        let found = first(&addresses(9), soon(), attempt, || false).expect("the ninth is there");
        assert!(found == 8 && begun.elapsed() < LIMIT / 2, "{:?}", begun.elapsed());
        assert!(begun.elapsed() >= 8 * APART, "each before it has its time");
    }

    #[test]
    fn the_next_is_tried_at_once_where_one_fails_at_once() {
        let begun = Instant::now();
        let attempt = |address: &SocketAddr, _| match address.port() {
            49 => Ok(49),
            _ => Err(ErrorKind::ConnectionRefused.into()),
        };
        assert_eq!(first(&addresses(50), soon(), attempt, || false).expect("the last is there"), 49);
        assert!(begun.elapsed() < 25 * APART, "{:?}", begun.elapsed());
    }

    #[test]
    fn of_each_that_was_tried_is_told_what_became_of_it() {
        let attempt = |address: &SocketAddr, until| match address.port() {
            1 => Err::<(), _>(ErrorKind::ConnectionRefused.into()),
            _ => Err(wait(until)),
        };
        let deadline = Instant::now() + 10 * APART;
        let failed = first(&addresses(3), deadline, attempt, || false).expect_err("nobody is there");
        let words = "127.0.0.1:0: timed out; 127.0.0.1:1: connection refused; 127.0.0.1:2: timed out";
        assert_eq!(failed.to_string(), words);
        let none = first(&[], soon(), |_, _| Ok(()), || false).expect_err("there is none");
        assert!(none.0.is_empty());
    }

    #[test]
    fn whoever_is_told_to_stop_stops_and_one_address_is_tried_even_too_late() {
        let begun = Instant::now();
        let stop = || begun.elapsed() > APART;
        let failed = first(&addresses(2), soon(), |_, until| Err::<(), _>(wait(until)), stop);
        assert!(failed.is_err() && begun.elapsed() < LIMIT / 2, "{:?}", begun.elapsed());
        assert_eq!(first(&addresses(1), begun, |_, _| Ok(1), || false).expect("it is there"), 1);
    }
}
