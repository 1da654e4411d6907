use std::collections::HashMap;
use std::io::Write;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use super::*;
use crate::job::unlaunched::registry::{Registry, Rendezvous};

const SHARED: &str = "ab";

/// A port that was free just now.
fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("it is bound").port()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

type Met = Result<TcpMeeting, ExchangeError>;

fn comes(rank: u32, size: u32, port: u16, secret: &str, deadline: Instant) -> JoinHandle<Met> {
    comes_with(&[], rank, size, port, secret, deadline)
}

/// With more variables.
fn comes_with(
    more: &[(&'static str, &str)],
    rank: u32,
    size: u32,
    port: u16,
    secret: &str,
    deadline: Instant,
) -> JoinHandle<Met> {
    let mut vars: HashMap<&str, String> = HashMap::from([
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", size.to_string()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", (port - 1).to_string()),
        (SECRET, secret.repeat(32)),
    ]);
    vars.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
    spawn(move || TcpMeeting::meet(Meeting::from_env(&|name| vars.get(name).cloned())?, deadline))
}

#[test]
fn all_hear_what_each_says_in_each_round() {
    let port = port();
    let says = |rank: u32, round: usize| vec![rank as u8 + 1; [0, 5, 200_000][round]];
    // Rank 0 comes last: the others wait for it.
    let ends: Vec<_> = (0..4u32).rev().map(|rank| (rank, comes(rank, 4, port, SHARED, soon()))).collect();
    let ends = ends.into_iter().map(|(rank, end)| {
        let mut meeting = end.join().expect("no panic").expect("all come");
        assert_eq!((meeting.rank(), meeting.size()), (rank, 4));
        spawn(move || {
            [0, 1, 2].map(|round| meeting.all_gather(&says(rank, round), soon()).expect("all speak"))
        })
    });
    for end in ends.collect::<Vec<_>>() {
        let heard = end.join().expect("no panic");
        for (round, all) in heard.iter().enumerate() {
            assert_eq!(*all, (0..4).map(|rank| says(rank, round)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn strangers_and_the_silent_keep_nobody_out() {
    let port = port();
    let zero = comes(0, 2, port, SHARED, soon());
    let other = comes(1, 2, port, "cd", soon());
    let error = other.join().expect("no panic").err().expect("it has another secret");
    assert!(matches!(error, ExchangeError::Stranger { .. }), "{error}");
    let mut noisy = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    noisy.write_all(&[0xff; 3000]).expect("room");
    let silent = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let one = comes(1, 2, port, SHARED, soon());
    assert!(one.join().expect("no panic").is_ok());
    assert!(zero.join().expect("no panic").is_ok());
    drop((noisy, silent));
}

fn refused(visitor: JoinHandle<Met>) -> ExchangeError {
    visitor.join().expect("no panic").err().expect("it is of another job")
}

#[test]
fn guests_of_another_job_are_told_so_and_the_job_goes_on() {
    let port = port();
    let zero = comes(0, 3, port, SHARED, soon());
    let error = refused(comes(2, 4, port, SHARED, soon()));
    assert!(matches!(error, ExchangeError::OtherSize { ours: 4, theirs: 3, .. }), "{error}");
    let twice = [comes(1, 3, port, SHARED, soon()), comes(1, 3, port, SHARED, soon())];
    // Whichever of the two came first: the other hears it while rank 2 is still waited for.
    let (told, hears) = channel();
    for visitor in twice {
        let told = told.clone();
        spawn(move || told.send(visitor.join().expect("no panic")));
    }
    let [mut one, mut other] =
        [(); 2].map(|()| hears.recv_timeout(Duration::from_secs(60)).expect("both end"));
    if one.is_err() {
        std::mem::swap(&mut one, &mut other);
    }
    let error = other.err().expect("rank 1 came twice");
    assert!(matches!(error, ExchangeError::RankTaken { rank: 1, .. }), "{error}");
    assert!(error.to_string().contains("is another job behind the same MASTER_PORT?"), "{error}");
    let two = comes(2, 3, port, SHARED, soon());
    let met = [zero.join().expect("no panic"), one, two.join().expect("no panic")];
    let says = met.map(|met| {
        let mut meeting = met.expect("the job goes on");
        spawn(move || meeting.all_gather(&[meeting.rank() as u8], soon()).expect("all speak"))
    });
    for said in says {
        assert_eq!(said.join().expect("no panic"), [[0], [1], [2]]);
    }
}

#[test]
fn a_guest_of_another_of_the_launchers_jobs_is_told_both_names() {
    let port = port();
    let run = |name, rank| comes_with(&[("TORCHELASTIC_RUN_ID", name)], rank, 2, port, SHARED, soon());
    let zero = run("first", 0);
    let error = refused(run("second", 1));
    let (ours, theirs) = ("\"second\"", "\"first\"");
    let words = error.to_string();
    assert!(
        words.contains("TORCHELASTIC_RUN_ID") && words.contains(ours) && words.contains(theirs),
        "{words}"
    );
    assert!(run("first", 1).join().expect("no panic").is_ok());
    assert!(zero.join().expect("no panic").is_ok());
}

#[test]
fn a_second_rank_0_is_told_that_another_is_there() {
    let port = port();
    let zero = comes(0, 2, port, SHARED, soon());
    // Until the first one listens there is nobody to send this one away.
    drop(reach_zero("127.0.0.1", port, "rank 0", soon()).expect("it listens"));
    let words = refused(comes(0, 2, port, "cd", soon())).to_string();
    assert!(words.contains("another job") && words.contains(PORT), "{words}");
    assert!(comes(1, 2, port, SHARED, soon()).join().expect("no panic").is_ok());
    assert!(zero.join().expect("no panic").is_ok());
}

#[test]
fn whoever_does_not_come_is_named() {
    let (port, soon_over) = (port(), Instant::now() + Duration::from_secs(8));
    let one = comes(1, 4, port, SHARED, soon());
    let error =
        comes(0, 4, port, SHARED, soon_over).join().expect("no panic").err().expect("two are missing");
    assert!(matches!(&error, ExchangeError::Timeout { waited_for } if waited_for == "rank 2, 3"), "{error}");
    assert!(one.join().expect("no panic").expect("it came").all_gather(&[], soon()).is_err());
    let nobody = comes(1, 2, port, SHARED, Instant::now() + Duration::from_millis(200));
    let error = nobody.join().expect("no panic").err().expect("nobody listens");
    assert!(matches!(error, ExchangeError::Timeout { .. }), "{error}");
}

#[test]
fn one_that_closes_the_connection_and_goes_is_not_rank_0() {
    let port = port();
    let leaving = TcpListener::bind(("127.0.0.1", port)).expect("it was free just now");
    let one = comes(1, 2, port, SHARED, soon());
    drop(leaving.accept().expect("rank 1 comes"));
    drop(leaving);
    let zero = comes(0, 2, port, SHARED, soon());
    assert!(one.join().expect("no panic").is_ok());
    assert!(zero.join().expect("no panic").is_ok());
}

#[test]
fn a_rendezvous_is_no_meeting_and_a_meeting_is_no_rendezvous() {
    let secret = SHARED.repeat(32);
    let registry = Registry::open_by("127.0.0.1:0", &secret).expect("a free port");
    let at = registry.address().expect("it is bound").port();
    spawn(move || registry.serve(|_| {}));
    let words = refused(comes(1, 2, at, SHARED, soon())).to_string();
    assert!(words.contains("it is a `standpipe rendezvous`"), "{words}");
    let port = port();
    let zero = comes(0, 2, port, SHARED, soon());
    let way = Rendezvous::new(&format!("127.0.0.1:{port}"), &secret).expect("good settings");
    let error = way.find("server", Duration::from_secs(20)).expect_err("nothing is kept there");
    assert!(error.to_string().contains("a job's processes meet there"), "{error}");
    assert!(comes(1, 2, port, SHARED, soon()).join().expect("no panic").is_ok());
    assert!(zero.join().expect("no panic").is_ok());
}

#[test]
fn without_a_secret_nobody_meets() {
    let vars = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "::1"), ("MASTER_PORT", "1")];
    let lookup = |name: &str| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    assert!(matches!(Meeting::from_env(&lookup), Err(ExchangeError::NoSecret)));
}
