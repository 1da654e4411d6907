//! Atomics on words of heaps and of grants.

use std::ffi::c_int;

use standpipe::{AtomicOp, AtomicWord, Error, Event, Memory, Node, Word};

use crate::border::call;
use crate::event::{CEvent, Local};
use crate::failure::Failure;
use crate::handle::Handle;
use crate::heap::word;
use crate::node::{CNode, node_of};
use crate::pointer::{self, CRemote};

/// The operation that reads alone, as C numbers it; the others come before it, in the order of
/// [`AtomicOp::ALL`].
const LOAD: c_int = 7;

/// A change of a word, its values as bits.
#[derive(Clone, Copy)]
enum Change {
    Load,
    Apply(AtomicOp, u64),
    CompareSwap(u64, u64),
}

impl Change {
    fn of(op: c_int, value: u64) -> Result<Change, Failure> {
        match usize::try_from(op).ok().and_then(|op| AtomicOp::ALL.get(op)) {
            Some(op) => Ok(Change::Apply(*op, value)),
            None if op == LOAD => Ok(Change::Load),
            None => Err(Failure::value("the operation", op.into(), "SP_ADD to SP_LOAD")),
        }
    }
}

/// Numbers whose bits C passes as a `uint64_t`.
trait Bits: AtomicWord {
    fn from_c(bits: u64) -> Self;
    fn to_c(self) -> u64;
}

macro_rules! bits {
    ($($type:ty => $half:ty, $of:expr, $to:expr;)*) => {
        $(impl Bits for $type {
            fn from_c(bits: u64) -> $type {
                $of(bits as $half)
            }

            fn to_c(self) -> u64 {
                u64::from($to(self))
            }
        })*
    };
}

bits! {
    u32 => u32, |bits| bits, |word| word;
    i32 => u32, u32::cast_signed, i32::cast_unsigned;
    u64 => u64, |bits| bits, |word| word;
    i64 => u64, u64::cast_signed, i64::cast_unsigned;
    f32 => u32, f32::from_bits, f32::to_bits;
    f64 => u64, f64::from_bits, f64::to_bits;
}

/// Something to be done with a word of a type that is known at run time.
trait Act {
    type Out;
    fn on<T: Bits>(self, word: Word<T>) -> Self::Out;
}

/// Does it with the word of that type.
fn act<A: Act>(at: CRemote, of: c_int, act: A) -> Result<A::Out, Failure> {
    let at = word::<u8>(at, "the word")?.remote();
    Ok(match of {
        3 => act.on::<u32>(at.word()),
        4 => act.on::<u64>(at.word()),
        7 => act.on::<i32>(at.word()),
        8 => act.on::<i64>(at.word()),
        9 => act.on::<f32>(at.word()),
        10 => act.on::<f64>(at.word()),
        other => {
            return Err(Failure::value("the type", other.into(), "a type of 4 or 8 bytes: SP_U32 and so on"));
        }
    })
}

/// To its end; and whether anybody wants the word from before.
struct Now<'a>(&'a Node, Change, bool);

impl Act for Now<'_> {
    type Out = Result<u64, Error>;

    fn on<T: Bits>(self, word: Word<T>) -> Result<u64, Error> {
        let Now(node, change, tells) = self;
        let is_granted = word.remote().memory() == Memory::Granted;
        let old = match change {
            // Where nobody wants the old word, the grant need not allow to read it.
            Change::Apply(op, value) if !tells && is_granted => {
                node.update_nb(word, op, T::from_c(value)).wait().0?;
                return Ok(0);
            }
            Change::Load => node.atomic_load(word)?,
            Change::Apply(op, value) => node.fetch(word, op, T::from_c(value))?,
            Change::CompareSwap(expected, new) => {
                node.compare_swap(word, T::from_c(expected), T::from_c(new))?
            }
        };
        Ok(old.to_c())
    }
}

/// To be forgotten.
struct Forgotten<'a>(&'a Node, AtomicOp, u64);

impl Act for Forgotten<'_> {
    type Out = Result<(), Error>;

    fn on<T: Bits>(self, word: Word<T>) -> Result<(), Error> {
        self.0.update_nbi(word, self.1, T::from_c(self.2))
    }
}

/// With an event.
struct Started<'a>(&'a Node, Change);

impl Act for Started<'_> {
    type Out = Event<Local>;

    fn on<T: Bits>(self, word: Word<T>) -> Event<Local> {
        let Started(node, change) = self;
        match change {
            Change::Load => node.atomic_load_nb_into(word, Local::NONE),
            Change::Apply(op, value) => node.fetch_nb_into(word, op, T::from_c(value), Local::NONE),
            Change::CompareSwap(expected, new) => {
                node.compare_swap_nb_into(word, T::from_c(expected), T::from_c(new), Local::NONE)
            }
        }
    }
}

/// # Safety
/// As for [`node_of`]; `old` is null or may be written.
unsafe fn now(
    node: *mut Handle<CNode>,
    word: CRemote,
    of: c_int,
    change: Change,
    old: *mut u64,
) -> Result<c_int, Failure> {
    // SAFETY: the caller has promised what the header asks of these pointers.
    let node = unsafe { node_of(node)? };
    let was = act(word, of, Now(node, change, !old.is_null()))??;
    // SAFETY: the caller has promised what the header asks of these pointers.
    unsafe { pointer::put_if(old, was) };
    Ok(0)
}

exported! {
    /// `sp_fetch` of the header.
    fn sp_fetch(
        node: *mut Handle<CNode>,
        word: CRemote,
        of: c_int,
        op: c_int,
        value: u64,
        old: *mut u64,
    ) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        call(|| unsafe { now(node, word, of, Change::of(op, value)?, old) })
    }
}

exported! {
    /// `sp_compare_swap` of the header.
    fn sp_compare_swap(
        node: *mut Handle<CNode>,
        word: CRemote,
        of: c_int,
        expected: u64,
        replacement: u64,
        old: *mut u64,
    ) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        call(|| unsafe { now(node, word, of, Change::CompareSwap(expected, replacement), old) })
    }
}

exported! {
    /// `sp_fetch_add_u64` of the header.
    fn sp_fetch_add_u64(
        node: *mut Handle<CNode>,
        at: CRemote,
        value: u64,
        old: *mut u64,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            let at = word::<u64>(at, "the word")?;
            let was = match at.remote().memory() {
                Memory::Granted => Now(node, Change::Apply(AtomicOp::Add, value), !old.is_null()).on(at)?,
                _ => node.fetch_add(at, value)?,
            };
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put_if(old, was) };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_update_nbi` of the header.
    fn sp_update_nbi(
        node: *mut Handle<CNode>,
        word: CRemote,
        of: c_int,
        op: c_int,
        value: u64,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            let Change::Apply(op, value) = Change::of(op, value)? else {
                return Err(Failure::argument("SP_LOAD changes nothing: use sp_fetch"));
            };
            act(word, of, Forgotten(node, op, value))??;
            Ok(0)
        })
    }
}

/// # Safety
/// As for [`node_of`]; `event` may be written.
unsafe fn start(
    node: *mut Handle<CNode>,
    word: CRemote,
    of: c_int,
    change: Change,
    event: *mut *mut Handle<CEvent>,
) -> Result<c_int, Failure> {
    pointer::needs(event, "event")?;
    // SAFETY: the caller has promised what the header asks of these pointers.
    unsafe {
        let node = node_of(node)?;
        CEvent::give(act(word, of, Started(node, change))?, event)?;
    }
    Ok(0)
}

exported! {
    /// `sp_fetch_nb` of the header.
    fn sp_fetch_nb(
        node: *mut Handle<CNode>,
        word: CRemote,
        of: c_int,
        op: c_int,
        value: u64,
        event: *mut *mut Handle<CEvent>,
    ) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        call(|| unsafe { start(node, word, of, Change::of(op, value)?, event) })
    }
}

exported! {
    /// `sp_compare_swap_nb` of the header.
    fn sp_compare_swap_nb(
        node: *mut Handle<CNode>,
        word: CRemote,
        of: c_int,
        expected: u64,
        replacement: u64,
        event: *mut *mut Handle<CEvent>,
    ) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        call(|| unsafe { start(node, word, of, Change::CompareSwap(expected, replacement), event) })
    }
}
