//! Places of one's own rank that a payload is copied to, and how much they take.

use std::marker::PhantomData;

use bytemuck::Pod;

use crate::api::heap::HeapArray;
use crate::base::pointers::{GlobalPtr, Remote};

/// A place, and how many bytes there are for a payload: what
/// [`Call::copy_payload_to`](crate::Call::copy_payload_to) takes.
///
/// An array is room for as many bytes as it has. A pointer or an address alone is room for all that lies
/// behind; [`Room::new`] says how many bytes are to be used.
#[derive(Clone, Copy, Debug)]
pub struct Room<'a> {
    at: Remote,
    bytes: u64,
    array: PhantomData<&'a ()>,
}

impl Room<'_> {
    /// Room for so many bytes at a place.
    pub fn new(at: impl Into<Remote>, bytes: u64) -> Self {
        Room { at: at.into(), bytes, array: PhantomData }
    }

    /// Where it begins.
    pub fn at(&self) -> Remote {
        self.at
    }

    /// Bytes that it has; [`u64::MAX`] where nobody has said how many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<'a, T: Pod> From<&'a HeapArray<T>> for Room<'a> {
    fn from(array: &'a HeapArray<T>) -> Room<'a> {
        Room::new(array.ptr(0), (array.len() * size_of::<T>()) as u64)
    }
}

impl<T> From<GlobalPtr<T>> for Room<'_> {
    fn from(at: GlobalPtr<T>) -> Self {
        Room::new(at, u64::MAX)
    }
}

impl From<Remote> for Room<'_> {
    fn from(at: Remote) -> Self {
        Room::new(at, u64::MAX)
    }
}
