//! Memory that a program keeps registered: over a network that registers, with Firehose.

use standpipe::{Code, Error, HandlerId, PinError, Strategy};

use super::network::{by_network, is_there};
use super::*;

/// A budget, of which a quarter is for a process's own use.
const BUDGET: u64 = 4 << 20;

fn config_that_registers() -> Config {
    by_network().strategy(Strategy::Firehose).pin_bytes(BUDGET)
}

/// Pages of their own, which are unmapped at the end.
struct Pages(*mut u8, usize);

impl Pages {
    fn new(len: usize) -> Pages {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping wherever the kernel likes, which replaces nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Pages(start.cast(), len)
    }

    fn as_slice(&self) -> *const [u8] {
        std::ptr::slice_from_raw_parts(self.0, self.1)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and nothing refers to it any more.
        assert_eq!(unsafe { libc::munmap(self.0.cast(), self.1) }, 0);
    }
}

#[test]
fn where_nothing_is_registered_pins_are_not_offered() {
    let node = alone(Config::new());
    let error = node.pin(&[0_u8; 100]).map(drop).unwrap_err();
    assert_eq!((&error, error.code()), (&PinError::NotOffered, Code::NotOffered));
    assert!(std::io::Error::from(error).to_string().contains("registers no memory"));
}

#[test]
fn pinned_memory_is_registered_once_and_for_all() {
    if !is_there() {
        return;
    }
    job(
        2,
        |_| config_that_registers(),
        |node| {
            let mut mine = vec![node.rank() as u8 + 1; 1 << 18];
            let buffer = vec![0_u8; 1 << 18];
            let theirs = exchange_private(node, &mut mine);
            let (pinned, again) = (node.pin(&mine[..]).expect("room"), node.pin(&raw const buffer[..]));
            let again = again.expect("room");
            assert!(pinned.is_held() && again.is_held() && !pinned.is_empty());
            assert_eq!((pinned.len(), again.len()), (1 << 18, 1 << 18));
            // Another pin of the same, and of a part, takes no room, and dropping it changes nothing.
            drop(node.pin(&mine[100..200]).expect("it is there"));
            node.barrier().expect("barrier");
            let before = node.registrations().table.registrations;
            let (result, buffer) = node.get_nb(theirs, buffer).wait();
            assert_eq!(result, Ok(()));
            assert!(buffer.iter().all(|byte| u32::from(*byte) == 2 - node.rank()));
            assert_eq!(node.registrations().table.registrations, before, "it is registered already");
            node.barrier().expect("barrier");
            // Memory that goes is pinned no more, whoever holds the guard; the other pins are none of its.
            let goes = Pages::new(1 << 18);
            let gone = node.pin(goes.as_slice()).expect("room");
            assert!(gone.is_held());
            drop(goes);
            node.wait_until(|| !gone.is_held()).expect("it is told");
            assert!(pinned.is_held() && again.is_held());
            drop((pinned, again, gone));
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn a_full_budget_refuses_pins_and_transfers_go_on() {
    if !is_there() {
        return;
    }
    job(
        2,
        |_| config_that_registers(),
        |node| {
            let mut mine = vec![7_u8; 1 << 18];
            let theirs = exchange_private(node, &mut mine);
            let much = vec![1_u8; 2 * BUDGET as usize];
            let whole = node.pin(&much[..]).map(drop).unwrap_err();
            let PinError::NoRoom { wanted, budget } = whole else { panic!("{whole:?}") };
            assert!(wanted >= much.len() as u64 && budget <= BUDGET, "{whole:?}");
            assert_eq!((whole.code(), node.registrations().table.pinned <= BUDGET), (Code::NoRoom, true));
            let mut pins = Vec::new();
            let refused =
                much.chunks(1 << 17).find_map(|part| node.pin(part).map(|pin| pins.push(pin)).err());
            assert!(matches!(refused, Some(PinError::NoRoom { .. })), "{refused:?}");
            let all: u64 = pins.iter().map(standpipe::Pinned::len).sum();
            assert!(all > budget / 2 && all <= budget, "{all} of {budget}");
            node.barrier().expect("barrier");
            // Transfers go on: this provider needs no key for memory of its own.
            let mut got = vec![0_u8; 1 << 18];
            node.get_bytes(theirs, &mut got).expect("got");
            assert!(got.iter().all(|byte| *byte == 7));
            let first = pins.pop().expect("some");
            drop(first);
            pins.push(node.pin(&much[..1 << 17]).expect("what was let go of"));
            drop(pins);
            node.barrier().expect("barrier");
            drop(node.pin(&much[..budget as usize / 2]).expect("all is let go of"));
            node.barrier().expect("barrier");
        },
    );
}

/// Where all may be registered, what is not there is found before much is asked for.
#[test]
fn a_pin_of_much_that_is_not_there_ends_at_its_beginning() {
    if !is_there() {
        return;
    }
    job(
        2,
        |_| by_network().strategy(Strategy::PinEverything),
        |node| {
            let len = 1 << 45;
            let much = std::ptr::slice_from_raw_parts(std::ptr::without_provenance::<u8>(1 << 46), len);
            let error = node.pin(much).map(drop).unwrap_err();
            assert_eq!(error, PinError::Fault { addr: 1 << 46, len: 1 << 45 });
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn what_is_not_mapped_is_not_pinned_and_handlers_may_pin() {
    if !is_there() {
        return;
    }
    let config = || {
        config_that_registers().handler("pin", |call| {
            let memory = vec![1_u8; 4096];
            let pinned = call.node().pin(&memory[..]);
            assert!(
                pinned.is_ok() || matches!(pinned, Err(PinError::Node(Error::InHandler { .. }))),
                "{pinned:?}"
            );
            call.reply(HandlerId::of("", "pinned"), [0; 4]).expect("a reply");
        })
    };
    let config = || config().handler("pinned", |_| {});
    job(
        2,
        |_| config(),
        |node| {
            let nothing = std::ptr::slice_from_raw_parts(std::ptr::without_provenance::<u8>(1 << 46), 8192);
            let error = node.pin(nothing).map(drop).unwrap_err();
            assert_eq!(
                (&error, error.code()),
                (&PinError::Fault { addr: 1 << 46, len: 8192 }, Code::LocalFault)
            );
            for len in [1 << 40, 1 << 60] {
                let much = std::ptr::slice_from_raw_parts(std::ptr::without_provenance::<u8>(1 << 46), len);
                let error = node.pin(much).map(drop).unwrap_err();
                assert!(matches!(error, PinError::NoRoom { wanted, .. } if wanted >= 1 << 40), "{error:?}");
            }
            let last = std::ptr::slice_from_raw_parts(std::ptr::without_provenance::<u8>(usize::MAX), 100);
            assert!(matches!(node.pin(last), Err(PinError::Fault { len: 100, .. })), "it wraps");
            let heap = node.heap().alloc_zeroed::<u8>(1 << 16).expect("room");
            let of_heap = node.pin(std::ptr::slice_from_raw_parts(heap.as_ptr(), heap.len())).expect("it is");
            assert!(of_heap.is_held());
            drop(of_heap);
            let empty = node.pin(&[0_u64; 0]).expect("it takes no room");
            assert!(empty.is_held() && empty.is_empty());
            let pin = node.handler("pin").expect("registered");
            node.request(1 - node.rank(), pin, [0; 4]).expect("sent");
            node.barrier().expect("barrier");
            node.quiet().expect("no failure");
        },
    );
}
