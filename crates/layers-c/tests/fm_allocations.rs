//! Short messages of Fast Messages allocate nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use layers::fm::{Done, Fm};
use standpipe::{Config, Node, ProgressThread};

struct Counting;

static ALLOCATED: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is passed on to the system's allocator, which keeps the contract; counting changes nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of this function, which is that of the one that is called.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of this function, which is that of the one that is called.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn short_messages_allocate_nothing() {
    static CAME: AtomicU64 = AtomicU64::new(0);
    let config = Config::from_env().expect("the settings are right").progress(ProgressThread::Off);
    let node = Node::open(config).expect("a job of one opens");
    let fm = Fm::open(node, |incoming| {
        let mut bytes = [0; 8];
        incoming.receive(&mut bytes);
        CAME.fetch_add(1, Ordering::Relaxed);
        Some(Done::Continue)
    })
    .expect("it opens");
    for size in [8, 16, 64, 8192] {
        let bytes = vec![7; size];
        let some = |times: u64| {
            for _ in 0..times {
                let message = fm.begin(0, size as u64, 0).expect("it is there").expect("none is open");
                fm.send_piece(message, &bytes).expect("it is open");
                fm.end(message).expect("it is open");
                assert_eq!(fm.extract(u64::MAX), size as u64);
            }
        };
        some(1000);
        let (before, came) = (ALLOCATED.load(Ordering::Relaxed), CAME.load(Ordering::Relaxed));
        some(1000);
        assert_eq!(CAME.load(Ordering::Relaxed) - came, 1000);
        assert_eq!(ALLOCATED.load(Ordering::Relaxed) - before, 0, "{size} bytes");
    }
}
