//! Places in the tables of registration, which name each other by number.

/// No place.
pub(super) const NONE: u32 = u32::MAX;

/// Adds an item, after making room for a `1 / spare` of what there is where there is none: doubling would
/// leave half of a large table empty. Returns its place.
pub(super) fn push<T>(all: &mut Vec<T>, item: T, spare: usize) -> u32 {
    if all.len() == all.capacity() {
        all.reserve_exact(all.len() / spare + 16);
    }
    all.push(item);
    all.len() as u32 - 1
}
