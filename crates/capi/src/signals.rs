//! Puts that signal, and waits for signals.

use std::ffi::{c_int, c_void};

use standpipe::{GlobalPtr, Node, Signal, SignalWait, SignalWord, Until};

use crate::border::call;
use crate::event::{CEvent, Local};
use crate::failure::{Failure, NO_PEER};
use crate::handle::Handle;
use crate::heap::{in_heap, word};
use crate::node::{CNode, node_of};
use crate::pointer::{self, CRemote, memory};

/// `sp_signal` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CSignal {
    counter: CRemote,
    value: u64,
    set: i32,
}

impl CSignal {
    fn signal(self) -> Result<Signal, Failure> {
        let counter = word(self.counter, "the signal's counter")?;
        Ok(if self.set == 0 { Signal::add(counter, self.value) } else { Signal::set(counter, self.value) })
    }
}

exported! {
    /// `sp_put_signal` of the header.
    fn sp_put_signal(
        node: *mut Handle<CNode>,
        to: CRemote,
        from: *const c_void,
        len: usize,
        signal: CSignal,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, bytes) =
                unsafe { (node_of(node)?, pointer::slice(from.cast::<u8>(), len, "the local memory")?) };
            node.put_signal(to.remote()?, bytes, signal.signal()?)?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_put_signal_nbi` of the header.
    fn sp_put_signal_nbi(
        node: *mut Handle<CNode>,
        to: CRemote,
        from: *const c_void,
        len: usize,
        signal: CSignal,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, bytes) =
                unsafe { (node_of(node)?, pointer::slice(from.cast::<u8>(), len, "the local memory")?) };
            node.put_signal_nbi(to.remote()?, bytes, signal.signal()?)?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_put_signal_nb` of the header.
    fn sp_put_signal_nb(
        node: *mut Handle<CNode>,
        to: CRemote,
        from: *const c_void,
        len: usize,
        signal: CSignal,
        event: *mut *mut Handle<CEvent>,
    ) -> c_int {
        call(|| {
            pointer::needs(event, "event")?;
            pointer::is_there(from.cast::<u8>(), len, "the local memory")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            let local = Local::of(memory(), from.cast_mut().cast(), len);
            let started = node.put_signal_nb(to.remote()?, local, signal.signal()?);
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { CEvent::give(started, event)? };
            Ok(0)
        })
    }
}

/// `sp_wait` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CWait {
    counter: CRemote,
    kind: i32,
    compare: i32,
    value: u64,
    sender: u32,
    skip: i32,
}

impl CWait {
    /// The wait for a counter of that type, whose values are of these bits.
    fn wait<T: SignalWord>(&self, of_bits: fn(u64) -> T) -> Result<SignalWait<T>, Failure> {
        let counter: GlobalPtr<T> = in_heap(self.counter, "the counter")?;
        let value = of_bits(self.value);
        let until = match self.compare {
            0 => Until::Eq(value),
            1 => Until::Ne(value),
            2 => Until::Lt(value),
            3 => Until::Le(value),
            4 => Until::Gt(value),
            5 => Until::Ge(value),
            other => return Err(Failure::value("`compare`", other.into(), "SP_EQ to SP_GE")),
        };
        let wait = SignalWait::new(counter, until);
        let mut wait = if self.sender == NO_PEER { wait } else { wait.by(self.sender) };
        wait.skip(self.skip != 0);
        Ok(wait)
    }
}

/// Something to be done with waits of a type that is known at run time.
trait Act {
    type Out;
    fn on<T: SignalWord>(self, of_bits: fn(u64) -> T, bits: fn(T) -> u64) -> Result<Self::Out, Failure>;
}

/// Does it with waits of that type.
fn act<A: Act>(kind: i32, act: A) -> Result<A::Out, Failure> {
    match kind {
        3 => act.on::<u32>(|bits| bits as u32, u64::from),
        4 => act.on::<u64>(|bits| bits, |value| value),
        7 => act.on::<i32>(|bits| bits as i32, |value| u64::from(value.cast_unsigned())),
        8 => act.on::<i64>(u64::cast_signed, i64::cast_unsigned),
        other => Err(Failure::value("the counter's type", other.into(), "SP_U32, SP_I32, SP_U64 or SP_I64")),
    }
}

/// One wait: `may_wait`, or one look.
struct One<'a> {
    node: &'a Node,
    wait: CWait,
    may_wait: bool,
}

impl Act for One<'_> {
    type Out = Option<u64>;

    fn on<T: SignalWord>(self, of_bits: fn(u64) -> T, bits: fn(T) -> u64) -> Result<Option<u64>, Failure> {
        // A list of one has all that a wait may say.
        let waits = [self.wait.wait(of_bits)?];
        let counter = in_heap::<T>(self.wait.counter, "the counter")?;
        let value = of_bits(self.wait.value);
        if !self.may_wait {
            let met = !self.node.test_signals(&waits)?.is_empty();
            return Ok(if met { Some(bits(self.seen(counter, value)?)) } else { None });
        }
        self.node.wait_any_signal(&waits)?;
        Ok(Some(bits(self.seen(counter, value)?)))
    }
}

impl One<'_> {
    /// The counter's value now.
    fn seen<T: SignalWord>(&self, counter: GlobalPtr<T>, _like: T) -> Result<T, Failure> {
        Ok(self.node.atomic_load(counter)?)
    }
}

exported! {
    /// `sp_wait_signal` of the header.
    fn sp_wait_signal(
        node: *mut Handle<CNode>,
        wait: *const CWait,
        seen: *mut u64,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, wait) = unsafe { (node_of(node)?, pointer::slice(wait, 1, "the wait")?[0]) };
            let value = act(wait.kind, One { node, wait, may_wait: true })?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put_if(seen, value.unwrap_or(0)) };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_test_signal` of the header.
    fn sp_test_signal(
        node: *mut Handle<CNode>,
        wait: *const CWait,
        seen: *mut u64,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, wait) = unsafe { (node_of(node)?, pointer::slice(wait, 1, "the wait")?[0]) };
            let value = act(wait.kind, One { node, wait, may_wait: false })?;
            if let Some(value) = value {
                // SAFETY: the caller has promised what the header asks of these pointers.
                unsafe { pointer::put_if(seen, value) };
            }
            Ok(value.is_some().into())
        })
    }
}

/// How many of a list have to be met.
#[derive(Clone, Copy)]
enum HowMany {
    Any,
    Some,
    All,
    Now,
}

/// A list of waits.
struct Many<'a> {
    node: &'a Node,
    waits: &'a [CWait],
    how_many: HowMany,
}

impl Act for Many<'_> {
    type Out = Vec<usize>;

    fn on<T: SignalWord>(self, of_bits: fn(u64) -> T, _bits: fn(T) -> u64) -> Result<Vec<usize>, Failure> {
        let waits = self.waits.iter().map(|wait| wait.wait(of_bits)).collect::<Result<Vec<_>, _>>()?;
        Ok(match self.how_many {
            HowMany::Any => self.node.wait_any_signal(&waits)?.into_iter().collect(),
            HowMany::Some => self.node.wait_some_signals(&waits)?,
            HowMany::All => {
                self.node.wait_all_signals(&waits)?;
                (0..waits.len()).filter(|index| self.waits[*index].skip == 0).collect()
            }
            HowMany::Now => self.node.test_signals(&waits)?,
        })
    }
}

exported! {
    /// `sp_wait_signals` of the header.
    fn sp_wait_signals(
        node: *mut Handle<CNode>,
        waits: *const CWait,
        count: usize,
        how_many: c_int,
        met: *mut usize,
        met_count: *mut usize,
    ) -> c_int {
        call(|| {
            pointer::is_there(met, count, "`met`")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, waits) = unsafe { (node_of(node)?, pointer::slice(waits, count, "the list of waits")?) };
            let how_many = match how_many {
                0 => HowMany::Any,
                1 => HowMany::Some,
                2 => HowMany::All,
                3 => HowMany::Now,
                other => {
                    return Err(Failure::value("`how_many`", other.into(), "SP_ANY, SP_SOME, SP_ALL or SP_NOW"));
                }
            };
            let kind = waits.first().map_or(4, |wait| wait.kind);
            if let Some(other) = waits.iter().find(|wait| wait.kind != kind) {
                let text = format!(
                    "a list of waits has counters of types {kind} and {}: all must be of one",
                    other.kind
                );
                return Err(Failure::argument(text));
            }
            let found = act(kind, Many { node, waits, how_many })?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                pointer::slice_mut(met, found.len(), "`met`")?.copy_from_slice(&found);
                pointer::put_if(met_count, found.len());
            }
            Ok(0)
        })
    }
}
