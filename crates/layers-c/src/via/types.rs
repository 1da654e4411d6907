//! VIPL's types, as C lays them out.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_ushort, c_void};

use layers::via::{Attributes, MemoryAttributes, Terms, ViaError};

/// Any handle but one of memory.
pub(super) type Handle = *mut c_void;

/// `VIP_SUCCESS`.
pub(super) const SUCCESS: c_int = 0;

/// Handles are multiples of this.
const STEP: usize = 16;

/// `VIP_NIC_ATTRIBUTES`.
#[repr(C)]
#[derive(Debug)]
pub struct NicAttributes {
    pub(super) name: [c_char; 64],
    pub(super) hardware_version: c_ulong,
    pub(super) provider_version: c_ulong,
    pub(super) nic_address_len: c_ushort,
    pub(super) local_nic_address: *const u8,
    pub(super) thread_safe: c_int,
    pub(super) max_discriminator_len: c_ushort,
    pub(super) max_register_bytes: c_ulong,
    pub(super) max_register_regions: c_ulong,
    pub(super) max_register_block_bytes: c_ulong,
    pub(super) max_vi: c_ulong,
    pub(super) max_descriptors_per_queue: c_ulong,
    pub(super) max_segments_per_desc: c_ulong,
    pub(super) max_cq: c_ulong,
    pub(super) max_cq_entries: c_ulong,
    pub(super) max_transfer_size: c_ulong,
    pub(super) native_mtu: c_ulong,
    pub(super) max_ptags: c_ulong,
    pub(super) reliability_level_support: c_ushort,
    pub(super) rdma_read_support: c_ushort,
}

/// `VIP_VI_ATTRIBUTES`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ViAttributes {
    reliability: c_ushort,
    max_transfer: c_ulong,
    qos: *mut c_void,
    ptag: Handle,
    allows_write: c_int,
    allows_read: c_int,
}

/// `VIP_MEM_ATTRIBUTES`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemAttributes {
    ptag: Handle,
    allows_write: c_int,
    allows_read: c_int,
}

/// `VIP_NET_ADDRESS`; the host's address and the discriminator lie behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetAddress {
    pub(super) host_len: c_ushort,
    pub(super) discriminator_len: c_ushort,
}

/// `VIP_ERROR_DESCRIPTOR`.
#[repr(C)]
#[derive(Debug)]
pub struct VipErrorDescriptor {
    pub(super) nic: Handle,
    pub(super) vi: Handle,
    pub(super) cq: Handle,
    pub(super) descriptor: *mut c_void,
    pub(super) operation: c_ulong,
    pub(super) resource: c_uint,
    pub(super) code: c_uint,
}

/// `VIP_ERROR_HANDLER`.
#[allow(non_camel_case_types, reason = "its name in vipl.h")]
pub type VIP_ERROR_HANDLER = Option<extern "C" fn(*mut c_void, *mut VipErrorDescriptor)>;
/// `VIP_VI_CALLBACK`.
#[allow(non_camel_case_types, reason = "its name in vipl.h")]
pub type VIP_VI_CALLBACK = Option<extern "C" fn(*mut c_void, Handle, Handle, *mut c_void)>;
/// `VIP_CQ_CALLBACK`.
#[allow(non_camel_case_types, reason = "its name in vipl.h")]
pub type VIP_CQ_CALLBACK = Option<extern "C" fn(*mut c_void, Handle, Handle, c_int)>;

const _: () = assert!(
    size_of::<NicAttributes>() == 200
        && size_of::<ViAttributes>() == 40
        && size_of::<MemAttributes>() == 16
        && size_of::<VipErrorDescriptor>() == 48,
    "they are as the headers of the time have them"
);

/// The code of a call.
pub(super) fn code(result: Result<(), ViaError>) -> c_int {
    result.map_or_else(|error| error as c_int, |()| SUCCESS)
}

/// A number, as C has it.
pub(super) fn handle(number: u32) -> Handle {
    std::ptr::without_provenance_mut(number as usize * STEP)
}

/// The number that a handle of C's stands for; 0 for NULL.
pub(super) fn number_or_none(handle: Handle) -> Result<u32, ViaError> {
    let addr = handle.addr();
    if !addr.is_multiple_of(STEP) {
        return Err(ViaError::InvalidParameter);
    }
    u32::try_from(addr / STEP).map_err(|_| ViaError::InvalidParameter)
}

/// The same, of a handle that may not be NULL.
pub(super) fn number(handle: Handle) -> Result<u32, ViaError> {
    number_or_none(handle)
        .and_then(|number| if number == 0 { Err(ViaError::InvalidParameter) } else { Ok(number) })
}

/// The tag that a program names.
fn ptag(handle: Handle) -> Result<u32, ViaError> {
    number_or_none(handle).map_err(|_| ViaError::InvalidPtag)
}

/// Reads a value of the program's.
pub(super) fn load<T: Copy>(at: *const T) -> Result<T, ViaError> {
    if at.is_null() {
        return Err(ViaError::InvalidParameter);
    }
    // SAFETY: it is not NULL, and by vipl.h it points to such a value of the program's.
    Ok(unsafe { at.read_unaligned() })
}

/// A text of the program's; `None` where it is no UTF-8, as none of ours is.
pub(super) fn text<'a>(at: *const c_char) -> Result<Option<&'a str>, ViaError> {
    check(at.cast_mut())?;
    // SAFETY: it is not NULL, and by vipl.h it ends with a zero byte, and the program keeps it meanwhile.
    Ok(unsafe { CStr::from_ptr(at) }.to_str().ok())
}

/// Refuses a place for a result that is none.
pub(super) fn check<T>(at: *mut T) -> Result<(), ViaError> {
    if at.is_null() { Err(ViaError::InvalidParameter) } else { Ok(()) }
}

/// Writes where the program wants a result, if it has said where.
pub(super) fn store<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: it is not NULL, and by vipl.h it points to such a value of the program's.
        unsafe { at.write_unaligned(value) }
    }
}

impl ViAttributes {
    pub(super) fn attributes(self) -> Result<Attributes, ViaError> {
        let terms = Terms {
            reliability: self.reliability,
            max_transfer: self.max_transfer,
            qos: self.qos.addr() as u64,
            allows_write: self.allows_write != 0,
            allows_read: self.allows_read != 0,
        };
        Ok(Attributes { terms, ptag: ptag(self.ptag)? })
    }

    pub(super) fn of(attributes: Attributes) -> ViAttributes {
        let Attributes { terms, ptag } = attributes;
        ViAttributes {
            reliability: terms.reliability,
            max_transfer: terms.max_transfer as c_ulong,
            qos: std::ptr::without_provenance_mut(terms.qos as usize),
            ptag: handle(ptag),
            allows_write: terms.allows_write.into(),
            allows_read: terms.allows_read.into(),
        }
    }

    /// The attributes of the other end, without its tag.
    pub(super) fn of_remote(terms: Terms) -> ViAttributes {
        ViAttributes::of(Attributes { terms, ptag: 0 })
    }
}

impl MemAttributes {
    pub(super) fn attributes(self) -> Result<MemoryAttributes, ViaError> {
        Ok(MemoryAttributes {
            ptag: ptag(self.ptag)?,
            allows_write: self.allows_write != 0,
            allows_read: self.allows_read != 0,
        })
    }

    pub(super) fn of(attributes: MemoryAttributes) -> MemAttributes {
        MemAttributes {
            ptag: handle(attributes.ptag),
            allows_write: attributes.allows_write.into(),
            allows_read: attributes.allows_read.into(),
        }
    }
}
