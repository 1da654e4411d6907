//! Remote writes and reads: looked up, started, and counted until they are done.

use std::collections::HashMap;

use standpipe::{AllMemory, Event, Foreign, Node, Rank};

use super::error::{PmError, of_transport};
use super::locks::{Handle, Locks, Row, WORDS, covers};

/// Writes and reads of a process that may be under way at a time.
pub const TRANSFERS_MAX: usize = 64;

/// Handles of far peers that are remembered as looked up.
const KNOWN_MAX: usize = 4096;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Write,
    Read,
}

/// What a program asks for.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) channel: u16,
    pub(super) direction: Direction,
    pub(super) peer: Rank,
    pub(super) remote: Handle,
    pub(super) local: Handle,
    pub(super) len: usize,
    /// A caller has a number if it is to be told its own result.
    pub(super) number: Option<u64>,
}

enum State {
    /// The peer's table is being asked for the region. How many the peer had unlocked before, as is known.
    LookingUp(Event<Vec<u64>>, u64),
    Moving(Event<Foreign<()>>),
}

struct Transfer {
    asked: Asked,
    state: State,
}

/// One that has ended: whose, and how.
pub(super) struct Ended {
    pub(super) channel: u16,
    pub(super) direction: Direction,
    pub(super) number: Option<u64>,
    pub(super) result: Result<(), PmError>,
}

/// All that are under way.
#[derive(Default)]
pub(super) struct Transfers {
    under_way: Vec<Transfer>,
    /// Regions of far peers, by the number in their handles, and how many regions the peer had unlocked when
    /// it was asked, at least: what it has sent since tells whether that is so still.
    known: HashMap<(Rank, u64), (Row, u64)>,
}

impl Transfers {
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.under_way.len() >= TRANSFERS_MAX
    }

    /// Whether some are under way of that channel, in that direction.
    pub(super) fn has(&self, channel: u16, direction: Direction) -> bool {
        let is_it = |asked: &Asked| asked.channel == channel && asked.direction == direction;
        self.under_way.iter().any(|transfer| is_it(&transfer.asked))
    }

    /// Starts one. A near peer's table is memory here, and looked at now. A far one's is got first, once a
    /// region, and again once the peer has told that it has unlocked any: `heard` is how many it had at
    /// least. The transfer follows by itself. Whether it is done already.
    pub(super) fn start(
        &mut self,
        node: &Node,
        memory: AllMemory,
        locks: &Locks,
        asked: Asked,
        heard: u64,
    ) -> Result<bool, PmError> {
        let place = locks.row_of(asked.peer, asked.remote);
        let does = |row: Row| covers(row, asked.remote, asked.len as u64, node.rank());
        if node.is_near(asked.peer) {
            if !does(node.get(place).map_err(|error| of_transport(&error))?) {
                return Err(PmError::Invalid);
            }
        } else if !self.is_known(asked, heard, does) {
            let event = node.get_nb(place, vec![0; WORDS]);
            self.under_way.push(Transfer { asked, state: State::LookingUp(event, heard) });
            return Ok(false);
        }
        let mut event = begin(node, memory, asked);
        if event.is_complete() {
            return event.wait().0.map(|()| true).map_err(|error| of_transport(&error));
        }
        self.under_way.push(Transfer { asked, state: State::Moving(event) });
        Ok(false)
    }

    /// Whether the peer's row is known, and is that of these bytes. Numbers come again: it may be of another
    /// region.
    fn is_known(&self, asked: Asked, heard: u64, does: impl Fn(Row) -> bool) -> bool {
        let known = self.known.get(&(asked.peer, asked.remote.tag()));
        known.is_some_and(|(row, unlocked)| *unlocked == heard && does(*row))
    }

    /// Goes on with all, and takes out those that have ended.
    pub(super) fn advance(&mut self, node: &Node, memory: AllMemory, ended: &mut Vec<Ended>) {
        let mut at = 0;
        while at < self.under_way.len() {
            let is_over = match &mut self.under_way[at].state {
                State::LookingUp(event, _) => event.is_complete(),
                State::Moving(event) => event.is_complete(),
            };
            if !is_over {
                at += 1;
                continue;
            }
            let Transfer { asked, state } = self.under_way.swap_remove(at);
            let result = match state {
                State::Moving(event) => event.wait().0.map_err(|error| of_transport(&error)),
                State::LookingUp(event, heard) => match self.looked_up(node, asked, event, heard) {
                    Ok(()) => {
                        let state = State::Moving(begin(node, memory, asked));
                        self.under_way.push(Transfer { asked, state });
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            let Asked { channel, direction, number, .. } = asked;
            ended.push(Ended { channel, direction, number, result });
        }
    }

    fn looked_up(
        &mut self,
        node: &Node,
        asked: Asked,
        event: Event<Vec<u64>>,
        heard: u64,
    ) -> Result<(), PmError> {
        let (result, row) = event.wait();
        result.map_err(|error| of_transport(&error))?;
        let row: Row = row.try_into().expect("as many words were asked for");
        if !covers(row, asked.remote, asked.len as u64, node.rank()) {
            return Err(PmError::Invalid);
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert((asked.peer, asked.remote.tag()), (row, heard));
        Ok(())
    }
}

fn begin(node: &Node, memory: AllMemory, asked: Asked) -> Event<Foreign<()>> {
    let start = std::ptr::with_exposed_provenance_mut(asked.local.addr() as usize);
    let remote = memory.remote(asked.peer, asked.remote.addr());
    let local = memory.buffer(start, asked.len, ());
    match asked.direction {
        Direction::Write => node.put_nb(remote, local),
        Direction::Read => node.get_nb(remote, local),
    }
}
