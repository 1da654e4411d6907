//! NICs, protection tags, memory and VIs.

use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::sync::Arc;

use layers::via::{
    AsyncError, CQS_MAX, DESCRIPTORS_MAX, DISCRIMINATOR_MAX, EAGER_MAX, ENTRIES_MAX, ErrorHandler,
    MemoryAttributes, NIC_ADDRESS_BYTES, PTAGS_MAX, REGION_BYTES_MAX, REGIONS_MAX, RELIABLE_DELIVERY,
    RELIABLE_RECEPTION, TRANSFER_MAX, UNRELIABLE, VIS_MAX, ViaError, is_device,
};

use super::state::{open, own_address, via};
use super::types::{
    Handle, MemAttributes, NicAttributes, VIP_ERROR_HANDLER, ViAttributes, VipErrorDescriptor, check, code,
    handle, load, number, number_or_none, store, text,
};

/// The name that a query gives: what programs open and what they are told need not be the same.
const NAME: &[u8] = b"standpipe";

/// The program's word for its own handlers, which any thread may hand back to it.
#[derive(Clone, Copy)]
pub(super) struct Context(*mut c_void);

// SAFETY: nobody here follows the pointer; the program takes it on whichever thread its handler runs.
unsafe impl Send for Context {}
// SAFETY: as above: it is a word that is only ever handed back.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn new(word: *mut c_void) -> Context {
        Context(word)
    }

    pub(super) fn word(self) -> *mut c_void {
        self.0
    }
}

/// `VipOpenNic`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipOpenNic(name: *const c_char, nic: *mut Handle) -> c_int {
    let opened = || {
        check(nic)?;
        if !text(name)?.is_some_and(is_device) {
            return Err(ViaError::InvalidParameter);
        }
        store(nic, handle(open()?.open_nic()));
        Ok(())
    };
    code(opened())
}

/// `VipCloseNic`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipCloseNic(nic: Handle) -> c_int {
    code(number(nic).and_then(|nic| via()?.close_nic(nic)))
}

/// `VipQueryNic`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipQueryNic(nic: Handle, attributes: *mut NicAttributes) -> c_int {
    let asked = || {
        let (via, nic) = (via()?, number(nic)?);
        check(attributes)?;
        via.check_nic(nic)?;
        let mut name = [0; 64];
        name.iter_mut().zip(NAME).for_each(|(to, from)| *to = from.cast_signed());
        store(
            attributes,
            NicAttributes {
                name,
                hardware_version: 1,
                provider_version: 0x0001_0000,
                nic_address_len: NIC_ADDRESS_BYTES as u16,
                local_nic_address: own_address(via).as_ptr(),
                thread_safe: 1,
                max_discriminator_len: DISCRIMINATOR_MAX as u16,
                max_register_bytes: REGION_BYTES_MAX,
                max_register_regions: REGIONS_MAX as c_ulong,
                max_register_block_bytes: REGION_BYTES_MAX,
                max_vi: VIS_MAX as c_ulong,
                max_descriptors_per_queue: DESCRIPTORS_MAX as c_ulong,
                max_segments_per_desc: layers::via::descriptor::SEGMENTS_MAX as c_ulong,
                max_cq: CQS_MAX as c_ulong,
                max_cq_entries: ENTRIES_MAX as c_ulong,
                max_transfer_size: TRANSFER_MAX,
                native_mtu: EAGER_MAX,
                max_ptags: PTAGS_MAX as c_ulong,
                reliability_level_support: UNRELIABLE | RELIABLE_DELIVERY | RELIABLE_RECEPTION,
                rdma_read_support: RELIABLE_DELIVERY | RELIABLE_RECEPTION,
            },
        );
        Ok(())
    };
    code(asked())
}

/// `VipErrorCallback`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipErrorCallback(nic: Handle, context: *mut c_void, handler: VIP_ERROR_HANDLER) -> c_int {
    let context = Context::new(context);
    let called = handler.map(|handler| -> ErrorHandler {
        Arc::new(move |error: AsyncError| {
            let mut told = VipErrorDescriptor {
                nic: handle(error.nic),
                vi: handle(error.vi),
                cq: handle(error.cq),
                descriptor: std::ptr::with_exposed_provenance_mut(error.descriptor as usize),
                operation: error.operation.into(),
                resource: error.resource as u32,
                code: error.code as u32,
            };
            handler(context.word(), &raw mut told);
        })
    });
    code(number(nic).and_then(|nic| via()?.set_error_handler(nic, called)))
}

/// `VipQuerySystemManagementInfo`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipQuerySystemManagementInfo(
    nic: Handle,
    _info_type: c_ulong,
    _info: *mut c_void,
) -> c_int {
    code(number(nic).and_then(|nic| via()?.check_nic(nic)).and(Err(ViaError::NotSupported)))
}

/// `VipCreatePtag`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipCreatePtag(nic: Handle, ptag: *mut Handle) -> c_int {
    let made = || {
        check(ptag)?;
        store(ptag, handle(via()?.create_ptag(number(nic)?)?));
        Ok(())
    };
    code(made())
}

/// `VipDestroyPtag`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipDestroyPtag(nic: Handle, ptag: Handle) -> c_int {
    code(number(nic).and_then(|nic| via()?.destroy_ptag(nic, number(ptag)?)))
}

/// `VipRegisterMem`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipRegisterMem(
    nic: Handle,
    addr: *mut c_void,
    len: c_ulong,
    attributes: *const MemAttributes,
    memory: *mut u32,
) -> c_int {
    let registered = || {
        check(memory)?;
        let attributes = match attributes.is_null() {
            true => MemoryAttributes::default(),
            false => load(attributes)?.attributes()?,
        };
        let addr = addr.expose_provenance() as u64;
        store(memory, via()?.register(number(nic)?, (addr, len), attributes)?);
        Ok(())
    };
    code(registered())
}

/// `VipDeregisterMem`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipDeregisterMem(nic: Handle, addr: *mut c_void, memory: u32) -> c_int {
    code(number(nic).and_then(|nic| via()?.deregister(nic, addr.addr() as u64, memory)))
}

/// `VipQueryMem`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipQueryMem(
    nic: Handle,
    addr: *mut c_void,
    memory: u32,
    attributes: *mut MemAttributes,
) -> c_int {
    let asked = || {
        check(attributes)?;
        let found = via()?.memory_attributes(number(nic)?, addr.addr() as u64, memory)?;
        store(attributes, MemAttributes::of(found));
        Ok(())
    };
    code(asked())
}

/// `VipSetMemAttributes`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipSetMemAttributes(
    nic: Handle,
    addr: *mut c_void,
    memory: u32,
    attributes: *const MemAttributes,
) -> c_int {
    let set = || {
        let attributes = load(attributes)?.attributes()?;
        via()?.set_memory_attributes(number(nic)?, (addr.addr() as u64, memory), attributes)
    };
    code(set())
}

/// `VipCreateVi`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipCreateVi(
    nic: Handle,
    attributes: *const ViAttributes,
    send_cq: Handle,
    receive_cq: Handle,
    vi: *mut Handle,
) -> c_int {
    let made = || {
        check(vi)?;
        let attributes = load(attributes)?.attributes()?;
        let cqs = (number_or_none(send_cq)?, number_or_none(receive_cq)?);
        store(vi, handle(via()?.create_vi(number(nic)?, attributes, cqs)?));
        Ok(())
    };
    code(made())
}

/// `VipDestroyVi`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipDestroyVi(vi: Handle) -> c_int {
    code(number(vi).and_then(|vi| via()?.destroy_vi(vi)))
}

/// `VipQueryVi`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipQueryVi(
    vi: Handle,
    state: *mut c_int,
    attributes: *mut ViAttributes,
    is_send_empty: *mut c_int,
    is_receive_empty: *mut c_int,
) -> c_int {
    let asked = || {
        let found = via()?.query_vi(number(vi)?)?;
        store(state, found.state as c_int);
        store(attributes, ViAttributes::of(found.attributes));
        store(is_send_empty, found.is_send_empty.into());
        store(is_receive_empty, found.is_receive_empty.into());
        Ok(())
    };
    code(asked())
}

/// `VipSetViAttributes`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipSetViAttributes(vi: Handle, attributes: *const ViAttributes) -> c_int {
    code(number(vi).and_then(|vi| via()?.set_vi_attributes(vi, load(attributes)?.attributes()?)))
}

/// `VipGetUserData`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipGetUserData(vi: Handle) -> *mut c_void {
    let word = number(vi).and_then(|vi| via()?.user_data(vi)).unwrap_or_default();
    std::ptr::with_exposed_provenance_mut(word as usize)
}

/// `VipSetUserData`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipSetUserData(vi: Handle, word: *mut c_void) -> c_int {
    let word = word.expose_provenance() as u64;
    code(number(vi).and_then(|vi| via()?.set_user_data(vi, word)))
}
