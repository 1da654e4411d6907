//! Queues of completions.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;

use standpipe::{Completion, Completions};

use crate::border::{call, note, or};
use crate::event::{CEvent, Local};
use crate::failure::{Failure, status};
use crate::handle::{Handle, Kind, word};
use crate::node::{CNode, node_of};
use crate::pointer::{self, CRemote, memory};

/// `sp_queue` of the header.
pub struct Queue(Completions<Local>);

impl Kind for Queue {
    const NAME: &'static str = "queue";
    const WORD: u64 = word(b"sp queue");
}

/// `sp_completion` of the header.
#[repr(C)]
pub struct CCompletion {
    token: u64,
    value: u64,
    status: i32,
    peer: u32,
}

impl CCompletion {
    /// The error's values stay this thread's last error.
    fn of(done: Completion<Local>) -> CCompletion {
        let status = match done.result {
            Ok(()) => 0,
            Err(error) => note(error.into()),
        };
        CCompletion { token: done.token, value: done.buffer.old.unwrap_or(0), status, peer: done.peer }
    }
}

/// The queue of a handle.
///
/// # Safety
/// As for [`Handle::get`].
unsafe fn queue_of<'a>(queue: *const Handle<Queue>) -> Result<&'a Completions<Local>, Failure> {
    // SAFETY: the caller has promised what the header asks of these pointers.
    Ok(&unsafe { Handle::get(queue)? }.0)
}

exported! {
    /// `sp_queue_new` of the header.
    fn sp_queue_new(
        node: *mut Handle<CNode>,
        capacity: usize,
        queue: *mut *mut Handle<Queue>,
    ) -> c_int {
        call(|| {
            pointer::needs(queue, "queue")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let made = unsafe { node_of(node)? };
            if capacity == 0 {
                return Err(Failure::value("the capacity", 0, "1 or more"));
            }
            let made = made.completions(capacity)?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(queue, Handle::give(Queue(made)), "queue")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_queue_put` of the header.
    fn sp_queue_put(
        queue: *mut Handle<Queue>,
        token: u64,
        to: CRemote,
        from: *const c_void,
        len: usize,
    ) -> c_int {
        call(|| {
            pointer::is_there(from.cast::<u8>(), len, "the local memory")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let queue = unsafe { queue_of(queue)? };
            let (to, local) = (to.remote()?, Local::of(memory(), from.cast_mut().cast(), len));
            queue.reserve()?.put(token, to, local);
            Ok(0)
        })
    }
}

exported! {
    /// `sp_queue_get` of the header.
    fn sp_queue_get(
        queue: *mut Handle<Queue>,
        token: u64,
        from: CRemote,
        into: *mut c_void,
        len: usize,
    ) -> c_int {
        call(|| {
            pointer::is_there(into.cast::<u8>(), len, "the local memory")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let queue = unsafe { queue_of(queue)? };
            let (from, local) = (from.remote()?, Local::of(memory(), into.cast(), len));
            queue.reserve()?.get(token, from, local);
            Ok(0)
        })
    }
}

exported! {
    /// `sp_queue_add` of the header.
    fn sp_queue_add(
        queue: *mut Handle<Queue>,
        token: u64,
        event: *mut Handle<CEvent>,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (queue, looked) = unsafe { (queue_of(queue)?, Handle::get(event)?) };
            if !matches!(looked, CEvent::One(_)) {
                return Err(Failure::argument("the event is of a collective, which no queue takes"));
            }
            let permit = queue.reserve()?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            if let CEvent::One(event) = unsafe { Handle::take(event)? } {
                permit.start(token, event);
            }
            Ok(0)
        })
    }
}

/// Gives completions to C, and says how many.
///
/// # Safety
/// There is room for as many.
unsafe fn give(taken: Vec<Completion<Local>>, into: *mut CCompletion) -> c_int {
    let count = taken.len();
    for (index, done) in taken.into_iter().enumerate() {
        // SAFETY: the caller has promised what the header asks of these pointers.
        unsafe { into.add(index).write(CCompletion::of(done)) };
    }
    count as c_int
}

/// How many may be taken in a call: as many as a result can say.
fn most_of(most: usize) -> usize {
    most.min(c_int::MAX as usize)
}

exported! {
    /// `sp_queue_take` of the header.
    fn sp_queue_take(
        queue: *mut Handle<Queue>,
        into: *mut CCompletion,
        most: usize,
    ) -> c_int {
        call(|| {
            pointer::is_there(into, most, "the room for completions")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let queue = unsafe { queue_of(queue)? };
            let mut taken = Vec::new();
            queue.take_some(most_of(most), &mut taken)?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            Ok(unsafe { give(taken, into) })
        })
    }
}

exported! {
    /// `sp_queue_wait` of the header.
    fn sp_queue_wait(
        queue: *mut Handle<Queue>,
        into: *mut CCompletion,
        most: usize,
        time: u64,
    ) -> c_int {
        call(|| {
            pointer::is_there(into, most, "the room for completions")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let queue = unsafe { queue_of(queue)? };
            if most == 0 {
                return Ok(0);
            }
            let mut taken: Vec<_> = queue.wait_at_most(pointer::duration(time))?.into_iter().collect();
            if !taken.is_empty() {
                queue.take_some(most_of(most) - 1, &mut taken)?;
            }
            // SAFETY: the caller has promised what the header asks of these pointers.
            Ok(unsafe { give(taken, into) })
        })
    }
}

exported! {
    /// `sp_queue_fd` of the header.
    fn sp_queue_fd(queue: *const Handle<Queue>) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        call(|| Ok(unsafe { queue_of(queue)? }.as_raw_fd()))
    }
}

exported! {
    /// `sp_queue_cancel` of the header.
    fn sp_queue_cancel(queue: *mut Handle<Queue>, token: u64) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        call(|| Ok(unsafe { queue_of(queue)? }.cancel(token) as c_int))
    }
}

exported! {
    /// `sp_queue_cancel_all` of the header.
    fn sp_queue_cancel_all(queue: *mut Handle<Queue>) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        call(|| Ok(unsafe { queue_of(queue)? }.cancel_all() as c_int))
    }
}

exported! {
    /// `sp_queue_len` of the header.
    fn sp_queue_len(queue: *const Handle<Queue>) -> i64 {
        let failed = |failure: Failure| {
            let code = failure.code;
            note(failure);
            status(code).into()
        };
        // SAFETY: the caller has promised what the header asks of these pointers.
        or(failed, || Ok(unsafe { queue_of(queue)? }.len() as i64))
    }
}

exported! {
    /// `sp_queue_free` of the header.
    fn sp_queue_free(queue: *mut Handle<Queue>) {
        crate::border::free(queue);
    }
}
