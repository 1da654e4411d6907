//! The collectives that wait for their end.

use bytemuck::Pod;
use engine::collective::{Collective, Elements, Function, Reduction};

use super::Team;
use super::buffers::Buffers;
use crate::api::collective::reduction::{BuiltIn, Combine, Element};
use crate::base::error::Error;

/// Bytes of a slice of plain data, of which there is any.
pub(super) fn bytes_of<T: Pod>(values: &[T]) -> u64 {
    const { assert!(size_of::<T>() > 0, "values of no size are nothing to send") };
    size_of_val(values) as u64
}

pub(super) fn expect_len(what: &'static str, given: usize, expected: usize) -> Result<(), Error> {
    if given == expected {
        return Ok(());
    }
    Err(Error::Length { what, given: given as u64, expected: expected as u64 })
}

/// The unit of a collective's arguments.
pub(super) const FROM: &str = "values in `from`";
const INTO: &str = "values in `into`";

/// A reduction of these, by a function of the caller's.
pub(super) fn own_elements<T: Pod>(values: &[T]) -> Elements {
    let bytes = size_of::<T>() as u64;
    Elements { count: bytes_of(values) / bytes, bytes, function: Function::Own, commutative: false }
}

/// Where nothing is combined.
fn nothing<T>(_: &mut [T], _: &[T]) {}

impl Team {
    /// Waits until every member has called it.
    ///
    /// Other than [`Node::barrier`](crate::Node::barrier) it waits for no puts.
    ///
    /// # Errors
    /// [`Error::PeerLost`] when a member cannot come any more, then and ever after; [`Error::Team`] and
    /// [`Error::Differ`]; [`Error::Timeout`]; [`Error::InHandler`]; and at the first contact with a member
    /// what [`Node::connect`](crate::Node::connect) says.
    pub fn barrier(&self) -> Result<(), Error> {
        let buffers = Buffers { input: None, output: &mut [], scratch: &mut [] };
        self.run::<u8>(&Collective::Barrier, buffers, &mut nothing)
    }

    /// Gives the root's values to all: each member's `values` are the same afterwards.
    ///
    /// # Errors
    /// As for [`Team::barrier`], and [`Error::NoSuchRoot`]. After an error, here and below, what
    /// would have been the result is unspecified.
    pub fn broadcast<T: Pod>(&self, values: &mut [T], root: u32) -> Result<(), Error> {
        self.check(root)?;
        let what = Collective::Broadcast { root, len: bytes_of(values) };
        self.run(&what, Buffers { input: None, output: values, scratch: &mut [] }, &mut nothing)
    }

    /// Gives the root as many values of each member, in the order of members. `into` must have room for them
    /// at the root, and is not used elsewhere.
    ///
    /// # Errors
    /// As for [`Team::broadcast`], and [`Error::Length`].
    pub fn gather<T: Pod>(&self, from: &[T], into: &mut [T], root: u32) -> Result<(), Error> {
        self.check(root)?;
        if root == self.rank() {
            expect_len(INTO, into.len(), from.len() * self.size() as usize)?;
        }
        let what = Collective::Gather { root, block: bytes_of(from) };
        self.run(&what, Buffers { input: Some(from), output: into, scratch: &mut [] }, &mut nothing)
    }

    /// Gives each member as many of the root's values, the first ones to the first. `from` must be as long at
    /// the root, and is not used elsewhere.
    ///
    /// # Errors
    /// As for [`Team::gather`].
    pub fn scatter<T: Pod>(&self, from: &[T], into: &mut [T], root: u32) -> Result<(), Error> {
        self.check(root)?;
        if root == self.rank() {
            expect_len(FROM, from.len(), into.len() * self.size() as usize)?;
        }
        let what = Collective::Scatter { root, block: bytes_of(into) };
        self.run(&what, Buffers { input: Some(from), output: into, scratch: &mut [] }, &mut nothing)
    }

    /// Gives everyone as many values of each member, in the order of members.
    ///
    /// # Errors
    /// As for [`Team::barrier`], and [`Error::Length`].
    pub fn all_gather<T: Pod>(&self, from: &[T], into: &mut [T]) -> Result<(), Error> {
        expect_len(INTO, into.len(), from.len() * self.size() as usize)?;
        let what = Collective::AllGather { block: bytes_of(from) };
        self.run(&what, Buffers { input: Some(from), output: into, scratch: &mut [] }, &mut nothing)
    }

    /// Gives each member as many values of each: of `from` the first ones go to the first member, and `into`
    /// gets what the first member has for this one first.
    ///
    /// # Errors
    /// As for [`Team::all_gather`]; both lengths must be the same, and as many values for each member.
    pub fn all_to_all<T: Pod>(&self, from: &[T], into: &mut [T]) -> Result<(), Error> {
        let each = from.len().div_ceil(self.size() as usize);
        expect_len(FROM, from.len(), each * self.size() as usize)?;
        expect_len(INTO, into.len(), from.len())?;
        let what = Collective::AllToAll { block: bytes_of(&from[..each]) };
        self.run(&what, Buffers { input: Some(from), output: into, scratch: &mut [] }, &mut nothing)
    }

    /// As [`Team::all_to_all`], with `sends[i]` values for member `i`, and `receives[i]` from it, one after
    /// the other.
    ///
    /// # Errors
    /// As for [`Team::all_gather`]; there must be a number for each member, and they must add up to the
    /// values.
    pub fn all_to_all_v<T: Pod>(
        &self,
        from: &[T],
        sends: &[usize],
        into: &mut [T],
        receives: &[usize],
    ) -> Result<(), Error> {
        let what = self.all_to_all_v_of(from, sends, into, receives)?;
        self.run(&what, Buffers { input: Some(from), output: into, scratch: &mut [] }, &mut nothing)
    }

    pub(super) fn all_to_all_v_of<T: Pod>(
        &self,
        from: &[T],
        sends: &[usize],
        into: &[T],
        receives: &[usize],
    ) -> Result<Collective, Error> {
        let members = self.size() as usize;
        let ends = [(FROM, from, "counts in `sends`", sends), (INTO, into, "counts in `receives`", receives)];
        for (what, values, what_counts, counts) in ends {
            expect_len(what_counts, counts.len(), members)?;
            let all = counts.iter().try_fold(0usize, |all, count| all.checked_add(*count));
            expect_len(what, values.len(), all.unwrap_or(usize::MAX))?;
        }
        bytes_of(from);
        let bytes = |counts: &[usize]| counts.iter().map(|count| (count * size_of::<T>()) as u64).collect();
        Ok(Collective::AllToAllV { sends: bytes(sends), receives: bytes(receives) })
    }

    /// Combines all members' values, each with those at the same place, and gives the root the result. `into`
    /// must be as long as `from` there, and is not used elsewhere.
    ///
    /// # Errors
    /// As for [`Team::gather`]; [`Error::NoReduction`] where the type has no such reduction, and then nothing
    /// is sent.
    pub fn reduce<T: Element>(
        &self,
        from: &[T],
        into: &mut [T],
        root: u32,
        reduction: Reduction,
    ) -> Result<(), Error> {
        let (mut built_in, elements) = BuiltIn::of::<T>(reduction, from.len() as u64)?;
        self.reduce_by(from, into, root, elements, &mut built_in)
    }

    /// As [`Team::reduce`], by a function of the caller's, which combines each value of its first argument
    /// with that at the same place of its second, and leaves the result in the first. It must be associative,
    /// and the same at all members; operands are combined in the order of members, so that it need not be
    /// commutative. It runs on this thread, for parts of the values at a time. A panic in it gives the team
    /// up.
    ///
    /// # Errors
    /// As for [`Team::gather`].
    pub fn reduce_with<T: Pod>(
        &self,
        from: &[T],
        into: &mut [T],
        root: u32,
        mut combine: impl FnMut(&mut [T], &[T]),
    ) -> Result<(), Error> {
        self.reduce_by(from, into, root, own_elements(from), &mut combine)
    }

    pub(super) fn reduce_by<T: Pod>(
        &self,
        from: &[T],
        into: &mut [T],
        root: u32,
        elements: Elements,
        combine: &mut dyn Combine<T>,
    ) -> Result<(), Error> {
        self.check(root)?;
        if root == self.rank() {
            expect_len(INTO, into.len(), from.len())?;
        }
        let what = Collective::Reduce { root, elements };
        let buffers = Buffers { input: Some(from), output: &mut *into, scratch: &mut [] };
        self.run(&what, buffers, combine)?;
        if self.size() == 1 {
            combine.settle(into);
        }
        Ok(())
    }

    /// Combines all members' values, each with those at the same place, and leaves the result in everyone's.
    /// The result is the same at all of them, but for which NaN or zero it is where their processors differ.
    ///
    /// # Errors
    /// As for [`Team::barrier`]; [`Error::NoReduction`] where the type has no such reduction, and then
    /// nothing is sent.
    pub fn all_reduce<T: Element>(&self, values: &mut [T], reduction: Reduction) -> Result<(), Error> {
        let (mut built_in, elements) = BuiltIn::of::<T>(reduction, values.len() as u64)?;
        self.all_reduce_by(values, elements, &mut built_in)
    }

    /// As [`Team::all_reduce`], by a function of the caller's as in [`Team::reduce_with`].
    ///
    /// # Errors
    /// As for [`Team::barrier`].
    pub fn all_reduce_with<T: Pod>(
        &self,
        values: &mut [T],
        mut combine: impl FnMut(&mut [T], &[T]),
    ) -> Result<(), Error> {
        self.all_reduce_by(values, own_elements(values), &mut combine)
    }

    pub(super) fn all_reduce_by<T: Pod>(
        &self,
        values: &mut [T],
        elements: Elements,
        combine: &mut dyn Combine<T>,
    ) -> Result<(), Error> {
        let what = Collective::AllReduce { elements };
        self.run(&what, Buffers { input: None, output: &mut *values, scratch: &mut [] }, combine)?;
        if self.size() == 1 {
            combine.settle(values);
        }
        Ok(())
    }
}
