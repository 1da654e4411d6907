//! Handlers that do nothing, for programs that want none.

/// A handler that does nothing, of `am.h`.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_dummy() {}

/// The same, of `gam.h`.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_dummy() {}

/// Both.
pub(super) const ALL: [extern "C" fn(); 2] = [am_dummy, gam_dummy];
