//! The name service.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::sync::{Mutex, PoisonError};

use layers::via::{NIC_ADDRESS_BYTES, Via, ViaError};

use super::connecting::{bytes_behind, put_behind};
use super::state::via;
use super::types::{Handle, NetAddress, check, code, load, number, store, text};

/// NICs on which the name service was begun.
static BEGUN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn begun() -> std::sync::MutexGuard<'static, BTreeSet<u32>> {
    BEGUN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// VIA, if the name service was begun on that NIC.
fn service(nic: Handle) -> Result<&'static Via, ViaError> {
    let (via, nic) = (via()?, number(nic)?);
    via.check_nic(nic)?;
    if begun().contains(&nic) { Ok(via) } else { Err(ViaError::NameService) }
}

/// This host's name.
fn own_host() -> String {
    let mut name = [0_u8; 256];
    // SAFETY: so many bytes are there to be written, and the last one stays 0.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// `VipNSInit`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipNSInit(nic: Handle, _info: *mut c_void) -> c_int {
    let init = || {
        let (via, nic) = (via()?, number(nic)?);
        via.check_nic(nic)?;
        begun().insert(nic);
        Ok(())
    };
    code(init())
}

/// `VipNSShutdown`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipNSShutdown(nic: Handle) -> c_int {
    let shut = || {
        service(nic)?;
        begun().remove(&number(nic)?);
        Ok(())
    };
    code(shut())
}

/// `VipNSGetHostByName`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipNSGetHostByName(
    nic: Handle,
    name: *const c_char,
    address: *mut NetAddress,
    index: c_ulong,
) -> c_int {
    let asked = || {
        text(name)?;
        check(address)?;
        let via = service(nic)?;
        let name = text(name)?.ok_or(ViaError::NameService)?;
        let host = via.host_by_name(name, index, &own_host())?.to_bytes();
        store(address.cast::<u16>(), host.len() as u16);
        put_behind(address, 0, &host);
        Ok(())
    };
    code(asked())
}

/// `VipNSGetHostByAddr`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipNSGetHostByAddr(
    nic: Handle,
    address: *const NetAddress,
    name: *mut c_char,
    len: *mut c_ulong,
) -> c_int {
    let asked = || {
        check(name)?;
        check(len)?;
        let via = service(nic)?;
        let len_of_host = usize::from(load(address)?.host_len);
        if len_of_host != NIC_ADDRESS_BYTES {
            return Err(ViaError::NameService);
        }
        let host = bytes_behind(address, 0, len_of_host);
        let found = via.name_by_address(&host)?;
        let room = load(len)?;
        store(len, found.len() as c_ulong);
        if room <= found.len() as c_ulong {
            return Err(ViaError::Resource);
        }
        for (at, letter) in found.bytes().chain([0]).enumerate() {
            store(name.wrapping_add(at), letter.cast_signed());
        }
        Ok(())
    };
    code(asked())
}
