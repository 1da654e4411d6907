//! The thread of a rank that takes part in collectives: on the team of all, and on parts of it. Who has lost
//! a member has lost the team; the others go on, and every result is what a plain model says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use standpipe::{Error, Reduction, Team};

use crate::process::{Mode, ROUGH_MS, Shared};
use crate::support::Random;

/// From one round to the next.
const PACE: Duration = Duration::from_millis(20);

/// The teams of a rank, and which of them are whole.
pub(crate) struct Teams {
    shared: Arc<Shared>,
    teams: Vec<(Team, bool)>,
    barrier: bool,
    rounds: u32,
}

impl Teams {
    /// Splits the team of all in several ways. Nobody may be lost yet.
    pub(crate) fn new(shared: Arc<Shared>) -> Teams {
        let mut random = Random::new(shared.seed);
        let world = shared.node.world();
        let mut teams = vec![(world.clone(), true)];
        for colors in [2, 2, 3, 3] {
            let drawn: Vec<u32> = (0..world.size()).map(|_| random.below(colors) as u32).collect();
            let own = drawn[world.rank() as usize];
            // One color is no team in some.
            let color = (colors == 2 || own > 0).then_some(own);
            let split = world.split(color, -i64::from(world.rank())).expect("nobody is lost yet");
            teams.extend(split.map(|team| (team, true)));
        }
        let rough: u64 = std::env::var(ROUGH_MS).expect("set by the supervisor").parse().expect("a number");
        let rounds = (rough / PACE.as_millis() as u64) as u32;
        Teams { shared, teams, barrier: true, rounds }
    }

    /// As many rounds as everybody makes, and a last one of those that are whole.
    pub(crate) fn run(mut self) {
        let begun = Instant::now();
        for round in 0..self.rounds {
            std::thread::sleep((begun + PACE * round).saturating_duration_since(Instant::now()));
            for at in 0..self.teams.len() {
                if self.teams[at].1 {
                    self.shared.doing("teams", format!("round {round} of team {at}"));
                    self.meet(at, u64::from(round));
                }
            }
            if self.barrier && round % 5 == 0 {
                self.shared.doing("teams", format!("barrier of round {round}"));
                match self.shared.node.barrier() {
                    Ok(()) => {}
                    Err(Error::PeerLost { .. }) => self.barrier = false,
                    Err(error) => panic!("a barrier: {error}"),
                }
            }
        }
        self.shared.doing("teams", "nothing any more".into());
        while self.shared.mode() == Mode::Rough {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.finish();
    }

    fn finish(&mut self) {
        let live = self.shared.live();
        for at in 0..self.teams.len() {
            let team = &self.teams[at].0;
            let whole = (0..team.size())
                .all(|member| live.contains(&(team.job_rank(member).expect("a member") as usize)));
            self.shared.doing("teams", format!("the last of team {at}"));
            if whole {
                assert!(self.teams[at].1, "a team whose members all live was lost");
                self.meet(at, 1 << 20);
                assert!(self.teams[at].1, "nobody is lost any more");
            } else {
                let lost = self.teams[at].0.barrier().expect_err("a member is gone");
                assert!(matches!(lost, Error::PeerLost { .. }), "{lost}");
            }
        }
    }

    /// One collective of a team.
    fn meet(&mut self, at: usize, round: u64) {
        let team = self.teams[at].0.clone();
        let members: Vec<u32> =
            (0..team.size()).map(|member| team.job_rank(member).expect("a member")).collect();
        let mut random = Random::new(self.shared.seed ^ round << 8 ^ u64::from(members.iter().sum::<u32>()));
        let count = [0, 1, 100, 3000, 20_000][random.below(5)];
        let kind = random.below(7);
        let root = random.below(members.len()) as u32;
        match collective(&team, &members, kind, root, count, round) {
            Ok(()) => {}
            Err(Error::PeerLost { peer }) => {
                assert!(members.contains(&peer), "{peer} is no member of {members:?}");
                self.teams[at].1 = false;
                self.shared.lose(peer as usize, "a collective");
            }
            Err(error) => panic!("collective {kind} of {members:?}, {count} at {root}: {error} ({error:?})"),
        }
    }
}

/// What a rank gives.
fn given(rank: u32, round: u64, count: usize) -> Vec<u64> {
    let mut random = Random::new(u64::from(rank) << 40 ^ round);
    (0..count).map(|_| random.next()).collect()
}

fn collective(
    team: &Team,
    members: &[u32],
    kind: usize,
    root: u32,
    count: usize,
    round: u64,
) -> Result<(), Error> {
    let me = team.rank();
    let of = |member: u32| given(members[member as usize], round, count);
    let all = || (0..team.size()).flat_map(of).collect::<Vec<u64>>();
    let sums =
        || (0..count).map(|at| (0..team.size()).fold(0u64, |sum, member| sum.wrapping_add(of(member)[at])));
    match kind {
        0 => {
            let mut values = of(me);
            team.all_reduce(&mut values, Reduction::Sum)?;
            let each: Vec<Vec<u64>> = (0..team.size()).map(of).collect();
            let right = |at: usize| each.iter().fold(0u64, |sum, of| sum.wrapping_add(of[at]));
            assert!((0..count).all(|at| values[at] == right(at)), "an all-reduce");
        }
        1 => {
            let mut values = if me == root { of(root) } else { vec![0; count] };
            team.broadcast(&mut values, root)?;
            assert!(values == of(root), "a broadcast");
        }
        2 => {
            let (result, values) = team.all_gather_nb(of(me)).wait();
            result?;
            assert!(values == all(), "an all-gather");
        }
        3 => {
            let parts: Vec<u64> =
                (0..team.size()).flat_map(|to| given(me * 1000 + to, round, count / 8)).collect();
            let mut into = vec![0; parts.len()];
            team.all_to_all(&parts, &mut into)?;
            let right: Vec<u64> =
                (0..team.size()).flat_map(|from| given(from * 1000 + me, round, count / 8)).collect();
            assert!(into == right, "an all-to-all");
        }
        4 => {
            let count = count.min(100);
            let mut values = vec![0; if me == root { count } else { 0 }];
            team.reduce(&of(me)[..count], &mut values, root, Reduction::Sum)?;
            assert!(me != root || values.iter().copied().eq(sums().take(count)), "a reduce");
        }
        5 => {
            let mut values = vec![0; if me == root { count * members.len() } else { 0 }];
            team.gather(&of(me), &mut values, root)?;
            assert!(me != root || values == all(), "a gather");
            let mut own = vec![0; count];
            team.scatter(&values, &mut own, root)?;
            assert!(own == of(me), "a scatter");
        }
        _ => team.barrier()?,
    }
    Ok(())
}
