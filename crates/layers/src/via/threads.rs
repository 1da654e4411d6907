//! The layer's threads: one makes progress while the program does not, one calls the program's handlers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle, park_timeout};
use std::time::Duration;

use standpipe::Node;

use super::shared::Shared;

/// How often the thread looks whether the program polls.
const LOOK: Duration = Duration::from_millis(5);

/// It does not wait longer at a time.
const TURN: Duration = Duration::from_secs(3600);

pub(super) fn start(node: &Node, shared: &Arc<Shared>) -> io::Result<Vec<JoinHandle<()>>> {
    let (attended, of) = (node.clone(), Arc::clone(shared));
    let progress = Builder::new().name("via progress".into()).spawn(move || attend(&attended, &of))?;
    let of = Arc::clone(shared);
    let upcalls = Builder::new().name("via handlers".into()).spawn(move || call_handlers(&of));
    match upcalls {
        Ok(upcalls) => Ok(vec![progress, upcalls]),
        Err(error) => {
            shared.is_ending.store(true, Ordering::SeqCst);
            node.wake();
            Err(error)
        }
    }
}

/// Makes progress while the program does not: sends find their receives though it computes. While it polls or
/// waits, this thread keeps out of its way.
fn attend(node: &Node, shared: &Shared) {
    let is_ending = || shared.is_ending.load(Ordering::SeqCst);
    let polls = || shared.polls.load(Ordering::Relaxed);
    let waits = || shared.waiting.load(Ordering::SeqCst) > 0;
    while !is_ending() {
        let seen = polls();
        park_timeout(LOOK);
        if waits() || polls() != seen {
            continue;
        }
        let attended = shared.wait_until(node, TURN, || is_ending() || waits() || polls() != seen);
        if attended.is_err_and(|error| !error.is_timeout()) && !is_ending() {
            shared.tell_catastrophe();
            return;
        }
    }
}

/// Calls the program's handlers, one after the other, with no lock held: they may call VIA.
fn call_handlers(shared: &Shared) {
    let mut state = shared.state();
    loop {
        match state.upcalls.pop_front() {
            Some(upcall) => {
                drop(state);
                upcall();
                state = shared.state();
            }
            None if shared.is_ending.load(Ordering::SeqCst) => return,
            None => {
                let (again, _) = shared
                    .upcalls
                    .wait_timeout(state, TURN)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                state = again;
            }
        }
    }
}
