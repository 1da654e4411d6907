//! Keys of registrations.

use fabric::Description;

use crate::job::plumbing::random_bytes;

/// A key that nobody can guess, as long as the provider's are. `None`: the kernel has no random bytes.
pub(super) fn draw(description: &Description) -> Option<u64> {
    let key = u64::from_le_bytes(random_bytes().ok()?);
    let bits = (8 * description.key_bytes).min(64) as u32;
    Some(key.checked_shr(64 - bits).unwrap_or(0))
}
