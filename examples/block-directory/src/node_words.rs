//! The directory's words in the heaps of Standpipe's nodes.

use std::mem::ManuallyDrop;

use standpipe::{Error, GlobalPtr, HeapArray, Node};

use crate::directory::{Place, Words};

/// The words of a launched job: an array in each rank's heap.
#[derive(Debug)]
pub struct NodeWords {
    node: Node,
    /// Never freed: peers may read them for as long as this process lives.
    _own: ManuallyDrop<HeapArray<u64>>,
    arrays: Vec<GlobalPtr<u64>>,
}

impl NodeWords {
    /// The words of which `own` are this rank's, and `arrays` those of all ranks, in order. A layout says
    /// [how many](crate::Layout::words), and they are zero at the start.
    ///
    /// # Panics
    /// If there are more or fewer arrays than ranks.
    #[must_use]
    pub fn new(node: &Node, own: HeapArray<u64>, arrays: Vec<GlobalPtr<u64>>) -> Self {
        assert_eq!(arrays.len(), node.size() as usize, "an array a rank");
        Self { node: node.clone(), _own: ManuallyDrop::new(own), arrays }
    }

    fn ptr(&self, at: Place) -> GlobalPtr<u64> {
        self.arrays[at.rank].add(at.word)
    }
}

impl Words for NodeWords {
    fn rank(&self) -> usize {
        self.node.rank() as usize
    }

    fn size(&self) -> usize {
        self.arrays.len()
    }

    fn read(&self, at: Place, words: &mut [u64]) -> Result<(), Error> {
        read(&self.node, self.ptr(at), words)
    }

    fn write(&self, at: Place, words: &[u64]) -> Result<(), Error> {
        write(&self.node, self.ptr(at), words)
    }

    fn compare_swap(&self, at: Place, expected: u64, new: u64) -> Result<u64, Error> {
        self.node.compare_swap(self.ptr(at), expected, new)
    }
}

/// Reads words of somebody's heap: one by an atomic, as others may be changing it by atomics.
///
/// # Errors
/// What the atomic or the get ends with.
pub fn read(node: &Node, at: GlobalPtr<u64>, words: &mut [u64]) -> Result<(), Error> {
    match words {
        [word] => *word = node.atomic_load(at)?,
        words => node.get_slice(at, words)?,
    }
    Ok(())
}

/// Writes words of somebody's heap: one by an atomic.
///
/// # Errors
/// What the atomic or the put ends with.
pub fn write(node: &Node, at: GlobalPtr<u64>, words: &[u64]) -> Result<(), Error> {
    match words {
        [word] => node.atomic_store(at, *word),
        words => node.put_slice(at, words),
    }
}
