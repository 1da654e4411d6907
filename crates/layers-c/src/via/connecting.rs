//! Connections.

use std::ffi::{c_int, c_ulong};

use layers::via::{DISCRIMINATOR_MAX, Host, NIC_ADDRESS_BYTES, NetAddress as Address, Terms, ViaError};

use super::state::{time, via};
use super::types::{Handle, NetAddress, SUCCESS, ViAttributes, check, code, handle, load, number, store};

/// Bytes before the host's address.
pub(super) const HEAD: usize = size_of::<NetAddress>();

/// Bytes behind the head of a program's address.
pub(super) fn bytes_behind(at: *const NetAddress, from: usize, len: usize) -> Vec<u8> {
    // SAFETY: the head, which the caller has read, says that so many bytes follow; by vipl.h they do.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>().add(HEAD + from), len) }.to_vec()
}

/// Writes bytes behind the head of a program's address.
pub(super) fn put_behind(at: *mut NetAddress, from: usize, bytes: &[u8]) {
    // SAFETY: by vipl.h the program has room there for a host's address and the discriminator.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast::<u8>().add(HEAD + from), bytes.len()) }
}

/// Reads an address of the program's; `unknown` is what one of no process of ours gives.
fn address(at: *const NetAddress, unknown: ViaError) -> Result<Address, ViaError> {
    let head = load(at)?;
    if usize::from(head.host_len) != NIC_ADDRESS_BYTES {
        return Err(unknown);
    }
    if usize::from(head.discriminator_len) > DISCRIMINATOR_MAX {
        return Err(ViaError::InvalidParameter);
    }
    let host = bytes_behind(at, 0, head.host_len.into());
    let discriminator = bytes_behind(at, host.len(), head.discriminator_len.into());
    Ok(Address { host: Host::from_bytes(&host).ok_or(unknown)?, discriminator })
}

/// The two addresses that a VI is to be connected by.
fn both(local: *const NetAddress, remote: *const NetAddress) -> Result<(Address, Address), ViaError> {
    Ok((address(local, ViaError::InvalidParameter)?, address(remote, ViaError::NotReachable)?))
}

/// Tells the program of the other end's attributes.
fn tell(attributes: *mut ViAttributes, result: Result<Terms, ViaError>) -> c_int {
    match result {
        Ok(terms) => {
            store(attributes, ViAttributes::of_remote(terms));
            SUCCESS
        }
        Err(error) => code(Err(error)),
    }
}

/// `VipConnectWait`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipConnectWait(
    nic: Handle,
    local: *const NetAddress,
    timeout: c_ulong,
    remote: *mut NetAddress,
    attributes: *mut ViAttributes,
    connection: *mut Handle,
) -> c_int {
    let waited = || {
        check(remote)?;
        check(connection)?;
        let local = address(local, ViaError::InvalidParameter)?;
        let caller = via()?.wait_for_client(number(nic)?, &local, time(timeout))?;
        let host = caller.address.host.to_bytes();
        let discriminator = &caller.address.discriminator;
        let told = discriminator.len().min(local.discriminator.len());
        let head = NetAddress { host_len: host.len() as u16, discriminator_len: told as u16 };
        store(remote, head);
        put_behind(remote, 0, &host);
        put_behind(remote, host.len(), &discriminator[..told]);
        store(attributes, ViAttributes::of_remote(caller.terms));
        store(connection, handle(caller.connection));
        Ok(())
    };
    code(waited())
}

/// `VipConnectAccept`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipConnectAccept(connection: Handle, vi: Handle) -> c_int {
    code(number(connection).and_then(|connection| via()?.accept(connection, number(vi)?)))
}

/// `VipConnectReject`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipConnectReject(connection: Handle) -> c_int {
    code(number(connection).and_then(|connection| via()?.reject(connection)))
}

/// `VipConnectRequest`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipConnectRequest(
    vi: Handle,
    local: *const NetAddress,
    remote: *const NetAddress,
    timeout: c_ulong,
    attributes: *mut ViAttributes,
) -> c_int {
    let connected = number(vi).and_then(|vi| {
        let (local, remote) = both(local, remote)?;
        via()?.request(vi, &local, &remote, time(timeout))
    });
    tell(attributes, connected)
}

/// `VipDisconnect`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipDisconnect(vi: Handle) -> c_int {
    code(number(vi).and_then(|vi| via()?.disconnect(vi)))
}

/// `VipConnectPeerRequest`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipConnectPeerRequest(
    vi: Handle,
    local: *const NetAddress,
    remote: *const NetAddress,
    timeout: c_ulong,
) -> c_int {
    let asked = number(vi).and_then(|vi| {
        let (local, remote) = both(local, remote)?;
        via()?.request_equal(vi, &local, &remote, time(timeout))
    });
    code(asked)
}

/// `VipConnectPeerDone`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipConnectPeerDone(vi: Handle, attributes: *mut ViAttributes) -> c_int {
    tell(attributes, number(vi).and_then(|vi| via()?.equal_done(vi)))
}

/// `VipConnectPeerWait`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipConnectPeerWait(vi: Handle, attributes: *mut ViAttributes) -> c_int {
    tell(attributes, number(vi).and_then(|vi| via()?.equal_wait(vi)))
}
