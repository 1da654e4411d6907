//! Reductions of elements whose type, or size, is known at run time only.

use engine::collective::{ElementType, Elements, Function, Reduction};

use super::nonblocking::boxed;
use super::{Team, TeamEvent};
use crate::api::collective::reduction::BuiltInOf;
use crate::base::error::Error;

/// The unit of a reduction's arguments.
const FROM: &str = "bytes in `from`";
const VALUES: &str = "bytes in `values`";

/// How many elements of so many bytes these are.
fn count(what: &'static str, given: usize, each: usize) -> Result<u64, Error> {
    match given.checked_rem(each) {
        Some(0) => Ok((given / each) as u64),
        _ => Err(Error::PartOfElement { what, given: given as u64, each: each as u64 }),
    }
}

/// A reduction of these bytes, and how it combines them.
fn built_in(
    what: &'static str,
    given: usize,
    of: ElementType,
    reduction: Reduction,
) -> Result<(BuiltInOf, Elements), Error> {
    count(what, given, of.bytes()).and_then(|count| BuiltInOf::new(of, reduction, count))
}

/// A reduction of these bytes by a function of the caller's.
fn own(what: &'static str, given: usize, each: usize) -> Result<Elements, Error> {
    let count = count(what, given, each)?;
    Ok(Elements { count, bytes: each as u64, function: Function::Own, commutative: false })
}

/// Reductions of bytes, for callers whose elements' type, or size, is known at run time only. The bytes may
/// lie at any address. Members may mix these forms with those of the same type that the compiler knows.
impl Team {
    /// As [`Team::reduce`], of the elements that `from` has the bytes of.
    ///
    /// # Errors
    /// As for [`Team::reduce`], and [`Error::PartOfElement`] where the bytes are no whole number of elements.
    pub fn reduce_bytes(
        &self,
        from: &[u8],
        into: &mut [u8],
        root: u32,
        of: impl Into<ElementType>,
        reduction: Reduction,
    ) -> Result<(), Error> {
        let (mut built_in, elements) = built_in(FROM, from.len(), of.into(), reduction)?;
        self.reduce_by(from, into, root, elements, &mut built_in)
    }

    /// As [`Team::reduce_with`], of elements of `each` bytes. The function gets whole elements, as many of
    /// the one as of the other, at any address.
    ///
    /// # Errors
    /// As for [`Team::gather`], and [`Error::PartOfElement`] where the bytes are no whole number of elements,
    /// or `each` is 0.
    pub fn reduce_bytes_with(
        &self,
        from: &[u8],
        into: &mut [u8],
        root: u32,
        each: usize,
        mut combine: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<(), Error> {
        let elements = own(FROM, from.len(), each)?;
        self.reduce_by(from, into, root, elements, &mut combine)
    }

    /// As [`Team::all_reduce`], of the elements that `values` has the bytes of.
    ///
    /// # Errors
    /// As for [`Team::all_reduce`], and [`Error::PartOfElement`] where the bytes are no whole number of
    /// elements.
    pub fn all_reduce_bytes(
        &self,
        values: &mut [u8],
        of: impl Into<ElementType>,
        reduction: Reduction,
    ) -> Result<(), Error> {
        let (mut built_in, elements) = built_in(VALUES, values.len(), of.into(), reduction)?;
        self.all_reduce_by(values, elements, &mut built_in)
    }

    /// As [`Team::all_reduce_with`], of elements of `each` bytes, by a function as in
    /// [`Team::reduce_bytes_with`].
    ///
    /// # Errors
    /// As for [`Team::barrier`], and [`Error::PartOfElement`] where the bytes are no whole number of
    /// elements, or `each` is 0.
    pub fn all_reduce_bytes_with(
        &self,
        values: &mut [u8],
        each: usize,
        mut combine: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<(), Error> {
        let elements = own(VALUES, values.len(), each)?;
        self.all_reduce_by(values, elements, &mut combine)
    }

    /// [`Team::reduce_bytes`]: the result is the root's.
    pub fn reduce_bytes_nb(
        &self,
        from: Vec<u8>,
        root: u32,
        of: impl Into<ElementType>,
        reduction: Reduction,
    ) -> TeamEvent<u8> {
        let by = built_in(FROM, from.len(), of.into(), reduction);
        self.reduce_by_nb(from, root, boxed(by))
    }

    /// [`Team::reduce_bytes_with`]: the result is the root's. The function runs as a handler does, on any
    /// thread.
    pub fn reduce_bytes_with_nb(
        &self,
        from: Vec<u8>,
        root: u32,
        each: usize,
        combine: impl FnMut(&mut [u8], &[u8]) + Send + 'static,
    ) -> TeamEvent<u8> {
        let by = own(FROM, from.len(), each).map(|elements| (combine, elements));
        self.reduce_by_nb(from, root, boxed(by))
    }

    /// [`Team::all_reduce_bytes`].
    pub fn all_reduce_bytes_nb(
        &self,
        values: Vec<u8>,
        of: impl Into<ElementType>,
        reduction: Reduction,
    ) -> TeamEvent<u8> {
        let by = built_in(VALUES, values.len(), of.into(), reduction);
        self.all_reduce_by_nb(values, boxed(by))
    }

    /// [`Team::all_reduce_bytes_with`]. The function runs as a handler does, on any thread.
    pub fn all_reduce_bytes_with_nb(
        &self,
        values: Vec<u8>,
        each: usize,
        combine: impl FnMut(&mut [u8], &[u8]) + Send + 'static,
    ) -> TeamEvent<u8> {
        let by = own(VALUES, values.len(), each).map(|elements| (combine, elements));
        self.all_reduce_by_nb(values, boxed(by))
    }
}
