//! Puts and gets of one piece and of lists.

use std::ffi::{c_int, c_void};

use standpipe::{Node, PinError, Pinned, RawPiece};

use crate::border::call;
use crate::event::{CEvent, Local};
use crate::failure::Failure;
use crate::handle::{Handle, Kind, word};
use crate::heap::in_heap;
use crate::node::{CNode, node_of};
use crate::pointer::{self, CRemote, memory};

/// `sp_piece` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CPiece {
    there: CRemote,
    here: *mut c_void,
    len: usize,
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Put,
    Get,
}

/// One piece, as the library takes it.
#[inline]
fn piece(there: CRemote, here: *const c_void, len: usize) -> Result<RawPiece, Failure> {
    pointer::is_there(here.cast::<u8>(), len, "the local memory")?;
    Ok(RawPiece { remote: there.remote()?, start: here.cast_mut().cast(), len })
}

/// A list of them.
///
/// # Safety
/// As for [`pointer::slice`].
unsafe fn list(pieces: *const CPiece, count: usize) -> Result<Vec<RawPiece>, Failure> {
    // SAFETY: the caller has promised what the header asks of these pointers.
    let pieces = unsafe { pointer::slice(pieces, count, "the list of pieces")? };
    pieces.iter().map(|one| piece(one.there, one.here, one.len)).collect()
}

/// Moves pieces to their end.
fn moved(node: &Node, way: Way, pieces: &[RawPiece]) -> Result<c_int, Failure> {
    match way {
        // SAFETY: the header asks for memory that is there until this returns.
        Way::Put => unsafe { node.put_raw(pieces)? },
        // SAFETY: as above: the header asks for it of whoever calls this.
        Way::Get => unsafe { node.get_raw(pieces)? },
    }
    Ok(0)
}

/// Starts to move pieces.
fn start(node: &Node, way: Way, pieces: &[RawPiece]) -> standpipe::Event<Local> {
    match way {
        // SAFETY: the header asks for memory that is there until the operation has ended.
        Way::Put => unsafe { node.put_raw_nb(pieces, Local::NONE) },
        // SAFETY: as above: the header asks for it of whoever calls this.
        Way::Get => unsafe { node.get_raw_nb(pieces, Local::NONE) },
    }
}

/// The functions of one piece: blocking, with an event, and forgotten.
macro_rules! of_one {
    ($way:expr, $blocking:ident, $nb:ident, $local:ty) => {
        exported! {
        #[doc = concat!("`", stringify!($blocking), "` of the header.")]
        fn $blocking(
            node: *mut Handle<CNode>,
            there: CRemote,
            here: $local,
            len: usize,
        ) -> c_int {
            call(|| {
                // SAFETY: the caller has promised what the header asks of these pointers.
                let node = unsafe { node_of(node)? };
                moved(node, $way, &[piece(there, here, len)?])
            })
        }
        }

        exported! {
        #[doc = concat!("`", stringify!($nb), "` of the header.")]
        fn $nb(
            node: *mut Handle<CNode>,
            there: CRemote,
            here: $local,
            len: usize,
            event: *mut *mut Handle<CEvent>,
        ) -> c_int {
            call(|| {
                pointer::needs(event, "event")?;
                // SAFETY: the caller has promised what the header asks of these pointers.
                let node = unsafe { node_of(node)? };
                let piece = piece(there, here, len)?;
                let buffer = Local::of(memory(), piece.start, len);
                let started = match $way {
                    Way::Put => node.put_nb(piece.remote, buffer),
                    Way::Get => node.get_nb(piece.remote, buffer),
                };
                // SAFETY: the caller has promised what the header asks of these pointers.
                unsafe { CEvent::give(started, event)? };
                Ok(0)
            })
        }
        }
    };
}

of_one!(Way::Put, sp_put, sp_put_nb, *const c_void);
of_one!(Way::Get, sp_get, sp_get_nb, *mut c_void);

exported! {
    /// `sp_put_nbi` of the header.
    fn sp_put_nbi(
        node: *mut Handle<CNode>,
        to: CRemote,
        from: *const c_void,
        len: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, bytes) =
                unsafe { (node_of(node)?, pointer::slice(from.cast::<u8>(), len, "the local memory")?) };
            node.put_nbi(to.remote()?, bytes)?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_get_nbi` of the header.
    fn sp_get_nbi(
        node: *mut Handle<CNode>,
        from: CRemote,
        into: *mut c_void,
        len: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            let piece = piece(from, into, len)?;
            drop(node.get_nb(piece.remote, Local::of(memory(), into.cast(), len)));
            Ok(0)
        })
    }
}

exported! {
    /// `sp_put_u64` of the header.
    fn sp_put_u64(node: *mut Handle<CNode>, to: CRemote, value: u64) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            match in_heap(to, "the value") {
                Ok(ptr) => node.put(ptr, value)?,
                Err(_) => node.put_bytes(to.remote()?, &value.to_ne_bytes())?,
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_get_u64` of the header.
    fn sp_get_u64(node: *mut Handle<CNode>, from: CRemote, value: *mut u64) -> c_int {
        call(|| {
            pointer::needs(value, "value")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            let mut bytes = [0; 8];
            let got = match in_heap(from, "the value") {
                Ok(ptr) => node.get(ptr)?,
                Err(_) => {
                    node.get_bytes(from.remote()?, &mut bytes)?;
                    u64::from_ne_bytes(bytes)
                }
            };
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(value, got, "value")? };
            Ok(0)
        })
    }
}

/// The functions of lists: blocking, and with an event.
macro_rules! of_lists {
    ($way:expr, $blocking:ident, $nb:ident) => {
        exported! {
        #[doc = concat!("`", stringify!($blocking), "` of the header.")]
        fn $blocking(
            node: *mut Handle<CNode>,
            pieces: *const CPiece,
            count: usize,
        ) -> c_int {
            call(|| {
                // SAFETY: the caller has promised what the header asks of these pointers.
                let (node, pieces) = unsafe { (node_of(node)?, list(pieces, count)?) };
                moved(node, $way, &pieces)
            })
        }
        }

        exported! {
        #[doc = concat!("`", stringify!($nb), "` of the header.")]
        fn $nb(
            node: *mut Handle<CNode>,
            pieces: *const CPiece,
            count: usize,
            event: *mut *mut Handle<CEvent>,
        ) -> c_int {
            call(|| {
                pointer::needs(event, "event")?;
                // SAFETY: the caller has promised what the header asks of these pointers.
                let (node, pieces) = unsafe { (node_of(node)?, list(pieces, count)?) };
                // SAFETY: the caller has promised what the header asks of these pointers.
                unsafe { CEvent::give(start(node, $way, &pieces), event)? };
                Ok(0)
            })
        }
        }
    };
}

of_lists!(Way::Put, sp_put_list, sp_put_list_nb);
of_lists!(Way::Get, sp_get_list, sp_get_list_nb);

exported! {
    /// `sp_prefetch` of the header.
    fn sp_prefetch(node: *mut Handle<CNode>, at: CRemote, len: u64) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            node.prefetch(at.remote()?, len)?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_prepare` of the header.
    fn sp_prepare(node: *mut Handle<CNode>, local: *const c_void, len: usize) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, bytes) =
                unsafe { (node_of(node)?, pointer::slice(local.cast::<u8>(), len, "the local memory")?) };
            crate::node::may_call(node, "preparing memory")?;
            node.prepare(bytes);
            Ok(0)
        })
    }
}

/// `sp_pin` of the header.
pub struct Pin(Pinned);

impl Kind for Pin {
    const NAME: &'static str = "pin";
    const WORD: u64 = word(b"sp pin  ");
}

exported! {
    /// `sp_pin_memory` of the header.
    fn sp_pin_memory(
        node: *mut Handle<CNode>,
        local: *const c_void,
        len: usize,
        pin: *mut *mut Handle<Pin>,
    ) -> c_int {
        call(|| {
            pointer::needs(pin, "pin")?;
            pointer::is_there(local.cast::<u8>(), len, "the local memory")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            let range = std::ptr::slice_from_raw_parts(local.cast::<u8>(), len);
            let pinned = node.pin(range).map_err(|error: PinError| error)?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(pin, Handle::give(Pin(pinned)), "pin")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_pin_is_held` of the header.
    fn sp_pin_is_held(pin: *const Handle<Pin>) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        call(|| Ok(unsafe { Handle::get(pin)? }.0.is_held().into()))
    }
}

exported! {
    /// `sp_unpin` of the header.
    fn sp_unpin(pin: *mut Handle<Pin>) {
        crate::border::free(pin);
    }
}
