//! A collective's memory at this process: where it lies, and the steps that are done in it.

use std::ops::Range;

use bytemuck::Pod;
use engine::collective::{Memory, Span, Step};
use engine::node::{Kept, Memories};
use engine::{MemId, Place};

use crate::api::collective::reduction::Combine;
use crate::transport::peers::Near;

/// The memory of a collective. The engine's peers read it, and the engine writes it, between the steps that
/// are done here.
pub(super) struct Buffers<'a, T> {
    /// `None`: what is given lies where the result will be.
    pub(super) input: Option<&'a [T]>,
    pub(super) output: &'a mut [T],
    pub(super) scratch: &'a mut [T],
}

impl<T: Pod> Buffers<'_, T> {
    /// Where they lie, as the engine names it.
    pub(super) fn places(&mut self) -> Memories {
        let at = |address: usize| Place::new(MemId::Space, address as u64);
        let output = at(self.output.as_mut_ptr().expose_provenance());
        let input = self.input.map_or(output, |input| at(input.as_ptr().expose_provenance()));
        Memories::At { input, output, scratch: at(self.scratch.as_mut_ptr().expose_provenance()) }
    }

    /// Whether others on this host reach what is given, or gotten, with the kernel's help only.
    pub(super) fn is_hidden(&self, itself: &Near, memory: Memory) -> bool {
        let values: &[T] = match (memory, self.input) {
            (Memory::In, Some(input)) => input,
            (Memory::In, None) | (Memory::Out, _) => self.output,
            // There is none yet.
            (Memory::Scratch, _) => return false,
        };
        let place = Place::new(MemId::Space, values.as_ptr().addr() as u64);
        itself.in_heap(place, size_of_val(values) as u64).is_none()
    }

    /// Does a step.
    pub(super) fn apply(&mut self, step: Step, combine: &mut dyn Combine<T>) {
        match step {
            // Parts of what is only moved may end within a value.
            Step::Copy { from, into } => {
                self.bytes().with(into, from, &mut |into, from| into.copy_from_slice(from))
            }
            Step::Combine { into, from } => {
                self.with(into, from, &mut |into, from| combine.combine(into, from))
            }
            _ => unreachable!("the engine does all others"),
        }
    }

    fn bytes(&mut self) -> Buffers<'_, u8> {
        Buffers {
            input: self.input.map(bytemuck::cast_slice),
            output: bytemuck::cast_slice_mut(self.output),
            scratch: bytemuck::cast_slice_mut(self.scratch),
        }
    }

    /// The part of what is given that is this member's, unless the results take its place, and the part for
    /// these.
    pub(super) fn operands(&mut self, own: Span, into: Span) -> (Option<&[T]>, &mut [T]) {
        assert!(own.memory == Memory::In, "plans fold what is given");
        let given = self.input.map(|input| &input[elements::<T>(own)]);
        let results = match into.memory {
            Memory::Out => &mut *self.output,
            Memory::Scratch => &mut *self.scratch,
            Memory::In => unreachable!("no plan writes what is given"),
        };
        let takes_its_place = into.memory == Memory::Out && into.at == own.at;
        assert!(given.is_some() || takes_its_place, "what is gotten was given there");
        (given, &mut results[elements::<T>(into)])
    }

    fn with(&mut self, into: Span, from: Span, act: &mut dyn FnMut(&mut [T], &[T])) {
        let (to, of) = (self.resolved(into.memory), self.resolved(from.memory));
        let (into, from) = (elements::<T>(into), elements::<T>(from));
        match (to, of) {
            (Memory::Out, Memory::Out) => within(self.output, into, from, act),
            (Memory::Scratch, Memory::Scratch) => within(self.scratch, into, from, act),
            (Memory::Out, Memory::Scratch) => act(&mut self.output[into], &self.scratch[from]),
            (Memory::Scratch, Memory::Out) => act(&mut self.scratch[into], &self.output[from]),
            (Memory::Out, Memory::In) => {
                let given = self.input.expect("resolved to memory of its own");
                act(&mut self.output[into], &given[from]);
            }
            (Memory::Scratch, Memory::In) => {
                let given = self.input.expect("resolved to memory of its own");
                act(&mut self.scratch[into], &given[from]);
            }
            (Memory::In, _) => unreachable!("no plan writes what is given"),
        }
    }

    /// Their bytes, to be kept by the engine, if these are little enough. `kept` is memory of an earlier
    /// collective's.
    pub(super) fn keep(&self, mut kept: Kept, scratch: u64) -> Kept {
        kept.hold(self.input.map(bytemuck::cast_slice), bytemuck::cast_slice(self.output), scratch);
        kept
    }

    /// Bytes of what is given and what is gotten.
    pub(super) fn len(&self) -> u64 {
        (self.input.map_or(0, size_of_val) + size_of_val(self.output)) as u64
    }

    fn resolved(&self, memory: Memory) -> Memory {
        if memory == Memory::In && self.input.is_none() { Memory::Out } else { memory }
    }
}

/// The operands of a step, in memory that the engine keeps.
pub(super) struct Operands<T> {
    place: Span,
    into: Vec<T>,
    from: Vec<T>,
}

impl<T: Pod> Operands<T> {
    pub(super) fn of(kept: &Kept, step: Step) -> Operands<T> {
        let Step::Combine { into, from } = step else {
            unreachable!("the engine does all other steps in what it keeps")
        };
        let values = |span| {
            let bytes = kept.part(span);
            let mut values = vec![T::zeroed(); bytes.len() / size_of::<T>()];
            bytemuck::cast_slice_mut(&mut values).copy_from_slice(bytes);
            values
        };
        Operands { place: into, into: values(into), from: values(from) }
    }

    pub(super) fn combine(&mut self, combine: &mut dyn Combine<T>) {
        combine.combine(&mut self.into, &self.from);
    }

    pub(super) fn leave(&self, kept: &mut Kept) {
        kept.part_mut(self.place).copy_from_slice(bytemuck::cast_slice(&self.into));
    }
}

/// A span's elements: plans cut nothing in two.
fn elements<T>(span: Span) -> Range<usize> {
    let size = size_of::<T>();
    let (at, len) = (span.at as usize / size, span.len as usize / size);
    at..at + len
}

/// Acts on two parts of one memory: one and the same, where nothing is to be done, or apart.
fn within<T>(all: &mut [T], into: Range<usize>, from: Range<usize>, act: &mut dyn FnMut(&mut [T], &[T])) {
    if into == from {
        return;
    }
    if into.end <= from.start {
        let (first, second) = all.split_at_mut(from.start);
        act(&mut first[into], &second[..from.len()]);
    } else {
        let (first, second) = all.split_at_mut(into.start);
        act(&mut second[..into.len()], &first[from]);
    }
}
