//! The members of the job, those that are gone, and the calls that wait for others. No socket and no clock:
//! what is to be sent is returned.

use std::collections::{BTreeMap, BTreeSet};

use super::wire::{How, Refusal, Reply, short_program};

/// A message for one member. `handles` are the segments that go with [`Reply::Peer`].
#[derive(Debug, PartialEq, Eq)]
pub(in crate::job) struct Mail<H> {
    pub(in crate::job) to: u32,
    pub(in crate::job) reply: Reply,
    pub(in crate::job) handles: Option<H>,
}

/// A member asked for something that no honest member asks for.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::job) struct Violation;

/// A process that wants to join, once it has shown the secret.
#[derive(Debug)]
pub(in crate::job) struct Candidate<H> {
    pub(in crate::job) rank: u32,
    pub(in crate::job) size: u32,
    pub(in crate::job) pid: u32,
    pub(in crate::job) program: String,
    pub(in crate::job) handles: H,
}

/// The state of every rank. A rank goes from open to joined to over, or from open to over, and never back.
/// `H` stands for a member's segments.
#[derive(Debug)]
pub(in crate::job) struct Roster<H> {
    places: Vec<Place<H>>,
    /// By rank that is gone: the members that have been told and have not said that they have heard.
    unheard: BTreeMap<u32, BTreeSet<u32>>,
}

#[derive(Debug)]
enum Place<H> {
    Open {
        wanted_by: BTreeSet<u32>,
    },
    /// `serves`: it has been told that it must serve others.
    Joined {
        pid: u32,
        program: String,
        handles: H,
        serves: bool,
    },
    Over(How),
}

/// The state of a rank.
#[derive(Debug)]
pub(in crate::job) enum Standing<'a, H> {
    Open,
    Joined { pid: u32, handles: &'a H },
    Over(How),
}

impl<H: Clone> Roster<H> {
    pub(in crate::job) fn new(size: u32) -> Self {
        let places = (0..size).map(|_| Place::Open { wanted_by: BTreeSet::new() }).collect();
        Self { places, unheard: BTreeMap::new() }
    }

    pub(in crate::job) fn size(&self) -> u32 {
        u32::try_from(self.places.len()).expect("made from a u32")
    }

    /// How many messages can be on their way to or from one member. Each rank is lost once, and asked for
    /// once at a time; besides, the member is welcomed once, and asked to serve once. It asks for each rank,
    /// asks it to serve, and has heard of its loss, and leaves.
    pub(in crate::job) fn mail_max(&self) -> usize {
        3 * self.places.len() + 2
    }

    pub(in crate::job) fn pid(&self, rank: u32) -> Option<u32> {
        match self.place(rank) {
            Some(Place::Joined { pid, .. }) => Some(*pid),
            _ => None,
        }
    }

    /// How `rank`, which is below the size, stands.
    pub(in crate::job) fn standing(&self, rank: u32) -> Standing<'_, H> {
        match &self.places[rank as usize] {
            Place::Open { .. } => Standing::Open,
            Place::Joined { pid, handles, .. } => Standing::Joined { pid: *pid, handles },
            Place::Over(how) => Standing::Over(*how),
        }
    }

    pub(in crate::job) fn is_open(&self, rank: u32) -> bool {
        matches!(self.place(rank), Some(Place::Open { .. }))
    }

    /// Whether [`join`](Self::join) would let the candidate in.
    pub(in crate::job) fn judge(&self, rank: u32, size: u32) -> Result<(), Refusal> {
        if size != self.size() {
            return Err(Refusal::Size { ours: self.size(), theirs: size });
        }
        match self.place(rank) {
            None => Err(Refusal::NoSuchRank { rank, size }),
            Some(Place::Open { .. }) => Ok(()),
            Some(Place::Joined { pid, program, .. }) => {
                Err(Refusal::RankTaken { rank, pid: *pid, program: program.clone() })
            }
            Some(Place::Over(how)) => Err(Refusal::RankOver { rank, how: *how }),
        }
    }

    /// Lets the candidate in: it is welcomed, told who is gone, and whoever waited for it gets its segments.
    pub(in crate::job) fn join(
        &mut self,
        candidate: Candidate<H>,
        launcher_pid: u32,
    ) -> Result<Vec<Mail<H>>, Refusal> {
        let Candidate { rank, size, pid, program, handles } = candidate;
        self.judge(rank, size)?;
        let program = short_program(&program);
        let joined = Place::Joined { pid, program, handles: handles.clone(), serves: false };
        let before = std::mem::replace(&mut self.places[rank as usize], joined);
        let Place::Open { wanted_by } = before else { unreachable!("judged to be open above") };

        let mut mails = vec![Mail { to: rank, reply: Reply::Welcome { launcher_pid }, handles: None }];
        for (gone, place) in (0..).zip(&self.places) {
            if let Place::Over(how) = place {
                mails.push(Mail { to: rank, reply: Reply::Lost { rank: gone, how: *how }, handles: None });
            }
        }
        for to in wanted_by {
            mails.push(Mail { to, reply: Reply::Peer { rank, pid }, handles: Some(handles.clone()) });
        }
        Ok(mails)
    }

    /// Member `from` wants `peer`'s segments. No answer now means that it comes when `peer` joins, or that
    /// the member has been told already that `peer` is gone.
    pub(in crate::job) fn connect(&mut self, from: u32, peer: u32) -> Result<Option<Mail<H>>, Violation> {
        match self.places.get_mut(peer as usize) {
            None => Err(Violation),
            Some(Place::Open { wanted_by }) => {
                wanted_by.insert(from);
                Ok(None)
            }
            Some(Place::Joined { pid, handles, .. }) => {
                let reply = Reply::Peer { rank: peer, pid: *pid };
                Ok(Some(Mail { to: from, reply, handles: Some(handles.clone()) }))
            }
            Some(Place::Over(_)) => Ok(None),
        }
    }

    /// A member cannot attach to `peer`, which is told so unless it has been.
    pub(in crate::job) fn serve(&mut self, peer: u32) -> Result<Option<Mail<H>>, Violation> {
        match self.places.get_mut(peer as usize) {
            None | Some(Place::Open { .. }) => Err(Violation),
            Some(Place::Joined { serves, .. }) => {
                let news = !std::mem::replace(serves, true);
                Ok(news.then_some(Mail { to: peer, reply: Reply::Serve, handles: None }))
            }
            Some(Place::Over(_)) => Ok(None),
        }
    }

    /// `rank` is gone: every member hears of it, and nobody waits for it or through it any longer. The first
    /// account of how it went is the one that stays.
    pub(in crate::job) fn over(&mut self, rank: u32, how: How) -> Vec<Mail<H>> {
        let Some(place) = self.places.get_mut(rank as usize) else { return Vec::new() };
        if matches!(place, Place::Over(_)) {
            return Vec::new();
        }
        *place = Place::Over(how);
        self.unheard.values_mut().for_each(|members| _ = members.remove(&rank));
        let mut unheard = BTreeSet::new();
        let mut mails = Vec::new();
        for (to, place) in (0..).zip(&mut self.places) {
            match place {
                Place::Open { wanted_by } => {
                    wanted_by.remove(&rank);
                }
                Place::Joined { .. } => {
                    unheard.insert(to);
                    mails.push(Mail { to, reply: Reply::Lost { rank, how }, handles: None });
                }
                Place::Over(_) => {}
            }
        }
        self.unheard.insert(rank, unheard);
        mails
    }

    /// Member `from` has heard that `rank` is gone. It says so of those, too, that were gone before it
    /// joined.
    pub(in crate::job) fn heard(&mut self, from: u32, rank: u32) -> Result<(), Violation> {
        if !matches!(self.place(rank), Some(Place::Over(_))) {
            return Err(Violation);
        }
        if let Some(members) = self.unheard.get_mut(&rank) {
            members.remove(&from);
        }
        Ok(())
    }

    /// Whether `rank` is gone, and every member that is not has heard so.
    pub(in crate::job) fn is_forgotten(&self, rank: u32) -> bool {
        self.unheard.get(&rank).is_some_and(BTreeSet::is_empty)
    }

    fn place(&self, rank: u32) -> Option<&Place<H>> {
        self.places.get(rank as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    const SIZE: u32 = 4;

    fn candidate(rank: u32) -> Candidate<u32> {
        Candidate { rank, size: SIZE, pid: 100 + rank, program: format!("p{rank}"), handles: rank }
    }

    #[test]
    fn a_rank_is_given_out_once() {
        let mut roster = Roster::new(SIZE);
        roster.join(candidate(1), 1).expect("open");
        let taken = Refusal::RankTaken { rank: 1, pid: 101, program: "p1".into() };
        assert_eq!(roster.join(candidate(1), 1), Err(taken));
        roster.over(1, How::Left);
        assert_eq!(roster.join(candidate(1), 1), Err(Refusal::RankOver { rank: 1, how: How::Left }));
    }

    #[test]
    fn a_wrong_size_or_rank_is_refused_with_its_value() {
        let mut roster = Roster::new(SIZE);
        let wrong_size = Candidate { size: 5, ..candidate(0) };
        assert_eq!(roster.join(wrong_size, 1), Err(Refusal::Size { ours: SIZE, theirs: 5 }));
        assert_eq!(roster.join(candidate(4), 1), Err(Refusal::NoSuchRank { rank: 4, size: SIZE }));
        assert_eq!(roster.connect(0, 4), Err(Violation));
    }

    #[test]
    fn a_late_joiner_hears_who_is_gone() {
        let mut roster = Roster::new(SIZE);
        roster.over(2, How::Killed(9));
        let mails = roster.join(candidate(0), 7).expect("open");
        assert_eq!(mails[0].reply, Reply::Welcome { launcher_pid: 7 });
        assert_eq!(mails[1].reply, Reply::Lost { rank: 2, how: How::Killed(9) });
    }

    #[test]
    fn a_rank_is_forgotten_once_all_who_are_left_have_heard() {
        let mut roster = Roster::new(SIZE);
        (0..SIZE).for_each(|rank| _ = roster.join(candidate(rank), 1).expect("open"));
        assert_eq!(roster.heard(0, 3), Err(Violation), "it is not gone");
        assert_eq!(roster.heard(0, SIZE), Err(Violation), "there is none");
        roster.over(3, How::Killed(9));
        roster.heard(0, 3).expect("it is gone");
        assert!(!roster.is_forgotten(3));
        roster.over(2, How::Left);
        roster.heard(1, 3).expect("it is gone");
        assert!(roster.is_forgotten(3), "rank 2 reaches nobody any more");
        assert!(!roster.is_forgotten(2) && !roster.is_forgotten(0));
        roster.over(3, How::Vanished);
        assert!(roster.is_forgotten(3), "it is over once");
    }

    #[test]
    fn a_member_is_asked_to_serve_once() {
        let mut roster = Roster::new(SIZE);
        assert_eq!(roster.serve(1), Err(Violation), "nobody has had its segments");
        roster.join(candidate(1), 1).expect("open");
        assert_eq!(roster.serve(1), Ok(Some(Mail { to: 1, reply: Reply::Serve, handles: None })));
        assert_eq!(roster.serve(1), Ok(None));
        roster.over(1, How::Left);
        assert_eq!(roster.serve(1), Ok(None));
        assert_eq!(roster.serve(SIZE), Err(Violation));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Join(u32),
        Connect(u32, u32),
        Over(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let rank = 0..SIZE;
        prop_oneof![
            rank.clone().prop_map(Step::Join),
            (rank.clone(), rank.clone()).prop_map(|(from, peer)| Step::Connect(from, peer)),
            rank.prop_map(Step::Over),
        ]
    }

    /// What a member knows from its mail.
    #[derive(Default)]
    struct Told {
        asked: BTreeSet<u32>,
        lost: BTreeSet<u32>,
    }

    proptest! {
        /// Each rank's loss is told once to each member, and after every step a request is unanswered only
        /// while the rank asked for is open.
        #[test]
        fn every_request_is_answered_once(steps in proptest::collection::vec(step(), 0..60)) {
            let mut roster = Roster::new(SIZE);
            let mut members: BTreeMap<u32, Told> = BTreeMap::new();
            for step in steps {
                let mails = match step {
                    Step::Join(rank) => {
                        let mails = roster.join(candidate(rank), 1).unwrap_or_default();
                        if !mails.is_empty() {
                            members.insert(rank, Told::default());
                        }
                        mails
                    }
                    Step::Connect(from, peer) => {
                        // An honest member asks once at a time, and not for whom it knows to be gone.
                        let Some(told) = members.get_mut(&from) else { continue };
                        if told.lost.contains(&peer) || !told.asked.insert(peer) {
                            continue;
                        }
                        roster.connect(from, peer).expect("in range").into_iter().collect()
                    }
                    Step::Over(rank) => {
                        members.remove(&rank);
                        roster.over(rank, How::Vanished)
                    }
                };
                prop_assert!(mails.len() <= roster.mail_max());
                for mail in mails {
                    let told = members.get_mut(&mail.to).expect("mail goes to members only");
                    match mail.reply {
                        Reply::Peer { rank, pid } => {
                            prop_assert!(told.asked.remove(&rank));
                            prop_assert_eq!((mail.handles, pid), (Some(rank), 100 + rank));
                        }
                        Reply::Lost { rank, .. } => {
                            told.asked.remove(&rank);
                            prop_assert!(told.lost.insert(rank));
                        }
                        Reply::Welcome { .. } | Reply::Serve => {}
                        Reply::Refused(_)
                        | Reply::Watching { .. }
                        | Reply::Met { .. }
                        | Reply::Declined(_)
                        | Reply::Next { .. }
                        | Reply::Look => {
                            prop_assert!(false, "the roster mails none of these");
                        }
                    }
                }
                for told in members.values() {
                    prop_assert!(told.asked.iter().all(|peer| roster.is_open(*peer)));
                }
            }
        }
    }
}
