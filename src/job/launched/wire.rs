//! The messages of members, watchers and broker: one datagram a message, each with a small header.
//!
//! The header carries the version of this format, so that two builds that do not understand each other say so
//! instead of guessing. The body is the message in postcard's encoding. Every datagram is hostile input until
//! it has been decoded.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::job::plumbing::env::NAME_BYTES;
use crate::job::plumbing::identity_proof::Proof;
use crate::job::plumbing::secret::Secret;

/// The version of what members, watchers and broker say to each other. It covers every type in this file, and
/// which descriptors come with them. Raise it by one with every change of those: postcard names no fields.
/// The version stands in each datagram, and another one is refused with both numbers.
pub(crate) const WIRE_VERSION: u16 = 5;
const MAGIC: [u8; 4] = *b"SPJ\n";
const HEADER_BYTES: usize = MAGIC.len() + size_of::<u16>();

/// The beginning of every message: for the fuzzer.
#[doc(hidden)]
pub const JOIN_HEADER: [u8; HEADER_BYTES] = {
    let ([a, b, c, d], [e, f]) = (MAGIC, WIRE_VERSION.to_le_bytes());
    [a, b, c, d, e, f]
};

/// No message is longer: a longer datagram is refused unread.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 256;
/// Rounds that a job has at most: each has a thread and three descriptors at the broker for as long as the
/// job.
pub(crate) const ROUNDS_MAX: u32 = 256;
/// A longer program name is cut.
const PROGRAM_BYTES_MAX: usize = 64;
/// A longer account of what is wrong is cut.
const REASON_BYTES_MAX: usize = 200;

/// From a joining process or a member to the broker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Comes with three file descriptors: the control segment, the heap and the ledger.
    Join { secret: Secret, rank: u32, size: u32, program: String },
    /// Wants `peer`'s segments: answered, once, by `Peer` or `Lost`.
    Connect { peer: u32 },
    /// The sender is done with the job; it says nothing after this.
    Leave,
    /// The sender, which has had `peer`'s segments, cannot attach to its private memory: `peer` must copy for
    /// it.
    Serve { peer: u32 },
    /// From a process that only wants to look at the job.
    Watch { secret: Secret },
    /// From a watcher: the members are to show their counters as they are now.
    Look,
    /// From a node to another, by whose address it knows the secret: wants to be its peer. Comes with two
    /// file descriptors, as `Join` does. Says which node the sender is, with the proof of it for those who
    /// have its address, and which place of how many in its control segment the other has.
    Meet { secret: Secret, node: [u8; NAME_BYTES], proof: Proof, place: u32, places: u32 },
    /// The sender has heard that `rank` is gone, and reaches its process by number no more.
    Heard { rank: u32 },
}

/// From the broker to a joining process, a member or a watcher.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The sender of `Join` is a member now.
    Welcome { launcher_pid: u32 },
    /// It is not; the connection ends with this.
    Refused(Refusal),
    /// Comes with two file descriptors, as `Join` did: those of `rank`. To a watcher it comes with the
    /// control segment alone, for reading only.
    Peer { rank: u32, pid: u32 },
    /// `rank` is gone and does not come back.
    Lost { rank: u32, how: How },
    /// Some member cannot attach to the receiver's private memory. Told once, whoever else finds so too.
    Serve,
    /// The sender of `Watch` may look at a job of this size.
    Watching { size: u32 },
    /// To a member: it is to show its counters, for somebody looks. To a watcher: it has been told of all
    /// members, and they have been told that it looks.
    Look,
    /// The sender of `Meet` is a peer now. Comes with two file descriptors, and says what `Meet` does.
    Met { place: u32, places: u32 },
    /// It is none; the connection ends with this.
    Declined(Decline),
    /// The sender of `Join` has a rank that has left: the job's next round meets at the broker of that name,
    /// by the same secret. To the sender of `Watch`: all are there. The connection ends with this.
    Next { name: [u8; NAME_BYTES] },
}

/// Why a node does not take another for a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Decline {
    /// The secret was not that of the node's address.
    #[error("the secret is not its own: the address is not the one that it gave")]
    Secret,
    /// The two are about to be peers, or are: the other call tells.
    #[error("it is connecting to this node itself")]
    Crossed,
    /// It has had as many peers as it has room for.
    #[error("it has room for {peers} peers, and has had as many (its STANDPIPE_PEERS)")]
    Full {
        /// The most peers that it can have.
        peers: u32,
    },
    /// It cannot use what it was handed.
    #[error("{what}")]
    Unfit {
        /// The fault; over shared memory cut to what a message has room for.
        what: String,
    },
    /// The segments' file descriptors did not reach it.
    #[error(
        "the file descriptors that it was handed did not arrive: it has room for no more (its `ulimit -n`)"
    )]
    NoDescriptors,
    /// It cannot watch the process: that is gone already, or in a process namespace out of sight.
    #[error("it cannot see process {pid}")]
    Unseen {
        /// This process as the other sees it; zero when it has no number there.
        pid: u32,
    },
}

/// How a rank came to be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum How {
    /// It took leave of the job.
    Left,
    /// Its process exited with this code without taking leave.
    Exited(i32),
    /// Its process was killed by this signal.
    Killed(i32),
    /// Its connection ended or its process disappeared, and nobody who could know said why.
    Vanished,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("left the job"),
            Self::Exited(code) => write!(f, "exited with status {code}"),
            Self::Killed(signal) => write!(f, "was killed by signal {signal}"),
            Self::Vanished => f.write_str("vanished"),
        }
    }
}

/// A remedy, where the process that has a rank already is this one or its parent.
fn whose(pid: u32) -> &'static str {
    if pid == std::process::id() {
        ", which is this one: libraries of a process share a node by Node::shared"
    } else if pid == std::os::unix::process::parent_id() {
        ", whose child this one is: it may open a node that is not the job's, by Node::open_in(config, None)"
    } else {
        ""
    }
}

/// Why the broker did not let a process join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The two sides speak different versions of the joining protocol.
    #[error("the launcher speaks version {ours} of the joining protocol, this process version {theirs}")]
    Version {
        /// The broker's version.
        ours: u16,
        /// The joiner's version.
        theirs: u16,
    },
    /// The message was not a well-formed request to join with two file descriptors.
    #[error("the request to join was malformed")]
    Malformed,
    /// The process belongs to another user than the job.
    #[error("the job belongs to user {ours}, this process to user {theirs}")]
    Uid {
        /// The broker's user.
        ours: u32,
        /// The joiner's user.
        theirs: u32,
    },
    /// The secret was not this job's.
    #[error("the secret is not this job's")]
    Secret,
    /// The job has another size than the joiner was told.
    #[error("the job has {ours} ranks, not {theirs}")]
    Size {
        /// The job's size.
        ours: u32,
        /// The size that the joiner named.
        theirs: u32,
    },
    /// There is no such rank in the job.
    #[error("rank {rank} does not exist in a job of {size}")]
    NoSuchRank {
        /// The rank that the joiner named.
        rank: u32,
        /// The job's size.
        size: u32,
    },
    /// Another process has joined as this rank.
    #[error("rank {rank} is taken by process {pid} ({program}){}", whose(*pid))]
    RankTaken {
        /// The rank that the joiner named.
        rank: u32,
        /// The process that has it.
        pid: u32,
        /// The program that that process runs, cut to 64 bytes.
        program: String,
    },
    /// The rank's process has ended, without leave or as the launcher says; nobody else gets the rank.
    #[error(
        "rank {rank} is over: its process {how}, and the job takes no other in its place (docs/PROCESS.md, Wrappers that retry)"
    )]
    RankOver {
        /// The rank that the joiner named.
        rank: u32,
        /// How it ended.
        how: How,
    },
    /// The broker cannot watch the process: it is gone already, or in a process namespace out of sight.
    #[error("the launcher cannot see process {pid}")]
    Unseen {
        /// The joiner as the broker sees it; zero when it has no number there.
        pid: u32,
    },
    /// The broker may see the process, and the system does not let it watch it.
    #[error("the launcher cannot watch process {pid}: {}", std::io::Error::from_raw_os_error(*errno))]
    Unwatched {
        /// The joiner as the broker sees it.
        pid: u32,
        /// The system's error: EMFILE where the broker has no descriptor left, EPERM or ENOSYS where
        /// pidfd_open is refused.
        errno: i32,
    },
    /// The rank has left, and the system does not let the launcher have the job meet anew.
    #[error("the job's next round cannot begin: {}", std::io::Error::from_raw_os_error(*errno))]
    NoRound {
        /// The system's error.
        errno: i32,
    },
    /// The rank has left the last round that a job has.
    #[error("the job has had {most} rounds, each with nodes that were opened again, and has no more")]
    Rounds {
        /// How many.
        most: u32,
    },
    /// As many watch the job already as may.
    #[error("{watchers} watch the job already")]
    Watched {
        /// How many.
        watchers: u32,
    },
}

/// Why a datagram is no message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The header names another version of the format.
    Version { theirs: u16 },
    /// No header, no known message, or more than one.
    Malformed,
}

/// The datagram that carries `message`.
pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(DATAGRAM_BYTES_MAX);
    datagram.extend_from_slice(&MAGIC);
    datagram.extend_from_slice(&WIRE_VERSION.to_le_bytes());
    let datagram =
        postcard::to_extend(message, datagram).expect("a Vec grows, and every type here has an encoding");
    assert!(datagram.len() <= DATAGRAM_BYTES_MAX, "messages are bounded by construction");
    datagram
}

/// The message in `datagram`, which must hold exactly one.
pub(crate) fn decode<T: DeserializeOwned>(datagram: &[u8]) -> Result<T, DecodeError> {
    let (header, body) = datagram.split_at_checked(HEADER_BYTES).ok_or(DecodeError::Malformed)?;
    let (magic, version) = header.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(DecodeError::Malformed);
    }
    let theirs = u16::from_le_bytes([version[0], version[1]]);
    if theirs != WIRE_VERSION {
        return Err(DecodeError::Version { theirs });
    }
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(DecodeError::Malformed),
    }
}

/// `program`, cut to what a message has room for.
pub(crate) fn short_program(program: &str) -> String {
    cut(program, PROGRAM_BYTES_MAX)
}

/// The fault; over shared memory cut to what a message has room for.
pub(crate) fn short_reason(what: &str) -> String {
    cut(what, REASON_BYTES_MAX)
}

fn cut(text: &str, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.expect("0 is a boundary")].to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn how() -> impl Strategy<Value = How> {
        prop_oneof![
            Just(How::Left),
            any::<i32>().prop_map(How::Exited),
            any::<i32>().prop_map(How::Killed),
            Just(How::Vanished),
        ]
    }

    fn reply() -> impl Strategy<Value = Reply> {
        prop_oneof![
            any::<u32>().prop_map(|launcher_pid| Reply::Welcome { launcher_pid }),
            any::<(u32, u32)>().prop_map(|(rank, pid)| Reply::Peer { rank, pid }),
            Just(()).prop_map(|()| Reply::Serve),
            Just(()).prop_map(|()| Reply::Look),
            any::<u32>().prop_map(|size| Reply::Watching { size }),
            any::<[u8; NAME_BYTES]>().prop_map(|name| Reply::Next { name }),
            (any::<u32>(), how()).prop_map(|(rank, how)| Reply::Lost { rank, how }),
            any::<(u32, u32)>().prop_map(|(place, places)| Reply::Met { place, places }),
            any::<u32>().prop_map(|peers| Reply::Declined(Decline::Full { peers })),
            any::<String>().prop_map(|what| {
                Reply::Declined(Decline::Unfit { what: short_reason(&what.repeat(20)) })
            }),
            (any::<u32>(), how()).prop_map(|(rank, how)| Reply::Refused(Refusal::RankOver { rank, how })),
            (any::<u32>(), any::<u32>(), any::<String>()).prop_map(|(rank, pid, program)| {
                let program = short_program(&program);
                Reply::Refused(Refusal::RankTaken { rank, pid, program })
            }),
        ]
    }

    proptest! {
        #[test]
        fn replies_go_there_and_back(reply in reply()) {
            prop_assert_eq!(decode::<Reply>(&encode(&reply)), Ok(reply));
        }

        #[test]
        fn a_join_of_any_program_fits(program in any::<String>(), rank: u32, size: u32) {
            let secret = Secret::random().expect("the kernel has random bytes");
            let join = Request::Join { secret, rank, size, program: short_program(&program) };
            prop_assert!(decode::<Request>(&encode(&join)).is_ok());
        }

        #[test]
        fn a_wish_to_be_peers_fits(node: [u8; NAME_BYTES], place: u32, places: u32) {
            let secret = Secret::random().expect("the kernel has random bytes");
            let name = crate::job::plumbing::env::JobName::of(&node);
            let proof = Proof::of(&secret, &name, &name);
            let meet = Request::Meet { secret, node, proof, place, places };
            prop_assert!(decode::<Request>(&encode(&meet)).is_ok());
        }

        #[test]
        fn noise_is_an_error_and_never_a_panic(noise in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(decode::<Request>(&noise).is_err());
        }

        #[test]
        fn noise_behind_a_good_header_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut datagram = [&MAGIC[..], &WIRE_VERSION.to_le_bytes()].concat();
            datagram.extend(noise);
            let _ = decode::<Request>(&datagram);
            let _ = decode::<Reply>(&datagram);
        }

        #[test]
        fn cut_or_lengthened_messages_are_refused(reply in reply(), cut in 0usize..200) {
            let whole = encode(&reply);
            let cut = cut % whole.len();
            prop_assert!(decode::<Reply>(&whole[..cut]).is_err());
            prop_assert!(decode::<Reply>(&[&whole[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut datagram = encode(&Request::Leave);
        datagram[MAGIC.len()] = 9;
        assert_eq!(decode::<Request>(&datagram).expect_err("version 9"), DecodeError::Version { theirs: 9 });
    }
}
