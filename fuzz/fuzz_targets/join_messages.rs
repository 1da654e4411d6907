//! Processes that say anything to the broker, with and without the job's secret: it never dies, and it always
//! answers an honest process that joins.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, sendmsg, socket_with,
};
use standpipe::bootstrap::{Broker, JOIN_HEADER, JoinError, Membership};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Ranks of the job; the honest process joins as the last.
const SIZE: u32 = 3;
/// Connections that the hostile side has at most.
const LINES: usize = 4;
const HANDLES_MAX: usize = 4;

#[derive(Arbitrary, Debug)]
enum Says {
    Anything(Vec<u8>),
    /// A well-formed header, and anything behind it.
    Headed(Vec<u8>),
    Join {
        secret: bool,
        rank: u8,
        size: u8,
        program: Vec<u8>,
    },
    Connect {
        peer: u32,
    },
    Leave,
    /// Ends the connection; what comes next opens another.
    HangUp,
}

#[derive(Arbitrary, Debug)]
struct Step {
    line: u8,
    handles: u8,
    says: Says,
}

fuzz_target!(|steps: Vec<Step>| {
    let broker = Broker::start(SIZE).expect("the machine has a socket and a thread left");
    let vars = broker.env(SIZE - 1).vars();
    let [job, secret] = [&vars[0].1, &vars[1].1];
    let file = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("the machine has memory left");
    let mut lines: BTreeMap<usize, OwnedFd> = BTreeMap::new();
    for Step { line, handles, says } in steps {
        let line = usize::from(line) % LINES;
        let Some(datagram) = says.datagram(secret) else {
            lines.remove(&line);
            continue;
        };
        let socket = lines.entry(line).or_insert_with(|| open(job));
        send(socket, &datagram, &vec![file.as_fd(); usize::from(handles) % (HANDLES_MAX + 1)]);
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    let joined = Membership::join(&broker.env(SIZE - 1), [file.as_fd(); 3], deadline, Box::new(|_| {}));
    match joined {
        // A hostile process that knows the secret may have been first.
        Ok(_) | Err(JoinError::Refused(_)) => {}
        Err(error) => panic!("the broker did not serve an honest process: {error}"),
    }
});

impl Says {
    /// None for hanging up.
    fn datagram(&self, secret: &str) -> Option<Vec<u8>> {
        Some(match self {
            Says::Anything(bytes) => bytes.clone(),
            Says::Headed(bytes) => [&JOIN_HEADER, &bytes[..]].concat(),
            Says::Join { secret: known, rank, size, program } => {
                let secret = if *known { unhex(secret) } else { vec![0; secret.len() / 2] };
                let size = if *size < 128 { SIZE as u8 } else { *size };
                let program = &program[..program.len().min(100)];
                let fixed = [&[rank % 4, size, program.len() as u8][..], program].concat();
                [&JOIN_HEADER, &[0][..], &secret, &fixed].concat()
            }
            Says::Connect { peer } => [&JOIN_HEADER, &[1][..], &varint(*peer)].concat(),
            Says::Leave => [&JOIN_HEADER, &[2][..]].concat(),
            Says::HangUp => return None,
        })
    }
}

/// A number as postcard writes it.
fn varint(mut number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("hex digits"), 16);
    digits.map(|pair| byte(pair).expect("the secret is written in hex")).collect()
}

fn open(job: &str) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("one socket more");
    let name =
        SocketAddrUnix::new_abstract_name(format!("standpipe-{job}").as_bytes()).expect("a short name");
    // Refused only where the broker has too many guests; then sending fails below, as it may.
    let _ = connect(&socket, &name);
    socket
}

fn send(socket: &OwnedFd, bytes: &[u8], handles: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDLES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !handles.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(handles)), "there is room for as many");
    }
    // Fails when the broker has hung up, or is slower than we: both are its right.
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
}
