//! Copies whose local memory is not there, and the network that is innocent of it.

use std::time::Instant;

use conformance::Cluster;
use engine::{Direction, Inbox, MemId, OpError, OpId, Outcome, Piece, Place};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use super::cluster::{LIMIT, OfiCluster, Setting, providers};

const LEN: usize = 200_000;

/// Memory whose second half nobody may touch: a file that another process has cut short is like it.
struct Torn {
    at: *mut std::ffi::c_void,
}

impl Torn {
    fn new() -> Torn {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, wherever the kernel wants it: nothing else lies there.
        let at = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 2 * LEN, protection, flags) };
        let at = at.expect("memory");
        // SAFETY: the end is the mapping's own, made above, and no reference to it is ever made.
        let torn = unsafe {
            let page = vm::host::page_bytes();
            let half = at.byte_add((LEN / 2).next_multiple_of(page));
            rustix::mm::mprotect(half, LEN, MprotectFlags::empty())
        };
        torn.expect("it is mapped");
        Torn { at }
    }

    fn place(&self) -> Place {
        Place::new(MemId::Space, self.at.expose_provenance() as u64)
    }
}

impl Drop for Torn {
    fn drop(&mut self) {
        // SAFETY: all of the mapping that `new` has made; the copies with it are over.
        unsafe { rustix::mm::munmap(self.at, 2 * LEN) }.expect("it is mapped");
    }
}

fn poll(cluster: &mut OfiCluster) {
    (0..2).for_each(|rank| _ = cluster.node(rank).poll(&mut Inbox::default()));
    cluster.step();
}

fn outcome(cluster: &mut OfiCluster, id: OpId) -> Outcome {
    let begun = Instant::now();
    loop {
        if let Some(outcome) = cluster.node(0).outcome(id) {
            return outcome;
        }
        assert!(begun.elapsed() < LIMIT, "it does not end");
        poll(cluster);
    }
}

fn start(cluster: &mut OfiCluster, direction: Direction, here: Place, there: Place, len: usize) -> OpId {
    let piece = Piece::new(there, here, len as u64).expect("it does not wrap");
    cluster.node(0).transfer(1, direction, &[piece], None)
}

#[test]
fn a_copy_of_memory_that_is_not_there_ends_with_its_address_and_costs_no_peer() {
    for provider in providers() {
        eprintln!("over {}", provider.description().provider);
        let (confirms, registers_local, pins, send_timeout) = (false, false, false, LIMIT);
        let setting = Setting {
            provider: &provider,
            registration: None,
            confirms,
            registers_local,
            pins,
            send_timeout,
        };
        let mut cluster = OfiCluster::new(2, setting);
        let torn = Torn::new();
        let (here, there) = ([0; 4].map(|_| cluster.private(0, LEN)), cluster.heap(1, LEN));
        let others = [0; 4].map(|_| cluster.heap(1, LEN));
        while !cluster.transport(0).knows_heap(1) {
            poll(&mut cluster);
        }
        for direction in [Direction::Put, Direction::Get] {
            let bytes = |at: usize| vec![10 * at as u8 + direction as u8 + 1; LEN];
            let directions = [Direction::Put, Direction::Get, Direction::Put, Direction::Get];
            let mut ids = Vec::new();
            for (at, its) in directions.into_iter().enumerate() {
                match its {
                    Direction::Put => cluster.poke(0, here[at], &bytes(at)),
                    Direction::Get => cluster.poke(1, others[at], &bytes(at)),
                }
                if at == 2 {
                    // Both the one under way and the one that waits for it.
                    ids.extend([0; 2].map(|_| start(&mut cluster, direction, torn.place(), there, LEN)));
                }
                ids.push(start(&mut cluster, its, here[at], others[at], LEN));
            }
            let fault =
                Err(OpError::LocalFault { mem: MemId::Space, addr: torn.place().offset, len: LEN as u64 });
            for (at, id) in ids.into_iter().enumerate() {
                let wanted = if [2, 3].contains(&at) { fault } else { Ok(0) };
                assert_eq!(outcome(&mut cluster, id), wanted, "{direction:?}, {at}");
            }
            for at in 0..4 {
                let mut found = [vec![0; LEN], vec![0; LEN]];
                cluster.peek(0, here[at], &mut found[0]);
                cluster.peek(1, others[at], &mut found[1]);
                assert!(found.iter().all(|found| *found == bytes(at)), "other bytes than were sent");
            }
            assert!(!cluster.node(0).is_lost(1), "whose memory it was not");
            for len in [8, LEN] {
                let id = start(&mut cluster, Direction::Put, here[0], there, len);
                assert_eq!(outcome(&mut cluster, id), Ok(0), "the next, of {len} bytes");
            }
        }
        assert_eq!(cluster.transport(0).links.get(1).expect("they talk").copying.parts, [0; 3]);
        assert!(cluster.transport(0).endpoint_pool.closed > 0, "none of it has reached the provider");
    }
}
