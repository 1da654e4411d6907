//! Events.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use standpipe::{AllMemory, Buffer, Error, Event, FetchRoom, Foreign, GetBuffer, PutBuffer, TeamEvent};

use crate::border::{call, note, or};
use crate::failure::{Failure, NO_PEER};
use crate::handle::{Handle, Kind, word};
use crate::pointer::{self, memory};

/// Memory of the program's that an operation uses, and the old word of an atomic that fetches.
pub struct Local {
    bytes: Option<Foreign<()>>,
    pub(crate) old: Option<u64>,
}

impl Local {
    pub(crate) const NONE: Local = Local { bytes: None, old: None };

    /// Bytes that the program vouches for.
    pub(crate) fn of(memory: AllMemory, start: *mut u8, len: usize) -> Local {
        let start = if len == 0 { std::ptr::NonNull::dangling().as_ptr() } else { start };
        Local { bytes: Some(memory.buffer(start, len, ())), old: None }
    }
}

// SAFETY: as of the foreign memory that it has; without that it has no bytes.
unsafe impl Buffer for Local {
    fn start(&mut self) -> *mut u8 {
        self.bytes.as_mut().map_or(std::ptr::NonNull::dangling().as_ptr(), Buffer::start)
    }

    fn byte_len(&self) -> usize {
        self.bytes.as_ref().map_or(0, Buffer::byte_len)
    }
}

// SAFETY: as of the foreign memory that it has, if any.
unsafe impl PutBuffer for Local {}

// SAFETY: as of the foreign memory that it has, if any.
unsafe impl GetBuffer for Local {}

impl FetchRoom for Local {
    fn set_old(&mut self, bits: u64) {
        self.old = Some(bits);
    }
}

/// `sp_event` of the header.
pub enum CEvent {
    /// Of one peer.
    One(Event<Local>),
    /// A collective, whose result goes there.
    Team(TeamEvent<u8>, *mut u8),
    /// Its rest has ended, or was given away.
    Over(Result<(), Error>, u32),
}

impl Kind for CEvent {
    const NAME: &'static str = "event";
    const WORD: u64 = word(b"sp event");
}

impl CEvent {
    /// Gives an event to C.
    ///
    /// # Safety
    /// `into` may be written.
    pub(crate) unsafe fn give(event: Event<Local>, into: *mut *mut Handle<CEvent>) -> Result<(), Failure> {
        // SAFETY: the caller has promised what the header asks of these pointers.
        unsafe { pointer::put(into, Handle::give(CEvent::One(event)), "event") }
    }

    fn is_complete(&mut self) -> bool {
        match self {
            CEvent::One(event) => event.is_complete(),
            CEvent::Team(event, _) => event.is_complete(),
            CEvent::Over(..) => true,
        }
    }

    fn wait_at_most(&mut self, time: Duration) -> Result<bool, Error> {
        match self {
            CEvent::One(event) => event.wait_at_most(time),
            CEvent::Team(event, _) => event.wait_at_most(time),
            CEvent::Over(..) => Ok(true),
        }
    }

    /// How it ends, and an atomic's old word.
    fn wait(self) -> (Result<(), Error>, Option<u64>) {
        match self {
            CEvent::One(event) => {
                let (result, local) = event.wait();
                (result, local.old)
            }
            CEvent::Team(event, into) => {
                let (result, values) = event.wait();
                if result.is_ok() && !into.is_null() {
                    memory().write(into, &values);
                }
                (result, None)
            }
            CEvent::Over(result, _) => (result, None),
        }
    }
}

exported! {
    /// `sp_event_test` of the header.
    fn sp_event_test(event: *mut Handle<CEvent>) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        call(|| Ok(unsafe { Handle::get_mut(event)? }.is_complete().into()))
    }
}

exported! {
    /// `sp_event_wait` of the header.
    fn sp_event_wait(event: *mut Handle<CEvent>) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (result, _) = unsafe { Handle::take(event)? }.wait();
            result?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_event_wait_value` of the header.
    fn sp_event_wait_value(event: *mut Handle<CEvent>, value: *mut u64) -> c_int {
        call(|| {
            pointer::needs(value, "value")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (result, old) = unsafe { Handle::take(event)? }.wait();
            result?;
            let old =
                old.ok_or_else(|| Failure::argument("the event is of no atomic that fetches: it has no value"))?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(value, old, "value")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_event_wait_for` of the header.
    fn sp_event_wait_for(event: *mut Handle<CEvent>, time: u64) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let event = unsafe { Handle::get_mut(event)? };
            Ok(event.wait_at_most(pointer::duration(time))?.into())
        })
    }
}

exported! {
    /// `sp_event_wait_local` of the header.
    fn sp_event_wait_local(event: *mut Handle<CEvent>) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let event = unsafe { Handle::get_mut(event)? };
            match std::mem::replace(event, CEvent::Over(Ok(()), NO_PEER)) {
                CEvent::One(one) => {
                    let (local, rest) = one.wait_local();
                    *event = CEvent::One(rest.holding(local));
                }
                other => {
                    *event = other;
                    // A collective's bytes are copied when it is started.
                }
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_event_test_local` of the header.
    fn sp_event_test_local(event: *mut Handle<CEvent>) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let event = unsafe { Handle::get_mut(event)? };
            Ok(match event {
                CEvent::One(one) => one.is_locally_complete(),
                other => other.is_complete(),
            }
            .into())
        })
    }
}

exported! {
    /// `sp_event_cancel` of the header.
    fn sp_event_cancel(event: *mut Handle<CEvent>) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            match unsafe { Handle::take(event)? } {
                CEvent::One(one) => one.cancel().0?,
                // To drop it is to give it up.
                CEvent::Team(event, _) => {
                    drop(event);
                    return Err(Failure::new(standpipe::Code::Cancelled, "the collective was given up"));
                }
                CEvent::Over(result, _) => result?,
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_event_forget` of the header.
    fn sp_event_forget(event: *mut Handle<CEvent>) {
        crate::border::free(event);
    }
}

exported! {
    /// `sp_event_wait_all` of the header.
    fn sp_event_wait_all(events: *mut *mut Handle<CEvent>, count: usize) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let events = unsafe { pointer::slice(events.cast_const(), count, "the array of events")? };
            let mut first = Ok(());
            for event in events {
                // SAFETY: the caller has promised what the header asks of these pointers.
                let waited = unsafe { Handle::take(*event) }.and_then(|event| Ok(event.wait().0?));
                first = first.and(waited);
            }
            first?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_event_peer` of the header.
    fn sp_event_peer(event: *const Handle<CEvent>) -> u32 {
        let failed = |failure| {
            note(failure);
            NO_PEER
        };
        or(failed, || {
            // SAFETY: the caller has promised what the header asks of these pointers.
            Ok(match unsafe { Handle::get(event)? } {
                CEvent::One(event) => event.peer(),
                CEvent::Team(..) => NO_PEER,
                CEvent::Over(_, peer) => *peer,
            })
        })
    }
}

/// `void *` of a callback's context, to be kept by values that move between threads.
#[derive(Clone, Copy)]
pub(crate) struct Context(*mut c_void);

// SAFETY: it is the program's, which is told on which threads its functions run.
unsafe impl Send for Context {}
// SAFETY: as above: the header asks for it of whoever calls this.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn new(context: *mut c_void) -> Context {
        Context(context)
    }

    pub(crate) fn get(self) -> *mut c_void {
        self.0
    }
}
