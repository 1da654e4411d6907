//! The codes of VIPL's calls, and the errors that it tells of without being asked.

/// A code that a call ends with: those of `VIP_RETURN`, but for `VIP_SUCCESS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViaError {
    /// `VIP_NOT_DONE`.
    #[error("nothing is done yet")]
    NotDone = 1,
    /// `VIP_INVALID_PARAMETER`.
    #[error("an argument is none that the call takes")]
    InvalidParameter = 2,
    /// `VIP_ERROR_RESOURCE`.
    #[error("a resource is used up, or in use")]
    Resource = 3,
    /// `VIP_TIMEOUT`.
    #[error("the time has passed")]
    Timeout = 4,
    /// `VIP_REJECT`.
    #[error("the other end rejects the connection")]
    Reject = 5,
    /// `VIP_INVALID_RELIABILITY_LEVEL`.
    #[error("a reliability level that is none, or not the other end's")]
    InvalidReliability = 6,
    /// `VIP_INVALID_MTU`.
    #[error("a transfer size that cannot be, or not the other end's")]
    InvalidMtu = 7,
    /// `VIP_INVALID_QOS`.
    #[error("a quality of service that is not the other end's")]
    InvalidQos = 8,
    /// `VIP_INVALID_PTAG`.
    #[error("a protection tag that is none")]
    InvalidPtag = 9,
    /// `VIP_INVALID_RDMAREAD`.
    #[error("remote reads are not for that reliability level")]
    InvalidRdmaRead = 10,
    /// `VIP_DESCRIPTOR_ERROR`.
    #[error("the descriptor has failed, or there is none")]
    Descriptor = 11,
    /// `VIP_INVALID_STATE`.
    #[error("the VI is not in a state for that")]
    InvalidState = 12,
    /// `VIP_ERROR_NAMESERVICE`.
    #[error("there is no such name or address")]
    NameService = 13,
    /// `VIP_NO_MATCH`.
    #[error("nobody waits for that address")]
    NoMatch = 14,
    /// `VIP_NOT_REACHABLE`.
    #[error("there is no way to that address")]
    NotReachable = 15,
    /// `VIP_ERROR_NOT_SUPPORTED`.
    #[error("that is not supported")]
    NotSupported = 16,
}

/// An error beside any call: `VIP_ERROR_CODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorCode {
    /// A descriptor was posted that lies in no memory of its handle.
    PostDescriptor = 0,
    /// A connection is lost.
    ConnectionLost = 1,
    /// A message came, and no receive was posted.
    ReceiveQueueEmpty = 2,
    /// More descriptors, or completions, than there is room for.
    Overrun = 3,
    /// A peer may not write the memory that it named.
    WriteProtection = 4,
    /// The memory that a peer may write was not there.
    WriteData = 5,
    /// A peer's write ended in its middle.
    WriteAborted = 6,
    /// A peer may not read the memory that it named.
    ReadProtection = 7,
    /// A descriptor cannot be told of its end, as its memory is not registered any more.
    CompletionProtection = 8,
    /// A peer's read found no memory, or a remote operation was under way with a peer that is lost.
    RdmaTransport = 9,
    /// The network, or what a peer sends, is not what it should be.
    Catastrophic = 10,
}

/// The kind of thing that an asynchronous error is about: `VIP_RESOURCE_CODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resource {
    /// The NIC.
    Nic = 0,
    /// A VI.
    Vi = 1,
    /// A completion queue.
    Cq = 2,
    /// A descriptor.
    Descriptor = 3,
}

/// An asynchronous error: `VIP_ERROR_DESCRIPTOR`. A number of 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncError {
    /// The NIC.
    pub nic: u32,
    /// The VI.
    pub vi: u32,
    /// The completion queue.
    pub cq: u32,
    /// The descriptor's address.
    pub descriptor: u64,
    /// The operation, as in a descriptor's status.
    pub operation: u32,
    /// The thing that has failed.
    pub resource: Resource,
    /// The error.
    pub code: ErrorCode,
}
