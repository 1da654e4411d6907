//! The two threads of a process that grant its memory, and reach what others grant. The owner revokes a grant
//! or re-points it after a moment, takes the memory back and makes it something else: nobody must have read
//! or written that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use standpipe::{Audience, Error, Foreign, Grant, GrantName, Node, PutPiece, Remote, Rights};

use crate::memory::{GRANTED, slot};
use crate::process::{Known, Mode, Shared};
use crate::supervisor::CALL_MAX;
use crate::support::Random;

/// Words of the memory that is granted: several chunks of a message. More would take the storm's time.
const WORDS: usize = 1 << 14;
/// From one use of others' grants to the next: the other threads are to have most of the processors.
const PAUSE: Duration = Duration::from_millis(1);
/// The bit that those set in each word who write there.
const WRITTEN: u64 = 1 << 63;
/// The value of memory that is granted to nobody.
const FREE: u64 = 0xeeee_eeee_eeee_eeee;

type Words = &'static [AtomicU64];

/// Never freed: others write there until this process has ended.
fn free_memory() -> Words {
    Vec::leak((0..WORDS).map(|_| AtomicU64::new(FREE)).collect())
}

fn fill(memory: Words, value: u64) {
    memory.iter().for_each(|word| word.store(value, Ordering::Relaxed));
}

/// That there is nothing in it but what was put there for this grant, or nothing at all for `FREE`.
fn check(memory: Words, id: u64, what: &str) {
    let others = |word: &&AtomicU64| ![id, id | WRITTEN].contains(&word.load(Ordering::Relaxed));
    if let Some(word) = memory.iter().find(others) {
        panic!("{what} grant {id:#x}: {:#x}", word.load(Ordering::Relaxed));
    }
}

fn foreign(memory: Words) -> Foreign<()> {
    let start = memory.as_ptr().cast::<u8>().cast_mut();
    // SAFETY: the memory is never freed, and this process uses it by atomics alone.
    unsafe { Foreign::new(start, 8 * memory.len(), ()) }
}

/// Has grants come and go while the storm is rough.
pub(crate) fn come_and_go(shared: &Shared) {
    let mut random = Random::new(shared.seed ^ 0x96a7 ^ (shared.id as u64) << 32);
    let mut memory = [free_memory(), free_memory()];
    let mut made = 0_u64;
    while shared.mode() == Mode::Rough {
        shared.doing("owner", format!("the grant after {made}"));
        check_free(memory[0]);
        let grant = shared.node.grant(foreign(memory[0]), Rights::ReadWrite, Audience::ALL).expect("granted");
        made += 1;
        visit(shared, grant, &mut memory, &mut random);
    }
    shared.doing("owner", "nothing any more".into());
    memory.into_iter().for_each(check_free);
}

fn check_free(memory: Words) {
    let is_free = |word: &AtomicU64| word.load(Ordering::Relaxed) == FREE;
    assert!(memory.iter().all(is_free), "something was put into memory that was taken back");
}

/// The life of a grant.
fn visit(shared: &Shared, mut grant: Grant<Foreign<()>>, memory: &mut [Words; 2], random: &mut Random) {
    let [id, len] = grant.name().to_words();
    fill(memory[0], id);
    let told = slot(shared.id, 0) * crate::memory::WORDS + GRANTED;
    shared.memory.words.write(told + 1, len);
    shared.memory.words.write(told, id);
    for _ in 0..random.below(3) {
        std::thread::sleep(Duration::from_micros(random.below(3000) as u64));
        check_free(memory[1]);
        fill(memory[1], id);
        grant.repoint(foreign(memory[1]), CALL_MAX).expect("nobody stays at the old memory");
        check(memory[0], id, "re-pointed");
        fill(memory[0], FREE);
        memory.swap(0, 1);
    }
    std::thread::sleep(Duration::from_micros(random.below(3000) as u64));
    grant.revoke().expect("it is granted");
    grant.wait_idle(CALL_MAX).expect("nobody stays at it");
    check(memory[0], id, "revoked");
    fill(memory[0], FREE);
}

/// Reads and writes what others grant while the storm is rough.
pub(crate) fn reach(shared: &Shared) {
    let mut random = Random::new(shared.seed ^ 0x5eed ^ (shared.id as u64) << 32);
    let (mut done, mut revoked) = (0_u64, 0_u64);
    while shared.mode() == Mode::Rough {
        let peers = shared.met_since(0);
        std::thread::sleep(PAUSE);
        let Some(peer) = peers.get(random.below(peers.len().max(1))) else { continue };
        shared.doing("user", format!("a grant of {}; {done} were there, {revoked} revoked", peer.id));
        match reach_one(&shared.node, peer, &mut random) {
            Ok(()) => done += 1,
            Err(Error::Revoked { peer: of, .. }) if of == peer.number => revoked += 1,
            // Those who are lost stay among those who were met.
            Err(Error::PeerLost { peer: lost }) if lost == peer.number => {}
            Err(error) => panic!("a grant of process {}: {error} ({error:?})", peer.id),
        }
    }
    shared.doing("user", "nothing any more".into());
}

fn reach_one(node: &Node, peer: &Known, random: &mut Random) -> Result<(), Error> {
    let word = |at| peer.places.word::<u64>(peer.number, slot(peer.id, 0), at);
    let (id, len) = (node.get(word(GRANTED))?, node.get(word(GRANTED + 1))?);
    // It has granted nothing yet.
    let Some(name) = GrantName::from_words([id, len]).filter(|name| name.len() > 0) else { return Ok(()) };
    // Few are long: over a network they take the time of many others.
    let words = [1, 1, 1, 100, 100, 100, 1000, WORDS][random.below(8)];
    let at = 8 * random.below(WORDS - words + 1) as u64;
    let there = Remote::granted(peer.number, name).plus(at);
    let mut bytes = vec![id | WRITTEN; words];
    match random.below(3) {
        0 => node.put_bytes(there, bytemuck::cast_slice(&bytes))?,
        1 => {
            let (head, tail) = bytes.split_at(words / 2);
            let (behind, [head, tail]) =
                (there.plus(8 * head.len() as u64), [head, tail].map(bytemuck::cast_slice));
            node.put_list(&[PutPiece { to: there, from: head }, PutPiece { to: behind, from: tail }])?;
        }
        _ => {
            node.get_bytes(there, bytemuck::cast_slice_mut(&mut bytes))?;
            let other = bytes.iter().find(|word| **word & !WRITTEN != id);
            assert!(other.is_none(), "grant {id:#x} of process {} has {other:x?}", peer.id);
        }
    }
    Ok(())
}
