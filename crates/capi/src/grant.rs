//! Grants and exposed memory.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use standpipe::{Audience, Exposed, Foreign, Grant, GrantError, GrantName, Remote, Rights};

use crate::border::call;
use crate::event::Context;
use crate::failure::Failure;
use crate::handle::{Handle, Kind, word};
use crate::node::{CNode, node_of};
use crate::pointer::{self, CRemote, Params, memory};

/// The program's function that hears that memory is its own again. It hears of a grant that was made alone.
pub(crate) struct Release {
    call: Option<(unsafe extern "C" fn(*mut c_void), Context)>,
    is_granted: Arc<AtomicBool>,
    /// A child that is forked has its own copy of this, and of the memory, which nobody is told of.
    process: u32,
}

impl Release {
    fn new(
        call: Option<(unsafe extern "C" fn(*mut c_void), Context)>,
        is_granted: &Arc<AtomicBool>,
    ) -> Release {
        Release { call, is_granted: Arc::clone(is_granted), process: std::process::id() }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if self.is_granted.load(Ordering::Acquire)
            && self.process == std::process::id()
            && let Some((release, context)) = self.call.take()
        {
            // SAFETY: the program has given the function and its context for just that.
            unsafe { release(context.get()) };
        }
    }
}

/// `sp_grant` of the header: its memory is there until it was given back.
pub struct CGrant(Grant<Foreign<Release>>);

impl Kind for CGrant {
    const NAME: &'static str = "grant";
    const WORD: u64 = word(b"sp grant");
}

/// `sp_name` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CName {
    words: [u64; 2],
}

/// `sp_grant_params` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct GrantParams {
    size: usize,
    rights: i32,
    to: *const u32,
    to_count: usize,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
    context: *mut c_void,
}

// SAFETY: it has integers and pointers alone, which may all be zero.
unsafe impl Params for GrantParams {
    const NAME: &'static str = "sp_grant_params";
    const LEAST: usize = size_of::<GrantParams>();
}

/// Rights by their bits.
fn rights_of(bits: c_int) -> Result<Rights, Failure> {
    match bits {
        1 => Ok(Rights::Read),
        2 => Ok(Rights::Write),
        3 => Ok(Rights::ReadWrite),
        other => Err(Failure::value("the rights", other.into(), "SP_READ, SP_WRITE, or both")),
    }
}

/// The parameters as the library takes them: the rights, for whom, and who is told.
struct Said {
    rights: Rights,
    to: Audience,
    release: Option<(unsafe extern "C" fn(*mut c_void), Context)>,
}

/// # Safety
/// As for [`pointer::sized`]; `to` is as long as it says.
unsafe fn said(params: *const GrantParams) -> Result<Said, Failure> {
    // SAFETY: the caller has promised what the header asks of these pointers.
    let Some(params) = (unsafe { pointer::sized(params)? }) else {
        return Ok(Said { rights: Rights::Read, to: Audience::ALL, release: None });
    };
    let to = match params.to.is_null() && params.to_count == 0 {
        true => Audience::ALL,
        // SAFETY: the caller has promised what the header asks of these pointers.
        false => Audience::from(unsafe { pointer::slice(params.to, params.to_count, "the audience")? }),
    };
    let rights = rights_of(if params.rights == 0 { 1 } else { params.rights })?;
    Ok(Said { rights, to, release: params.release.map(|release| (release, Context::new(params.context))) })
}

/// Memory of the program's that is granted.
fn lent(start: *mut c_void, len: usize, release: Release) -> Foreign<Release> {
    memory().buffer(start.cast(), len, release)
}

exported! {
    /// `sp_grant_memory` of the header.
    fn sp_grant_memory(
        node: *mut Handle<CNode>,
        start: *mut c_void,
        len: usize,
        params: *const GrantParams,
        grant: *mut *mut Handle<CGrant>,
    ) -> c_int {
        call(|| {
            pointer::needs(grant, "grant")?;
            pointer::is_there(start.cast::<u8>(), len, "the memory")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, Said { rights, to, release }) = unsafe { (node_of(node)?, said(params)?) };
            let is_granted = Arc::<AtomicBool>::default();
            let release = Release::new(release, &is_granted);
            let granted = node.grant(lent(start, len, release), rights, to)?;
            is_granted.store(true, Ordering::Release);
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(grant, Handle::give(CGrant(granted)), "grant")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_grant_many` of the header.
    fn sp_grant_many(
        node: *mut Handle<CNode>,
        starts: *const *mut c_void,
        lens: *const usize,
        count: usize,
        params: *const GrantParams,
        grants: *mut *mut Handle<CGrant>,
    ) -> c_int {
        call(|| {
            pointer::is_there(grants, count, "`grants`")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, said, starts, lens) = unsafe {
                (
                    node_of(node)?,
                    said(params)?,
                    pointer::slice(starts, count, "`memory`")?,
                    pointer::slice(lens, count, "`lens`")?,
                )
            };
            for (start, len) in starts.iter().zip(lens) {
                pointer::is_there(start.cast::<u8>(), *len, "the memory")?;
            }
            let is_granted = Arc::<AtomicBool>::default();
            let release = || Release::new(said.release, &is_granted);
            let all = starts.iter().zip(lens).map(|(start, len)| lent(*start, *len, release()));
            let granted = node.grant_many(all.collect::<Vec<_>>(), said.rights, said.to)?;
            is_granted.store(true, Ordering::Release);
            for (index, one) in granted.into_iter().enumerate() {
                // SAFETY: the caller has promised what the header asks of these pointers.
                unsafe { grants.add(index).write(Handle::give(CGrant(one))) };
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_grant_name` of the header.
    fn sp_grant_name(grant: *const Handle<CGrant>, name: *mut CName) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let words = unsafe { Handle::get(grant)? }.0.name().to_words();
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(name, CName { words }, "name")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_granted` of the header.
    fn sp_granted(peer: u32, name: *const CName, at: *mut CRemote, len: *mut u64) -> c_int {
        call(|| {
            pointer::needs(at, "at")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let words = unsafe { pointer::slice(name, 1, "the name")?[0] }.words;
            let name = GrantName::from_words(words);
            let name = name.ok_or_else(|| {
                let [first, second] = words;
                Failure::argument(format!("{first:#x}, {second:#x} are no grant's name"))
            })?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                pointer::put(at, CRemote::of(Remote::granted(peer, name)), "at")?;
                pointer::put_if(len, name.len());
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_grant_revoke` of the header.
    fn sp_grant_revoke(grant: *mut Handle<CGrant>) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { Handle::get(grant)? }.0.revoke()?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_grant_wait_idle` of the header.
    fn sp_grant_wait_idle(grant: *mut Handle<CGrant>, within: u64) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let grant = unsafe { Handle::get_mut(grant)? };
            match grant.0.revoke() {
                Ok(()) | Err(GrantError::Revoked { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            drop(grant.0.wait_idle(pointer::duration(within))?);
            Ok(0)
        })
    }
}

exported! {
    /// `sp_grant_repoint` of the header.
    fn sp_grant_repoint(
        grant: *mut Handle<CGrant>,
        start: *mut c_void,
        len: usize,
        within: u64,
    ) -> c_int {
        call(|| {
            pointer::is_there(start.cast::<u8>(), len, "the memory")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let grant = unsafe { Handle::get_mut(grant)? };
            let untold = Release::new(None, &Arc::default());
            drop(grant.0.repoint(lent(start, len, untold), pointer::duration(within))?);
            Ok(0)
        })
    }
}

exported! {
    /// `sp_grant_free` of the header.
    fn sp_grant_free(grant: *mut Handle<CGrant>) {
        crate::border::free(grant);
    }
}

/// `sp_exposed` of the header.
pub struct CExposed {
    _exposed: Exposed,
}

impl Kind for CExposed {
    const NAME: &'static str = "exposed";
    const WORD: u64 = word(b"sp expos");
}

exported! {
    /// `sp_expose` of the header.
    fn sp_expose(
        node: *mut Handle<CNode>,
        start: *const c_void,
        len: usize,
        rights: c_int,
        exposed: *mut *mut Handle<CExposed>,
    ) -> c_int {
        call(|| {
            pointer::needs(exposed, "exposed")?;
            pointer::is_there(start.cast::<u8>(), len, "the memory")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            crate::node::may_call(node, "exposing memory")?;
            let range = std::ptr::slice_from_raw_parts(start.cast::<u8>(), len);
            let made = CExposed { _exposed: node.expose(range, rights_of(rights)?) };
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(exposed, Handle::give(made), "exposed")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_unexpose` of the header.
    fn sp_unexpose(exposed: *mut Handle<CExposed>) {
        crate::border::free(exposed);
    }
}
