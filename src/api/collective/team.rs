//! Teams of processes, and what all of a team's members do together.

mod blocking;
mod buffers;
mod bytes;
mod fold;
mod nonblocking;
mod run;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::collective::{Collective, Plan, split_entry, split_members};
use engine::node::{Kept, NAMED_TEAMS_MAX as NAMED_MAX, TeamId};
use engine::{HandlerKey, Rank};

use crate::api::collective::team::buffers::Buffers;
use crate::api::node::Node;
use crate::base::error::Error;
use crate::runtime::handlers::check_names;

pub use nonblocking::TeamEvent;

/// Some processes of a job, in an order: they have collectives, which all of them call.
///
/// All members must call the same collectives of a team in the same order, with the same root, lengths,
/// types and functions, from one thread at a time. Members that call differently get [`Error::Differ`], and
/// then everyone does: at the latest from the next collective. A collective that ends by [`Error::Timeout`],
/// a dropped team or a lost member ends the team's collectives for all of its members; other teams go on.
/// Within a team members have numbers from 0, their ranks in it.
///
/// The forms that end in `_nb` return at once, and an event gives the memory back. Several may be under way,
/// also of different teams. Blocking forms give [`Error::InHandler`] in a handler.
///
/// Clones are handles on the same team. When the last one is dropped, the team is this process's no more.
#[derive(Clone)]
pub struct Team {
    node: Node,
    membership: Arc<Membership>,
}

/// This process's part in a team.
struct Membership {
    node: Node,
    id: TeamId,
    size: u32,
    me: u32,
    recent: Mutex<Recent>,
}

/// Buffers that the next collective may use again.
#[derive(Default)]
struct Recent {
    /// The last one's plan, whose partners are connected.
    plan: Option<(Collective, Arc<Plan>)>,
    /// The last one's by way of a stage, if there is any, where what is given and what is gotten was hidden
    /// or not.
    staged: Option<(Collective, [bool; 2], Option<Arc<Plan>>)>,
    /// Memory that the engine has kept for one of little.
    kept: Kept,
    /// Scratch memory of one of more.
    scratch: Vec<u128>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        // Teams of all are there as long as the node.
        if self.id != TeamId::WORLD && !self.node.core.is_forked() {
            self.node.core.engine().drop_team(self.id);
        }
    }
}

impl Node {
    /// The team of all ranks of the job, in their order.
    pub fn world(&self) -> Team {
        let own = self.core.peers.own();
        Team::new(self, TeamId::WORLD, own.size, own.rank)
    }

    /// The team of all ranks of the job under a name, as of a library: with barriers and collectives of its
    /// own, which meet those of the same name only. No message is sent to make it, and it is there as long as
    /// the node: each call with the same name gives a handle on the same team.
    ///
    /// # Errors
    /// [`Error::TeamsFull`] beyond 1,024 names; [`Error::BadName`] for one that is empty, of more than
    /// 255 bytes or with a zero byte; [`Error::Closed`], [`Error::Forked`].
    pub fn world_of(&self, name: &str) -> Result<Team, Error> {
        self.may_call("a team of all")?;
        check_names("", name)?;
        let id = TeamId::named(HandlerKey::of(name, ""));
        if !self.core.engine().make_named_team(id) {
            return Err(Error::TeamsFull { most: NAMED_MAX as u64 });
        }
        let own = self.core.peers.own();
        Ok(Team::new(self, id, own.size, own.rank))
    }
}

impl Team {
    /// The team of that name, which the engine has, with so many members, of whom this is the given one.
    pub(in crate::api) fn new(node: &Node, id: TeamId, size: u32, me: u32) -> Team {
        let membership = Membership { node: node.clone(), id, size, me, recent: Mutex::default() };
        Team { node: node.clone(), membership: Arc::new(membership) }
    }

    /// This process's number in the team, from 0.
    pub fn rank(&self) -> u32 {
        self.membership.me
    }

    /// The team's members.
    pub fn size(&self) -> u32 {
        self.membership.size
    }

    /// A member's rank in the job: what puts, gets and messages name. `None`: there is no such member; and in
    /// a child made by `fork`.
    pub fn job_rank(&self, member: u32) -> Option<Rank> {
        self.node.may_call("a member's rank").ok()?;
        self.node.core.engine().member_rank(self.membership.id, member)
    }

    /// A handle on the same team whose blocking calls wait at most `timeout`. A collective that is not over
    /// by then ends with [`Error::Timeout`], and the team's collectives with it.
    pub fn within(&self, timeout: Duration) -> Team {
        Team { node: self.node.within(timeout), membership: Arc::clone(&self.membership) }
    }

    /// Splits the team: those who give the same color are in a new one, in the order of their keys and, where
    /// these are alike, of their ranks in this team. A member that gives none is in no new team and gets
    /// `None`. All members must call it.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::Team`], [`Error::Differ`], [`Error::Timeout`], [`Error::InHandler`].
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Team>, Error> {
        self.node.may_wait("splitting a team")?;
        let (id, new) = {
            let mut engine = self.node.core.engine();
            (self.membership.id, color.map(|color| (color, engine.begin_split(self.membership.id, color))))
        };
        let mut entries = vec![[0; 24]; self.size() as usize];
        let entry = [split_entry(color, key)];
        let mut scratch = Vec::new();
        let buffers =
            Buffers { input: Some(&entry[..]), output: &mut entries[..], scratch: &mut scratch[..] };
        let gathered = self.run(&Collective::Split, buffers, &mut |_: &mut [_], _: &[_]| {});
        match (gathered, new) {
            (Ok(()), None) => Ok(None),
            (Ok(()), Some((color, Some(new)))) => {
                let members = split_members(entries.as_flattened(), color);
                let mut engine = self.node.core.engine();
                engine.end_split(id, new, &members);
                let (size, me) = engine.team(new).expect("it has just been made");
                drop(engine);
                Ok(Some(Team::new(&self.node, new, size, me)))
            }
            (Ok(()), Some((_, None))) => {
                Err(Error::Team { peer: self.node.rank(), what: "has a team of that name already" })
            }
            (Err(error), new) => {
                if let Some((_, Some(new))) = new {
                    self.node.core.engine().drop_team(new);
                }
                Err(error)
            }
        }
    }
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Membership { id, size, me, .. } = &*self.membership;
        f.debug_struct("Team").field("id", id).field("rank", me).field("size", size).finish_non_exhaustive()
    }
}
