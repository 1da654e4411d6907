//! What C has of devices and contexts: addresses.

/// A device, to C.
#[allow(non_camel_case_types, reason = "its name in pm.h")]
#[derive(Debug)]
pub struct pmDevice {
    pub(super) _place: u8,
}

/// A context, to C.
#[allow(non_camel_case_types, reason = "its name in pm.h")]
#[derive(Debug)]
pub struct pmContext {
    pub(super) _place: u8,
}
