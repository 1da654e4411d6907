//! The memories that a collective works on.

use crate::collective::{Memory, Span};
use crate::{OpError, Place, Transport};

/// Where a collective's memories are.
#[derive(Debug)]
pub enum Memories {
    /// In the process. They must stay valid until the collective has an outcome.
    At {
        /// The memory that this member gives.
        input: Place,
        /// The memory that it gets.
        output: Place,
        /// [`Plan::scratch`](crate::collective::Plan::scratch) bytes for the collective.
        scratch: Place,
    },
    /// In the engine, which reads and writes them without asking the transport.
    Kept(Kept),
}

/// The bytes that a collective of little works on, kept by the engine: at most [`Kept::MAX`] in all.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    bytes: Vec<u8>,
    /// Where each memory begins, by its number.
    starts: [usize; 3],
}

impl Kept {
    /// Bytes of all three memories, at most. Where the transport's messages hold fewer, that is the most.
    pub const MAX: u64 = 2 << 10;

    /// Memory that a member gives, room for what it gets, and for what the collective needs besides. Without
    /// an `input`, what is given lies where the result will be. The memory is that of an earlier
    /// collective's, whose contents are gone.
    pub fn hold(&mut self, input: Option<&[u8]>, output: &[u8], scratch: u64) {
        self.bytes.clear();
        self.bytes.extend_from_slice(input.unwrap_or(&[]));
        let out = self.bytes.len();
        self.bytes.extend_from_slice(output);
        self.starts = [0, out, self.bytes.len()];
        self.bytes.resize(self.bytes.len() + scratch as usize, 0);
    }

    /// Bytes of all three memories.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The memory that the member gets, once the collective is over.
    pub fn output(&self) -> &[u8] {
        &self.bytes[self.starts[1]..self.starts[2]]
    }

    /// A part of a memory.
    ///
    /// # Panics
    /// When there is no such part.
    pub fn part(&self, span: Span) -> &[u8] {
        let at = self.at(span);
        &self.bytes[at..at + span.len as usize]
    }

    /// A part of a memory, to be written.
    ///
    /// # Panics
    /// When there is no such part.
    pub fn part_mut(&mut self, span: Span) -> &mut [u8] {
        let at = self.at(span);
        &mut self.bytes[at..at + span.len as usize]
    }

    pub(in crate::node) fn copy(&mut self, from: Span, into: Span) {
        let (from, into) = (self.at(from), (self.at(into), into.len as usize));
        self.bytes.copy_within(from..from + into.1, into.0);
    }

    fn at(&self, span: Span) -> usize {
        self.starts[number(span.memory)] + span.at as usize
    }
}

const fn number(memory: Memory) -> usize {
    match memory {
        Memory::In => 0,
        Memory::Out => 1,
        Memory::Scratch => 2,
    }
}

impl Memories {
    /// Where a span lies in the process; `None` if the engine keeps it.
    pub(in crate::node) fn place(&self, span: Span) -> Option<Place> {
        match self {
            Memories::At { input, output, scratch } => {
                Some([input, output, scratch][number(span.memory)].plus(span.at))
            }
            Memories::Kept(_) => None,
        }
    }

    pub(in crate::node) fn read<T: Transport>(
        &self,
        transport: &mut T,
        span: Span,
        into: &mut [u8],
    ) -> Result<(), OpError> {
        match self {
            Memories::Kept(kept) => into.copy_from_slice(kept.part(span)),
            Memories::At { .. } if into.is_empty() => {}
            Memories::At { .. } => transport.read(self.place(span).expect("in the process"), into)?,
        }
        Ok(())
    }

    pub(in crate::node) fn write<T: Transport>(
        &mut self,
        transport: &mut T,
        span: Span,
        bytes: &[u8],
    ) -> Result<(), OpError> {
        match self {
            Memories::Kept(kept) => kept.part_mut(span).copy_from_slice(bytes),
            Memories::At { .. } if bytes.is_empty() => {}
            Memories::At { .. } => transport.write(self.place(span).expect("in the process"), bytes)?,
        }
        Ok(())
    }
}
