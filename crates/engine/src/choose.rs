//! The choice of mechanism: KVIA's idea, that each transfer takes the path that suits it.
//!
//! The choice is a pure function, so that it can be tested and printed. Over shared memory only what can be reached
//! how decides; sizes begin to matter with transports that register.

use crate::MemId;

/// How the bytes of a transfer travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// A load or store on the peer's memory, mapped here: no system call.
    Mapped,
    /// Cross-memory attach: one system call for a whole list, one copy.
    Cma,
    /// Chunks inside messages; the peer's progress copies them.
    Message,
    /// One-sided, by the key of memory that its owner has registered.
    Registered,
}

impl Mechanism {
    /// Every mechanism, in the order of [`Mechanism::index`].
    pub const ALL: [Mechanism; 4] =
        [Mechanism::Mapped, Mechanism::Cma, Mechanism::Message, Mechanism::Registered];

    /// Its name in tables and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Mapped => "mapped",
            Mechanism::Cma => "cma",
            Mechanism::Message => "message",
            Mechanism::Registered => "registered",
        }
    }

    /// Its place in [`Mechanism::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Why an operation took the path that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The memory lies in a heap that is mapped here.
    HeapMapped,
    /// The memory is private to the peer, and the kernel lets us reach it.
    PrivateReachable,
    /// The kernel forbids cross-memory attach to this peer (ptrace rights, Yama, user ids).
    PtraceDenied,
    /// A seccomp filter or an old kernel refuses the cross-memory system calls here.
    CallForbidden,
    /// The peer's process number means another process here (pid namespaces).
    PidMismatch,
    /// The configuration asks for messages.
    Configured,
    /// The transport has no one-sided access at all.
    NotOffered,
    /// The memory cannot be registered: there is no room in a budget, or the system refuses.
    NoRoom,
    /// The peer is reached over a network, and the memory is none that is registered there.
    Network,
}

impl Why {
    /// Every reason, in the order of [`Why::index`].
    pub const ALL: [Why; 9] = [
        Why::HeapMapped,
        Why::PrivateReachable,
        Why::PtraceDenied,
        Why::CallForbidden,
        Why::PidMismatch,
        Why::Configured,
        Why::NotOffered,
        Why::NoRoom,
        Why::Network,
    ];

    /// Its name in tables and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Why::HeapMapped => "heap-mapped",
            Why::PrivateReachable => "private-reachable",
            Why::PtraceDenied => "ptrace-denied",
            Why::CallForbidden => "call-forbidden",
            Why::PidMismatch => "pid-mismatch",
            Why::Configured => "configured",
            Why::NotOffered => "not-offered",
            Why::NoRoom => "no-room",
            Why::Network => "network",
        }
    }

    /// Its place in [`Why::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The path for memory `mem` of a peer whose private memory can be attached (`Ok`) or cannot (`Err`, with the
/// reason).
pub const fn mechanism(mem: MemId, attach: Result<(), Why>) -> (Mechanism, Why) {
    match (mem, attach) {
        (MemId::Heap | MemId::Control, _) => (Mechanism::Mapped, Why::HeapMapped),
        (MemId::Space, Ok(())) => (Mechanism::Cma, Why::PrivateReachable),
        (MemId::Space, Err(why)) => (Mechanism::Message, why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_mapped_whatever_ptrace_says() {
        assert_eq!(mechanism(MemId::Heap, Err(Why::PtraceDenied)), (Mechanism::Mapped, Why::HeapMapped));
    }

    #[test]
    fn private_memory_falls_back_with_the_reason() {
        assert_eq!(mechanism(MemId::Space, Ok(())), (Mechanism::Cma, Why::PrivateReachable));
        for why in [Why::PtraceDenied, Why::CallForbidden, Why::PidMismatch, Why::Configured] {
            assert_eq!(mechanism(MemId::Space, Err(why)), (Mechanism::Message, why));
        }
    }

    #[test]
    fn indices_are_places_in_the_lists() {
        assert!(Mechanism::ALL.iter().enumerate().all(|(i, m)| m.index() == i));
        assert!(Why::ALL.iter().enumerate().all(|(i, w)| w.index() == i));
    }
}
