//! A library with a node of its own, for a program that knows nothing of it: `unload` of `guest.rs` loads it
//! and unloads it while its threads run.

use std::cell::RefCell;
use std::sync::Mutex;

use standpipe::{Config, Node, ProgressThread};

static NODE: Mutex<Option<Node>> = Mutex::new(None);

thread_local! {
    static OWN: RefCell<Option<Node>> = const { RefCell::new(None) };
}

/// Opens the library's node, which has threads from then on. 0: it has.
// SAFETY: no other symbol of this library or of its test has that name.
#[unsafe(no_mangle)]
pub extern "C" fn guest_open() -> i32 {
    let config = Config::new().progress(ProgressThread::On).heap_bytes(1 << 20).handler("none", |_| {});
    let Ok(node) = Node::open(config) else { return 1 };
    if node.address().is_err() {
        return 2;
    }
    *NODE.lock().expect("no panic") = Some(node);
    0
}

/// Closes the library's node. 0: all its threads have ended.
// SAFETY: no other symbol of this library or of its test has that name.
#[unsafe(no_mangle)]
pub extern "C" fn guest_close() -> i32 {
    let Some(node) = NODE.lock().expect("no panic").take() else { return 1 };
    i32::from(node.close(std::time::Duration::from_secs(20)).is_err())
}

/// Uses the node on the calling thread, which keeps a handle on it to its end. 0: all is as it should be.
// SAFETY: no other symbol of this library or of its test has that name.
#[unsafe(no_mangle)]
pub extern "C" fn guest_use() -> i32 {
    let Some(node) = NODE.lock().expect("no panic").clone() else { return 1 };
    let Ok(array) = node.heap().alloc_from(&[1_u64, 2]) else { return 2 };
    let got = node.get(array.ptr(1));
    OWN.with(|own| *own.borrow_mut() = Some(node));
    if got == Ok(2) { 0 } else { 3 }
}
