//! The public API between real processes: a job of two, of three, and of more processes than most test
//! machines have cores. Every byte that moves is verified by its receiver.

use crate::support;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{
    Heard, LIMIT, Private, Random, config, heap_of, job_in_role, job_of, pattern, private_of, publish, role,
    say,
};
use standpipe::launch::Launch;
use standpipe::{
    DirectoryError, Error, GetPiece, GlobalPtr, Landed, Mechanism, Memory, Node, Operation, PathReason,
    PutPiece, Rank, Remote, Strided,
};

const SIZES: [u32; 3] = [2, 3, 8];

fn in_jobs_of_all_sizes(role: &str) {
    for size in SIZES {
        Heard::default().run_well(job_of(size, role));
    }
}

#[test]
fn what_is_put_can_be_read_by_its_owner_and_got_by_all() {
    in_jobs_of_all_sizes("blocks");
}

#[test]
fn lists_mix_heap_and_private_memory_of_several_peers() {
    in_jobs_of_all_sizes("lists");
}

#[test]
fn strided_blocks_land_where_the_strides_say() {
    in_jobs_of_all_sizes("strides");
}

#[test]
fn atomics_of_all_processes_add_up() {
    in_jobs_of_all_sizes("atomics");
}

#[test]
fn everyone_asks_everyone_and_every_answer_comes() {
    in_jobs_of_all_sizes("messages");
}

#[test]
fn nobody_passes_a_barrier_before_everybody_has_arrived() {
    in_jobs_of_all_sizes("barriers");
}

#[test]
fn names_are_found_replaced_and_withdrawn() {
    in_jobs_of_all_sizes("names");
}

#[test]
fn a_peer_that_only_computes_is_read_and_written() {
    Heard::default().run_well(job_of(2, "computes"));
}

#[test]
fn a_bad_address_is_an_error_here_and_no_harm_there() {
    in_jobs_of_all_sizes("faults");
}

#[test]
fn all_this_holds_over_the_network() {
    let Some(network) = support::network() else { return };
    let roles =
        ["blocks", "lists", "strides", "atomics", "messages", "barriers", "names", "computes", "faults"];
    for role in roles {
        let begun = std::time::Instant::now();
        let size = if ["messages", "barriers"].contains(&role) { 4 } else { 2 };
        Heard::default().run_well(job_of(size, role).env("STANDPIPE_TRANSPORT", network));
        println!("{role} took {:?}", begun.elapsed());
    }
}

/// The keeper of the barrier's counter leaves at once, and who came last has yet to find the way to most
/// others.
#[test]
fn the_first_barrier_may_be_the_last_thing_that_happens() {
    let Some(network) = support::network() else { return };
    for _ in 0..5 {
        Heard::default().run_well(job_of(4, "meets").env("STANDPIPE_TRANSPORT", network));
    }
}

/// As `p || p` does.
#[test]
fn a_program_that_is_tried_again_in_its_rank_hears_that_the_rank_is_over() {
    let itself = std::env::current_exe().expect("this program");
    let shell = Launch::new("sh").args(["-c", r#""$0" "$@" || "$0" "$@""#]).args([itself]);
    let heard = Heard::default();
    heard.run_well(job_in_role(shell, 1, "tried again"));
    let said = heard.said(0);
    assert!(said.len() == 2 && said[0] == "open", "{said:?}");
    assert!(said[1].contains("rank 0 is over: its process vanished"), "{said:?}");
    assert!(said[1].contains("docs/PROCESS.md"), "{said:?}");
}

/// Not a test: what the ranks of the tests above do.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.as_str() {
        "blocks" => blocks(&open()),
        "lists" => lists(&open()),
        "strides" => strides(&open()),
        "atomics" => atomics(&open()),
        "messages" => messages(),
        "barriers" => barriers(&open()),
        "names" => names(&open()),
        "computes" => computes(&open()),
        "faults" => faults(&open()),
        "meets" => open().barrier().expect("all come"),
        "tried again" => match Node::open(config()) {
            Ok(_node) => {
                say("open");
                std::process::exit(1);
            }
            Err(error) => say(error),
        },
        other => panic!("no role {other}"),
    }
}

fn open() -> Node {
    Node::open(config()).expect("a node")
}

fn others(node: &Node) -> impl Iterator<Item = Rank> + use<> {
    let (me, size) = (node.rank(), node.size());
    // Everyone starts with another peer, so that they do not queue up.
    (1..size).map(move |step| (me + step) % size)
}

/// A number for what `from` puts at `to` for a purpose.
fn seed(from: Rank, to: Rank, purpose: u64) -> u64 {
    u64::from(from) << 40 | u64::from(to) << 20 | purpose
}

const BLOCK: usize = 100_000;

/// Each rank puts a block at each other's heap and private memory, by each of the ways to put; everyone gets
/// all back.
fn blocks(node: &Node) {
    let (me, size) = (node.rank(), node.size() as usize);
    let heap = node.heap().alloc_zeroed::<u8>(size * BLOCK).expect("room");
    let private = Private::new(size * BLOCK);
    publish(node, "heap", heap.ptr(0).to_words());
    private.show(node, "private");
    let mut events = Vec::new();
    for peer in others(node) {
        let place = u64::from(me) * BLOCK as u64;
        let to: GlobalPtr<u8> = heap_of::<u8>(node, peer, "heap").add(place as usize);
        let there = private_of(node, peer, "private").plus(place);
        let block = pattern(seed(me, peer, 0), BLOCK);
        let (head, tail) = block.split_at(BLOCK / 3);
        node.put_slice(to, head).expect("put");
        node.put_nbi(to.add(head.len()), tail).expect("put");
        node.put_bytes(there, head).expect("put");
        events.push(node.put_nb(there.plus(head.len() as u64), tail.to_vec()));
    }
    for event in events {
        event.wait().0.expect("put");
    }
    node.barrier().expect("barrier");
    let (mine, private_bytes) = (heap.to_vec(), private.bytes());
    for peer in others(node) {
        let range = peer as usize * BLOCK..(peer as usize + 1) * BLOCK;
        let expected = pattern(seed(peer, me, 0), BLOCK);
        assert!(mine[range.clone()] == expected, "the block of {peer} in the heap");
        assert!(private_bytes[range] == expected, "the block of {peer} in private memory");
        for from in others(node).filter(|from| *from != peer) {
            let expected = pattern(seed(from, peer, 0), BLOCK);
            let place = u64::from(from) * BLOCK as u64;
            let mut got = vec![0; BLOCK];
            node.get_slice(heap_of::<u8>(node, peer, "heap").add(place as usize), &mut got).expect("get");
            assert!(got == expected, "the block of {from} in the heap of {peer}");
            let remote = private_of(node, peer, "private").plus(place);
            let (result, got) = node.get_nb(remote, vec![0_u8; BLOCK]).wait();
            result.expect("get");
            assert!(got == expected, "the block of {from} in the private memory of {peer}");
        }
    }
    node.barrier().expect("barrier");
}

/// Each rank scatters pieces of random lengths over all others, heap and private memory by turns, in one
/// call.
fn lists(node: &Node) {
    const PIECES: usize = 300;
    const PLACE: usize = 600;
    let (me, size) = (node.rank(), node.size() as usize);
    let heap = node.heap().alloc_zeroed::<u8>(size * PIECES * PLACE).expect("room");
    let private = Private::new(size * PIECES * PLACE);
    publish(node, "heap", heap.ptr(0).to_words());
    private.show(node, "private");
    let mut random = Random::new(u64::from(me));
    let (mut places, mut sources) = (Vec::new(), Vec::new());
    for peer in others(node) {
        let (there, to) = (private_of(node, peer, "private"), heap_of::<u8>(node, peer, "heap"));
        for piece in 0..PIECES {
            let at = ((me as usize * PIECES + piece) * PLACE) as u64;
            let remote =
                if random.below(2) == 0 { there.plus(at) } else { Remote::from(to.add(at as usize)) };
            places.push(remote);
            sources.push(pattern(seed(me, peer, piece as u64), random.below(PLACE + 1)));
        }
    }
    let pieces: Vec<PutPiece<'_>> =
        places.iter().zip(&sources).map(|(to, from)| PutPiece { to: *to, from }).collect();
    node.put_list(&pieces).expect("put");
    node.barrier().expect("barrier");
    let (mine, private_bytes) = (heap.to_vec(), private.bytes());
    for peer in others(node) {
        let mut theirs = Random::new(u64::from(peer));
        for receiver in (1..node.size()).map(|step| (peer + step) % node.size()) {
            for piece in 0..PIECES {
                let memory = if theirs.below(2) == 0 { &private_bytes } else { &mine };
                let bytes = pattern(seed(peer, receiver, piece as u64), theirs.below(PLACE + 1));
                let at = (peer as usize * PIECES + piece) * PLACE;
                assert!(receiver != me || memory[at..at + bytes.len()] == bytes, "piece {piece} of {peer}");
            }
        }
    }
    let mut got: Vec<Vec<u8>> = sources.iter().map(|source| vec![0; source.len()]).collect();
    let mut pieces: Vec<GetPiece<'_>> =
        places.iter().zip(&mut got).map(|(from, into)| GetPiece { from: *from, into }).collect();
    node.get_list(&mut pieces).expect("get");
    assert!(got == sources, "what was put comes back");
    let by_message = node.stats().get(Operation::Put, Mechanism::Message).count > 0;
    let far = node.attach((node.rank() + 1) % node.size()) == Some(Err(PathReason::Network));
    assert_eq!(by_message, far, "only over the network things go by message");
    node.barrier().expect("barrier");
}

/// A brick of 3 × 4 × 5 blocks of 7 bytes goes into a larger one at the neighbour, and comes back.
fn strides(node: &Node) {
    let size: usize = 4096;
    let heap = node.heap().alloc_zeroed::<u8>(size).expect("room");
    let private = Private::new(size);
    publish(node, "heap", heap.ptr(0).to_words());
    private.show(node, "private");
    let right = (node.rank() + 1) % node.size();
    let shape = Strided {
        block: 7,
        counts: &[3, 4, 5],
        remote_strides: &[10, 100, 700],
        local_strides: &[7, 21, 84],
        ..Strided::default()
    };
    let brick = pattern(seed(node.rank(), right, 1), 7 * 60);
    node.put_strided(heap_of::<u8>(node, right, "heap").add(11), &brick, &shape).expect("put");
    node.put_strided(private_of(node, right, "private").plus(11), &brick, &shape).expect("put");
    node.barrier().expect("barrier");
    let left = (node.rank() + node.size() - 1) % node.size();
    let theirs = pattern(seed(left, node.rank(), 1), 7 * 60);
    let mut expected = vec![0; size];
    for (block, bytes) in theirs.chunks(7).enumerate() {
        let at = 11 + block % 3 * 10 + block / 3 % 4 * 100 + block / 12 * 700;
        expected[at..at + 7].copy_from_slice(bytes);
    }
    assert!(heap.to_vec() == expected && private.bytes() == expected, "the brick of {left}");
    let mut back = vec![0; brick.len()];
    node.get_strided(private_of(node, right, "private").plus(11), &mut back, &shape).expect("get");
    assert!(back == brick, "the brick comes back");
    node.barrier().expect("barrier");
}

/// All ranks add to a word of each, and take turns at a lock made of compare-swap.
fn atomics(node: &Node) {
    const ADDS: u64 = 1000;
    let words = node.heap().alloc_zeroed::<u64>(3).expect("room");
    publish(node, "words", words.ptr(0).to_words());
    for peer in 0..node.size() {
        let word: GlobalPtr<u64> = heap_of(node, peer, "words");
        let mut last = None;
        for _ in 0..ADDS {
            let before = node.fetch_add(word, 1).expect("fetch-add");
            assert!(last < Some(before), "a counter that is only added to grows");
            last = Some(before);
        }
        for _ in 0..20 {
            while node.compare_swap(word.add(1), 0, 1).expect("compare-swap") != 0 {
                std::thread::yield_now();
            }
            let guarded = node.get(word.add(2)).expect("get");
            node.put(word.add(2), guarded + 1).expect("put");
            assert_eq!(node.compare_swap(word.add(1), 1, 0), Ok(1), "nobody else opens our lock");
        }
    }
    node.barrier().expect("barrier");
    let size = u64::from(node.size());
    assert_eq!(words.to_vec(), [size * ADDS, 0, size * 20]);
    let odd = heap_of::<u64>(node, 0, "words").cast::<u8>().add(4).cast::<u64>();
    assert!(matches!(node.fetch_add(odd, 1), Err(Error::Unaligned { .. })));
    node.barrier().expect("barrier");
}

/// Requests of every kind to everyone, replied to in kind.
fn messages() {
    const ASKS: u64 = 300;
    let answered = Arc::new(AtomicU64::new(0));
    let (short, medium, long) = (Arc::clone(&answered), Arc::clone(&answered), Arc::clone(&answered));
    let config = config()
        .handler("ask", |call| {
            let [kind, n, addr, _] = call.args();
            let handler = |name| call.node().handler(name).expect("registered");
            let (got, long_got) = (handler("got"), handler("long got"));
            let payload = call.payload().to_vec();
            match kind {
                0 => call.reply(got, [n; 4]),
                1 => call.reply_medium(got, [n; 4], &payload.iter().map(|b| !b).collect::<Vec<_>>()),
                _ => {
                    // SAFETY: the sender says where its own `Private` is, which it keeps until all answers
                    // have come.
                    let to = unsafe { Remote::raw(call.from(), addr) };
                    call.reply_long(long_got, [n; 4], to, &pattern(n, 5000))
                }
            }
            .expect("reply");
        })
        .handler("got", move |call| {
            let n = call.args()[0];
            let expected: Vec<u8> = pattern(n, call.payload().len()).iter().map(|b| !b).collect();
            assert!(call.payload() == expected, "the answer to {n}");
            assert!(!call.is_request());
            short.fetch_add(n, Ordering::SeqCst);
        })
        .handler("long got", move |call| {
            let Some((Landed::Private(_), 5000)) = call.landed() else { panic!("{:?}", call.landed()) };
            medium.fetch_add(call.args()[0], Ordering::SeqCst);
        })
        .handler("landed", move |call| {
            let Some((Landed::Heap(at), len)) = call.landed() else { panic!("{:?}", call.landed()) };
            let mut bytes = vec![0; len as usize];
            call.node().get_slice(at, &mut bytes).expect("one's own heap");
            assert!(bytes == pattern(call.args()[0], 9000), "the payload of a long message");
            long.fetch_add(1 << 32, Ordering::SeqCst);
        });
    let node = Node::open(config).expect("a node");
    let peers = u64::from(node.size() - 1);
    let (landing, room) = (node.heap().alloc_zeroed::<u8>(9000 * 8).expect("room"), Private::new(5000));
    publish(&node, "landing", landing.ptr(0).to_words());
    let addr = address_of(&node, &room);
    let (ask, landed) = (node.handler("ask").expect("known"), node.handler("landed").expect("known"));
    for n in 1..=ASKS {
        for peer in others(&node) {
            node.request(peer, ask, [0, n, 0, 0]).expect("request");
            node.request_medium(peer, ask, [1, n, 0, 0], &pattern(n, n as usize * 20)).expect("request");
        }
    }
    for peer in others(&node) {
        // One long answer at a time: they all land at the same place.
        let before = answered.load(Ordering::SeqCst);
        node.request(peer, ask, [2, 1 << 20, addr, 0]).expect("request");
        node.wait_until(|| answered.load(Ordering::SeqCst) & 0xfff0_0000 > before & 0xfff0_0000)
            .expect("answer");
        let to = heap_of::<u8>(&node, peer, "landing").add(node.rank() as usize * 9000);
        node.request_long(landed, [7, 0, 0, 0], to, &pattern(7, 9000)).expect("request");
    }
    let small = 2 * ASKS * (ASKS + 1) / 2;
    let expected = peers * (small + (1 << 20) + (1 << 32));
    node.wait_until(|| answered.load(Ordering::SeqCst) == expected).expect("all answers");
    assert!(room.bytes() == pattern(1 << 20, 5000), "the payload of the last long answer");
    assert_eq!(node.stats().malformed(), 0);
    node.barrier().expect("barrier");
}

fn address_of(node: &Node, private: &Private) -> u64 {
    private.show(node, "room");
    support::look_up(node, node.rank(), "room")[0]
}

/// Before each barrier everyone writes its number at everyone; after it everyone's number is there.
fn barriers(node: &Node) {
    let (me, size) = (node.rank(), node.size());
    let rounds = node.heap().alloc_zeroed::<u64>(size as usize).expect("room");
    publish(node, "rounds", rounds.ptr(0).to_words());
    let theirs: Vec<GlobalPtr<u64>> = (0..size).map(|peer| heap_of(node, peer, "rounds")).collect();
    for round in 1..=100 {
        for place in &theirs {
            node.put(place.add(me as usize), round).expect("put");
        }
        node.barrier().expect("barrier");
        let seen = rounds.to_vec();
        assert!(seen.iter().all(|of| *of == round || *of == round + 1), "{seen:?} after barrier {round}");
    }
    assert_eq!(node.stats().total(Operation::Barrier).count, 100);
    node.barrier().expect("barrier");
}

fn names(node: &Node) {
    let (directory, me, size) = (node.directory(), node.rank(), node.size());
    for name in 0..20 {
        directory.publish(&format!("{me}/{name}"), &pattern(seed(me, 0, name), 100)).expect("published");
    }
    directory.publish(&format!("{me}/0"), b"replaced").expect("published");
    node.barrier().expect("barrier");
    for peer in 0..size {
        for name in 1..20 {
            let value = directory.lookup(&format!("{peer}/{name}")).expect("looked up");
            assert_eq!(value, Some(pattern(seed(peer, 0, name), 100)));
        }
        assert_eq!(directory.lookup(&format!("{peer}/0")), Ok(Some(b"replaced".to_vec())));
    }
    let right = (me + 1) % size;
    let taken = directory.publish(&format!("{right}/0"), b"mine").expect_err("somebody else's");
    assert!(matches!(taken, DirectoryError::Taken { by, .. } if by == right), "{taken}");
    node.barrier().expect("barrier");
    assert_eq!(directory.withdraw(&format!("{me}/0")), Ok(true));
    node.barrier().expect("barrier");
    assert_eq!(directory.lookup(&format!("{right}/0")), Ok(None));
    let never = directory.wait("nobody's", Duration::from_millis(20)).expect_err("nobody publishes it");
    assert!(matches!(never, DirectoryError::Timeout { .. }), "{never}");
    node.barrier().expect("barrier");
}

/// Rank 1 counts in its own memory and calls nothing of the library until rank 0 has put a stop to it.
fn computes(node: &Node) {
    let memory = Private::from(&pattern(3, 50_000));
    memory.set(0, 0);
    memory.set(1, 0);
    memory.show(node, "memory");
    let heap = node.heap().alloc_from(&[5_u64; 100]).expect("room");
    publish(node, "heap", heap.ptr(0).to_words());
    node.barrier().expect("barrier");
    if node.rank() == 1 {
        while memory.byte(1) == 0 {
            memory.set(0, memory.byte(0).wrapping_add(1));
        }
        assert_eq!(heap.read(7), 77, "a put that came meanwhile");
    } else {
        let (there, heap) = (private_of(node, 1, "memory"), heap_of::<u64>(node, 1, "heap"));
        let mut counts = std::collections::BTreeSet::new();
        while counts.len() < 5 {
            let mut bytes = vec![0; 50_000];
            node.get_bytes(there, &mut bytes).expect("get");
            assert!(bytes[2..] == pattern(3, 50_000)[2..], "the rest does not change");
            counts.insert(bytes[0]);
        }
        assert_eq!((node.get(heap.add(3)), node.fetch_add(heap, 1)), (Ok(5), Ok(5)));
        node.put(heap.add(7), 77).expect("put");
        node.put_bytes(there.plus(1), &[1]).expect("put");
    }
    node.barrier().expect("barrier");
}

/// Constants lie in pages that nobody may write.
static CONSTANT: [u8; 8192] = [42; 8192];

/// Every rank does everything wrong to its neighbour, which goes on unharmed.
fn faults(node: &Node) {
    let right = (node.rank() + 1) % node.size();
    let private = Private::from(&pattern(9, 10_000));
    private.show(node, "private");
    publish(node, "constant", [CONSTANT.as_ptr().expose_provenance() as u64, 8192]);
    let heap = node.heap().alloc_zeroed::<u8>(4096).expect("room");
    publish(node, "heap", heap.ptr(0).to_words());
    node.barrier().expect("barrier");
    let [constant, _] = support::look_up(node, right, "constant");
    // SAFETY: constants cannot be changed: that is what is tried.
    let constant = unsafe { Remote::raw(right, constant) };
    // SAFETY: nothing is mapped at such addresses, so nothing can be harmed.
    let (low, high) = unsafe { (Remote::raw(right, 4096 - 8), Remote::raw(right, u64::MAX - 3)) };
    let mut got = [0; 8192];
    node.get_bytes(constant, &mut got).expect("constants can be read");
    assert_eq!(got, CONSTANT);
    let fault = |result: Result<(), Error>, at: Memory| match result {
        Err(Error::Fault { peer, memory, .. }) if (peer, memory) == (right, at) => {}
        other => panic!("{other:?} where a fault was due"),
    };
    fault(node.put_bytes(constant, &[1; 100]), Memory::Private);
    for place in [low, high] {
        fault(node.put_bytes(place, &[1; 100]), Memory::Private);
        fault(node.get_bytes(place, &mut got[..100]), Memory::Private);
        fault(node.put_nb(place, vec![1_u8; 100]).wait().0, Memory::Private);
        fault(node.get_nb(place, vec![1_u8; 100]).wait().0, Memory::Private);
    }
    let good = private_of(node, right, "private");
    let pieces = [good, constant, good.plus(100)].map(|to| PutPiece { to, from: &[0xee; 50] });
    let mixed = node.put_list(&pieces);
    let Err(Error::Fault { addr, len: 50, .. }) = mixed else { panic!("{mixed:?}") };
    assert_eq!(addr, support::look_up(node, right, "constant")[0], "the fault names the piece at fault");
    let beyond = heap_of::<u8>(node, right, "heap").add(1 << 40);
    fault(node.put_slice(beyond, &[1; 8]), Memory::Heap);
    fault(node.get(beyond).map(drop), Memory::Heap);
    fault(node.fetch_add(beyond.cast::<u64>(), 1).map(drop), Memory::Heap);
    fault(node.put(GlobalPtr::new(right, u64::MAX - 2), 7_u64), Memory::Heap);
    let nobody = node.size();
    assert_eq!(
        node.put(GlobalPtr::new(nobody, 0), 7),
        Err(Error::NoSuchPeer { peer: nobody, size: node.size() })
    );
    node.within(LIMIT).barrier().expect("barrier");
    assert_eq!(CONSTANT[4000], 42);
    assert!(private.bytes()[200..] == pattern(9, 10_000)[200..], "nothing else was touched");
    node.barrier().expect("barrier");
}
