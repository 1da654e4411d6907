//! Puts and gets of blocks: at fixed distances, and anywhere.

use std::ffi::{c_int, c_void};

use standpipe::{Event, Indexed, Node, Remote, Strided};

use crate::border::call;
use crate::copies::Way;
use crate::event::{CEvent, Local};
use crate::failure::Failure;
use crate::handle::Handle;
use crate::node::{CNode, node_of};
use crate::pointer::{self, CRemote, Params, memory};

/// `sp_strided` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CStrided {
    size: usize,
    block: usize,
    dimensions: usize,
    counts: *const usize,
    remote_strides: *const i64,
    local_strides: *const i64,
}

// SAFETY: it has integers and pointers alone, which may all be zero.
unsafe impl Params for CStrided {
    const NAME: &'static str = "sp_strided";
    const LEAST: usize = size_of::<CStrided>();
}

/// `sp_indexed` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CIndexed {
    size: usize,
    remote_block: usize,
    remote_count: usize,
    remote_offsets: *const u64,
    local_block: usize,
    local_count: usize,
    local_offsets: *const usize,
}

// SAFETY: it has integers and pointers alone, which may all be zero.
unsafe impl Params for CIndexed {
    const NAME: &'static str = "sp_indexed";
    const LEAST: usize = size_of::<CIndexed>();
}

/// A shape that fits, with the local memory that it touches.
enum Shape<'a> {
    Strided(Strided<'a>),
    Indexed(Indexed<'a>),
}

/// An operation of a shape.
struct Shaped<'a> {
    node: &'a Node,
    there: Remote,
    start: *mut u8,
    len: usize,
    shape: Shape<'a>,
}

/// The first byte here that blocks touch, relative to the first block, and how many bytes from there to the
/// last one's end. `None`: more than memory has.
fn touched(block: usize, counts: &[usize], strides: &[i64]) -> Option<(i64, usize)> {
    let (mut lowest, mut highest) = (0_i64, 0_i64);
    for (count, stride) in counts.iter().zip(strides) {
        let reach = i64::try_from(count.checked_sub(1)?).ok()?.checked_mul(*stride)?;
        (lowest, highest) = match reach < 0 {
            true => (lowest.checked_add(reach)?, highest),
            false => (lowest, highest.checked_add(reach)?),
        };
    }
    let span = usize::try_from(highest.checked_sub(lowest)?).ok()?.checked_add(block)?;
    Some((lowest, span))
}

impl<'a> Shaped<'a> {
    /// # Safety
    /// As for [`node_of`] and [`pointer::sized`]; the arrays have as many entries as the shape says.
    unsafe fn strided(
        node: *const Handle<CNode>,
        there: CRemote,
        here: *const u8,
        shape: *const CStrided,
    ) -> Result<Shaped<'a>, Failure> {
        // SAFETY: the caller has promised what the header asks of these pointers.
        let (node, shape) = unsafe { (node_of(node)?, pointer::sized_or_refused(shape)?) };
        let dimensions = shape.dimensions;
        // SAFETY: the caller has promised what the header asks of these pointers.
        let (counts, remote_strides, local) = unsafe {
            (
                pointer::slice(shape.counts, dimensions, "counts")?,
                pointer::slice(shape.remote_strides, dimensions, "remote_strides")?,
                pointer::slice(shape.local_strides, dimensions, "local_strides")?,
            )
        };
        // SAFETY: both are signed numbers of 64 bits, in as many places.
        let local_strides: &[isize] =
            unsafe { std::slice::from_raw_parts(local.as_ptr().cast(), local.len()) };
        let (block, is_empty) = (shape.block, counts.contains(&0) || shape.block == 0);
        let (lowest, len) = match is_empty {
            true => (0, 0),
            false => touched(block, counts, local)
                .ok_or_else(|| Failure::argument("the blocks wrap around memory"))?,
        };
        let start = here.wrapping_offset(lowest as isize).cast_mut();
        pointer::is_there(start, len, "the local memory")?;
        let local_start = usize::try_from(-lowest).unwrap_or(0);
        let shape = Shape::Strided(Strided { block, counts, remote_strides, local_strides, local_start });
        Ok(Shaped { node, there: there.remote()?, start, len, shape })
    }

    /// # Safety
    /// As for [`Shaped::strided`].
    unsafe fn indexed(
        node: *const Handle<CNode>,
        there: CRemote,
        here: *const u8,
        shape: *const CIndexed,
    ) -> Result<Shaped<'a>, Failure> {
        // SAFETY: the caller has promised what the header asks of these pointers.
        let (node, shape) = unsafe { (node_of(node)?, pointer::sized_or_refused(shape)?) };
        // SAFETY: the caller has promised what the header asks of these pointers.
        let (remote_offsets, local_offsets) = unsafe {
            (
                pointer::slice(shape.remote_offsets, shape.remote_count, "remote_offsets")?,
                pointer::slice(shape.local_offsets, shape.local_count, "local_offsets")?,
            )
        };
        let (remote_block, local_block) = (shape.remote_block, shape.local_block);
        let len = match local_offsets.iter().max() {
            Some(last) if local_block > 0 => last.saturating_add(local_block),
            _ => 0,
        };
        pointer::is_there(here, len, "the local memory")?;
        let shape = Shape::Indexed(Indexed { remote_block, remote_offsets, local_block, local_offsets });
        Ok(Shaped { node, there: there.remote()?, start: here.cast_mut(), len, shape })
    }

    fn moved(&self, way: Way) -> Result<c_int, Failure> {
        let Shaped { node, there, start, len, shape } = self;
        match way {
            Way::Put => {
                // SAFETY: the header asks for memory that is there until this returns.
                let from = unsafe { pointer::slice(start.cast_const(), *len, "the local memory")? };
                match shape {
                    Shape::Strided(shape) => node.put_strided(*there, from, shape)?,
                    Shape::Indexed(shape) => node.put_indexed(*there, from, shape)?,
                }
            }
            Way::Get => {
                // SAFETY: as above: the header asks for it of whoever calls this.
                let into = unsafe { pointer::slice_mut(*start, *len, "the local memory")? };
                match shape {
                    Shape::Strided(shape) => node.get_strided(*there, into, shape)?,
                    Shape::Indexed(shape) => node.get_indexed(*there, into, shape)?,
                }
            }
        }
        Ok(0)
    }

    fn start(&self, way: Way) -> Event<Local> {
        let local = Local::of(memory(), self.start, self.len);
        match (way, &self.shape) {
            (Way::Put, Shape::Strided(shape)) => self.node.put_strided_nb(self.there, local, shape),
            (Way::Put, Shape::Indexed(shape)) => self.node.put_indexed_nb(self.there, local, shape),
            (Way::Get, Shape::Strided(shape)) => self.node.get_strided_nb(self.there, local, shape),
            (Way::Get, Shape::Indexed(shape)) => self.node.get_indexed_nb(self.there, local, shape),
        }
    }
}

/// The functions of a shape: blocking, and with an event.
macro_rules! shaped {
    ($way:expr, $of:ident, $params:ty, $local:ty, $blocking:ident, $nb:ident) => {
        exported! {
        #[doc = concat!("`", stringify!($blocking), "` of the header.")]
        fn $blocking(
            node: *mut Handle<CNode>,
            there: CRemote,
            here: $local,
            shape: *const $params,
        ) -> c_int {
            // SAFETY: the caller has promised what the header asks of these pointers.
            call(|| unsafe { Shaped::$of(node, there, here.cast(), shape)? }.moved($way))
        }
        }

        exported! {
        #[doc = concat!("`", stringify!($nb), "` of the header.")]
        fn $nb(
            node: *mut Handle<CNode>,
            there: CRemote,
            here: $local,
            shape: *const $params,
            event: *mut *mut Handle<CEvent>,
        ) -> c_int {
            call(|| {
                pointer::needs(event, "event")?;
                // SAFETY: the caller has promised what the header asks of these pointers.
                unsafe {
                    let shaped = Shaped::$of(node, there, here.cast(), shape)?;
                    CEvent::give(shaped.start($way), event)?;
                }
                Ok(0)
            })
        }
        }
    };
}

shaped!(Way::Put, strided, CStrided, *const c_void, sp_put_strided, sp_put_strided_nb);
shaped!(Way::Get, strided, CStrided, *mut c_void, sp_get_strided, sp_get_strided_nb);
shaped!(Way::Put, indexed, CIndexed, *const c_void, sp_put_indexed, sp_put_indexed_nb);
shaped!(Way::Get, indexed, CIndexed, *mut c_void, sp_get_indexed, sp_get_indexed_nb);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_that_blocks_touch_are_from_the_lowest_to_the_highest() {
        assert_eq!(touched(8, &[3], &[16]), Some((0, 40)));
        assert_eq!(touched(8, &[3], &[-16]), Some((-32, 40)));
        assert_eq!(touched(1, &[2, 2], &[-4, 10]), Some((-4, 15)));
        assert_eq!(touched(1, &[3], &[i64::MAX]), None);
    }
}
