//! The system's pages.

/// Bytes of a page: this library runs on systems with pages of this size only.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes of a huge page.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;
