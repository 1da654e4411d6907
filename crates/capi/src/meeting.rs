//! How nodes find each other: the directory, addresses, and a rendezvous.

use std::ffi::{c_char, c_int, c_void};

use standpipe::rendezvous::Rendezvous;
use standpipe::{Address, Code};

use crate::border::call;
use crate::failure::Failure;
use crate::handle::{Handle, Kind, word};
use crate::node::{CNode, node_of};
use crate::pointer;

exported! {
    /// `sp_publish` of the header.
    fn sp_publish(
        node: *mut Handle<CNode>,
        name: *const c_char,
        value: *const c_void,
        len: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, name, value) = unsafe {
                (
                    node_of(node)?,
                    pointer::text(name, "the name")?,
                    pointer::slice(value.cast::<u8>(), len, "the value")?,
                )
            };
            node.directory().publish(name, value)?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_withdraw` of the header.
    fn sp_withdraw(node: *mut Handle<CNode>, name: *const c_char) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, name) = unsafe { (node_of(node)?, pointer::text(name, "the name")?) };
            match node.directory().withdraw(name)? {
                true => Ok(0),
                false => Err(Failure::new(Code::NotFound, format!("this rank has published no {name:?}"))),
            }
        })
    }
}

exported! {
    /// `sp_lookup` of the header.
    fn sp_lookup(
        node: *mut Handle<CNode>,
        name: *const c_char,
        into: *mut c_void,
        room: usize,
        len: *mut usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, name) = unsafe { (node_of(node)?, pointer::text(name, "the name")?) };
            let value = node.directory().lookup(name)?;
            let value =
                value.ok_or_else(|| Failure::new(Code::NotFound, format!("nobody has published {name:?}")))?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::give(&value, false, into.cast(), room, len)? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_lookup_wait` of the header.
    fn sp_lookup_wait(
        node: *mut Handle<CNode>,
        name: *const c_char,
        within: u64,
        into: *mut c_void,
        room: usize,
        len: *mut usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, name) = unsafe { (node_of(node)?, pointer::text(name, "the name")?) };
            let value = node.directory().wait(name, pointer::duration(within))?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::give(&value, false, into.cast(), room, len)? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_address` of the header.
    fn sp_address(
        node: *mut Handle<CNode>,
        into: *mut c_void,
        room: usize,
        len: *mut usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let address = unsafe { node_of(node)? }.address()?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::give(address.as_bytes(), false, into.cast(), room, len)? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_connect_to` of the header.
    fn sp_connect_to(
        node: *mut Handle<CNode>,
        address: *const c_void,
        len: usize,
        peer: *mut u32,
    ) -> c_int {
        call(|| {
            pointer::needs(peer, "peer")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, address) =
                unsafe { (node_of(node)?, pointer::slice(address.cast::<u8>(), len, "the address")?) };
            let found = node.connect_to(address)?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(peer, found, "peer")? };
            Ok(0)
        })
    }
}

/// `sp_rendezvous` of the header.
pub struct CRendezvous(Rendezvous);

impl Kind for CRendezvous {
    const NAME: &'static str = "rendezvous";
    const WORD: u64 = word(b"sp rendz");
}

exported! {
    /// `sp_rendezvous_new` of the header.
    fn sp_rendezvous_new(
        at: *const c_char,
        secret: *const c_char,
        rendezvous: *mut *mut Handle<CRendezvous>,
    ) -> c_int {
        call(|| {
            pointer::needs(rendezvous, "rendezvous")?;
            let found = match at.is_null() && secret.is_null() {
                true => {
                    let unset = || Failure::new(Code::NotFound, "STANDPIPE_RENDEZVOUS is not set");
                    Rendezvous::from_env()?.ok_or_else(unset)?
                }
                // SAFETY: the caller has promised what the header asks of these pointers.
                false => unsafe {
                    Rendezvous::new(pointer::text(at, "`at`")?, pointer::text(secret, "the secret")?)?
                },
            };
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(rendezvous, Handle::give(CRendezvous(found)), "rendezvous")? };
            Ok(0)
        })
    }
}

/// An address that C has as bytes.
///
/// # Safety
/// As for [`pointer::slice`].
unsafe fn address_of(address: *const c_void, len: usize) -> Result<Address, Failure> {
    // SAFETY: the caller has promised what the header asks of these pointers.
    let bytes = unsafe { pointer::slice(address.cast::<u8>(), len, "the address")? };
    Address::from_bytes(bytes).map_err(|error| Failure::new(error.code(), error.to_string()))
}

exported! {
    /// `sp_rendezvous_leave` of the header.
    fn sp_rendezvous_leave(
        at: *const Handle<CRendezvous>,
        name: *const c_char,
        address: *const c_void,
        len: usize,
        within: u64,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (at, name, address) =
                unsafe { (Handle::get(at)?, pointer::text(name, "the name")?, address_of(address, len)?) };
            at.0.leave(name, &address, pointer::duration(within))?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_rendezvous_withdraw` of the header.
    fn sp_rendezvous_withdraw(
        at: *const Handle<CRendezvous>,
        name: *const c_char,
        address: *const c_void,
        len: usize,
        within: u64,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (at, name, address) =
                unsafe { (Handle::get(at)?, pointer::text(name, "the name")?, address_of(address, len)?) };
            at.0.withdraw(name, &address, pointer::duration(within))?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_rendezvous_find` of the header.
    fn sp_rendezvous_find(
        at: *const Handle<CRendezvous>,
        name: *const c_char,
        within: u64,
        into: *mut c_void,
        room: usize,
        len: *mut usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (at, name) = unsafe { (Handle::get(at)?, pointer::text(name, "the name")?) };
            let address = at.0.find(name, pointer::duration(within))?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::give(address.as_bytes(), false, into.cast(), room, len)? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_rendezvous_free` of the header.
    fn sp_rendezvous_free(rendezvous: *mut Handle<CRendezvous>) {
        crate::border::free(rendezvous);
    }
}
