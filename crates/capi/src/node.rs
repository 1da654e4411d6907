//! The node: opening, closing, progress, and who is there.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use standpipe::underneath::InlineCounters;
use standpipe::{Code, Config, Error, Node, Rank};

use crate::border::{call, note, or};
use crate::call;
use crate::config::Settings;
use crate::failure::{Failure, status};
use crate::handle::{Handle, Kind, word};
use crate::pointer;

/// The part of a node's handle that the header's inline functions read, behind its first word: `struct
/// sp_inline` there.
#[repr(C)]
struct Inline {
    /// Peers in the table; 0 once it is closed.
    places: AtomicU64,
    table: *const c_void,
    /// The thread that counts here: its pointer, as the processor has it.
    thread: AtomicPtr<c_void>,
    /// Puts, gets and atomics.
    counts: [*mut u64; 3],
}

/// A function of the program's, which gets its context.
type Asks = unsafe extern "C" fn(*mut c_void) -> c_int;

const _: () = assert!(size_of::<Inline>() == 48 && std::mem::offset_of!(CNode, inline) == 0);

/// The layout of [`Inline`], which programs are compiled for. Others are refused when a node is opened.
const LAYOUT: c_int = 1;

/// `sp_node` of the header.
#[repr(C)]
pub struct CNode {
    inline: Inline,
    /// Null once it is closed.
    node: AtomicPtr<Node>,
    /// The counters that `inline` points to.
    _counters: InlineCounters,
    /// It is [`sp_open`]'s: [`sp_close`] ends it, and nothing else does.
    is_opened: bool,
}

/// The handles that were closed, so that tools that look for lost memory find them: each answers calls until
/// the process ends.
static CLOSED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

// SAFETY: the table and the counters are those of the node, which all threads may use; of the counters only
// one thread writes, which `thread` names.
unsafe impl Send for CNode {}
// SAFETY: as above: the header asks for it of whoever calls this.
unsafe impl Sync for CNode {}

impl Kind for CNode {
    const NAME: &'static str = "node";
    const WORD: u64 = word(b"sp node ");
}

impl CNode {
    /// The calling thread is the one whose inlined operations count in the handle: others call.
    pub(crate) fn new(node: Node) -> CNode {
        let (table, counters) = standpipe::underneath::inline_face(&node);
        let counts = [counters.puts(), counters.gets(), counters.atomics()];
        let inline = Inline {
            places: AtomicU64::new(table.len as u64),
            table: table.places,
            thread: AtomicPtr::new(thread_pointer()),
            counts,
        };
        let node = AtomicPtr::new(Box::into_raw(Box::new(node)));
        CNode { inline, node, _counters: counters, is_opened: false }
    }

    /// The node, unless this handle was closed. For the call that this thread is inside of.
    #[inline]
    pub(crate) fn node(&self) -> Result<&Node, Failure> {
        let node = self.node.load(Ordering::Acquire);
        // SAFETY: it is null, or a node that is freed only when each thread has left that was inside when it
        // was taken away, as `call` has it.
        unsafe { node.as_ref() }.ok_or_else(closed)
    }
}

#[cold]
#[inline(never)]
fn closed() -> Failure {
    Failure::from(Error::Closed { call: "a call by this handle" })
}

impl Drop for CNode {
    fn drop(&mut self) {
        let node = *self.node.get_mut();
        if !node.is_null() {
            // SAFETY: it came from a box, and nobody has taken it out.
            drop(unsafe { Box::from_raw(node) });
        }
    }
}

/// A pointer that tells this thread from all others that run, as the header's inlined functions have it.
fn thread_pointer() -> *mut c_void {
    let pointer: *mut c_void;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: Linux has the thread's block begin with its own address, for just that.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: it reads a register that all programs may read.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        // Nobody's: all of them call.
        pointer = std::ptr::null_mut();
    }
    pointer
}

/// The node of a handle.
///
/// # Safety
/// As for [`Handle::get`].
pub(crate) unsafe fn node_of<'a>(handle: *const Handle<CNode>) -> Result<&'a Node, Failure> {
    // SAFETY: the caller has promised what the header asks of these pointers.
    unsafe { Handle::get(handle)? }.node()
}

exported! {
    /// `sp_open` of the header.
    fn sp_open(config: *mut Handle<Settings>, node: *mut *mut Handle<CNode>) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        unsafe { sp_open_as(config, 0, node) }
    }
}

exported! {
    /// `sp_open_as` of the header.
    fn sp_open_as(
        config: *mut Handle<Settings>,
        how: c_int,
        node: *mut *mut Handle<CNode>,
    ) -> c_int {
        call(|| {
            call::clear();
            let config = match config.is_null() {
                true => Config::from_env()?,
                // SAFETY: the caller has promised what the header asks of these pointers.
                false => unsafe { Handle::take(config)? }.0,
            };
            pointer::needs(node, "node")?;
            let (layout, how) = (how >> 8, how & 0xff);
            // A program without inlined functions names none.
            if layout != 0 && layout != LAYOUT {
                let text = format!(
                    "the program's inlined functions are of layout {layout}, and the library's of {LAYOUT}"
                );
                return Err(Failure::argument(text));
            }
            let opened = match how {
                0 => Node::open(config)?,
                1 => Node::shared(config)?,
                2 => Node::open_in(config, None)?,
                other => return Err(Failure::value("`as`", other.into(), "SP_OWN, SP_SHARED or SP_ALONE")),
            };
            let mut opened = CNode::new(opened);
            opened.is_opened = true;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(node, Handle::give(opened), "node")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_close` of the header.
    fn sp_close(node: *mut Handle<CNode>, within: u64) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let handle = unsafe { Handle::get(node)? };
            let closed = handle.node()?.clone().close(pointer::duration(within));
            if let Err(error) = &closed
                && !error.has_closed()
            {
                return Err(closed.expect_err("it is an error").into());
            }
            handle.inline.places.store(0, Ordering::SeqCst);
            let own = handle.node.swap(std::ptr::null_mut(), Ordering::AcqRel);
            if !own.is_null() {
                // SAFETY: it came from a box, and this thread alone has taken it out.
                call::bury(unsafe { Box::from_raw(own) });
                CLOSED.lock().unwrap_or_else(PoisonError::into_inner).push(node.expose_provenance());
            }
            closed?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_release` of the header.
    fn sp_release(node: *mut Handle<CNode>) {
        let noted = |failure| {
            crate::border::note(failure);
        };
        or(noted, || {
            // SAFETY: the caller has promised what the header asks of these pointers.
            if !node.is_null() && unsafe { Handle::get(node)? }.is_opened {
                return Err(Failure::argument("sp_release frees no node that sp_open gave; sp_close closes it"));
            }
            crate::border::free(node);
            Ok(())
        });
    }
}

exported! {
    /// `sp_within` of the header.
    fn sp_within(
        node: *mut Handle<CNode>,
        timeout: u64,
        limited: *mut *mut Handle<CNode>,
    ) -> c_int {
        call(|| {
            pointer::needs(limited, "limited")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let own = unsafe { node_of(node)? };
            let other = CNode::new(own.within(pointer::duration(timeout)));
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(limited, Handle::give(other), "limited")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_rank` of the header.
    fn sp_rank(node: *const Handle<CNode>) -> u32 {
        let failed = |failure| {
            crate::border::note(failure);
            u32::MAX
        };
        // SAFETY: the caller has promised what the header asks of these pointers.
        or(failed, || Ok(unsafe { node_of(node)? }.rank()))
    }
}

exported! {
    /// `sp_size` of the header.
    fn sp_size(node: *const Handle<CNode>) -> u32 {
        let failed = |failure| {
            crate::border::note(failure);
            0
        };
        // SAFETY: the caller has promised what the header asks of these pointers.
        or(failed, || Ok(unsafe { node_of(node)? }.size()))
    }
}

/// Functions that a node's method of the same kind does, and that give nothing but a status.
macro_rules! by_node {
    ($($(#[$meta:meta])* $name:ident($node:ident $(, $arg:ident: $type:ty)*) $body:expr;)*) => {
        $(exported! {
            $(#[$meta])*
            fn $name(node: *const Handle<CNode> $(, $arg: $type)*) -> c_int {
                call(|| {
                    // SAFETY: the caller has promised what the header asks of these pointers.
                    let $node = unsafe { node_of(node)? };
                    let done: Result<c_int, Failure> = $body;
                    done
                })
            }
        })*
    };
}

by_node! {
    /// `sp_barrier` of the header.
    sp_barrier(node) node.barrier().map(|()| 0).map_err(Failure::from);
    /// `sp_progress` of the header.
    sp_progress(node) {
        may_call(node, "making progress").map(|()| node.progress().into())
    };
    /// `sp_quiet` of the header.
    sp_quiet(node) node.quiet().map(|()| 0).map_err(Failure::from);
    /// `sp_quiet_with` of the header.
    sp_quiet_with(node, peer: Rank) node.quiet_with(peer).map(|()| 0).map_err(Failure::from);
    /// `sp_fence` of the header.
    sp_fence(node) node.fence().map(|()| 0).map_err(Failure::from);
    /// `sp_fence_with` of the header.
    sp_fence_with(node, peer: Rank) node.fence_with(peer).map(|()| 0).map_err(Failure::from);
    /// `sp_memory_sync` of the header.
    sp_memory_sync(node) node.memory_sync().map(|()| 0).map_err(Failure::from);
    /// `sp_has_failed` of the header.
    sp_has_failed(node) Ok(node.has_failed().into());
    /// `sp_connect` of the header.
    sp_connect(node, peer: Rank) node.connect(peer).map(|()| 0).map_err(Failure::from);
    /// `sp_is_near` of the header.
    sp_is_near(node, peer: Rank) Ok(node.is_near(peer).into());
    /// `sp_is_lost` of the header.
    sp_is_lost(node, peer: Rank) Ok(node.is_lost(peer).into());
    /// `sp_wait_until` of the header.
    sp_wait_until(
        node,
        condition: Option<Asks>,
        context: *mut c_void
    ) {
        let condition = condition.ok_or_else(|| Failure::argument("the condition is NULL"))?;
        // SAFETY: the caller has promised what the header asks of these pointers.
        node.wait_until(|| unsafe { condition(context) } != 0).map(|()| 0).map_err(Failure::from)
    };
    /// `sp_peers` of the header.
    sp_peers(node, which: c_int, into: *mut u32, room: usize, count: *mut usize) {
        may_call(node, "asking for peers")?;
        let peers = match which {
            0 => node.peers(),
            1 => node.near_ranks(),
            2 => node.lost_peers(),
            other => return Err(Failure::value("`which`", other.into(), "SP_ALL_PEERS, SP_NEAR_PEERS or SP_LOST_PEERS")),
        };
        let given = peers.len().min(room);
        // SAFETY: the caller has promised what the header asks of these pointers.
        unsafe {
            pointer::slice_mut(into, given, "the room")?.copy_from_slice(&peers[..given]);
            pointer::put(count, peers.len(), "count")?;
        }
        Ok(0)
    };
    /// `sp_path_to` of the header.
    sp_path_to(node, peer: Rank, into: *mut c_char, room: usize, len: *mut usize) {
        let path = match node.attach(peer) {
            Some(Ok(())) => "attached".to_owned(),
            Some(Err(why)) => format!("by message: {why}"),
            None => {
                return Err(Failure::new(Code::NotConnected, format!("there has been no contact with peer {peer}")));
            }
        };
        // SAFETY: the caller has promised what the header asks of these pointers.
        unsafe { pointer::give(path.as_bytes(), true, into.cast(), room, len)? };
        Ok(0)
    };
    /// `sp_provider` of the header.
    sp_provider(node, into: *mut c_char, room: usize, len: *mut usize) {
        may_call(node, "the provider")?;
        let provider = node.provider();
        let provider = provider.ok_or_else(|| Failure::new(Code::NotFound, "the node has no network"))?;
        // SAFETY: the caller has promised what the header asks of these pointers.
        unsafe { pointer::give(provider.as_bytes(), true, into.cast(), room, len)? };
        Ok(0)
    };
}

/// Refuses a call of a closed node, and of a parent's, whose own method says nothing.
pub(crate) fn may_call(node: &Node, call: &'static str) -> Result<(), Failure> {
    node.check(call).map_err(Failure::from)
}

exported! {
    /// `sp_wake` of the header. As it may be called in a signal handler, it allocates nothing and takes no
    /// lock.
    fn sp_wake(node: *mut Handle<CNode>) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        match unsafe { Handle::get(node) }.map(|handle| handle.node.load(Ordering::Acquire)) {
            // SAFETY: it is null, or a node that nobody closes meanwhile, as the header asks.
            Ok(node) => match unsafe { node.as_ref() } {
                Some(node) => {
                    node.wake();
                    0
                }
                None => status(Code::Closed),
            },
            Err(failure) => note(failure),
        }
    }
}

exported! {
    /// `sp_on_wait` of the header.
    fn sp_on_wait(
        interrupted: Option<Asks>,
        context: *mut c_void,
    ) -> c_int {
        call(|| {
            let context = context.expose_provenance();
            standpipe::interrupt_waits(interrupted.map(|interrupted| {
                let asks = move || {
                    // SAFETY: the caller has promised what the header asks of these pointers.
                    unsafe { interrupted(std::ptr::with_exposed_provenance_mut(context)) != 0 }
                };
                Box::new(asks) as Box<dyn Fn() -> bool + Send + Sync>
            }));
            Ok(0)
        })
    }
}
