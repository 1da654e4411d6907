//! What messages look like: a header of seven 64-bit words, and a payload.

mod header;

pub(crate) use header::{
    AmHead, CHUNK_FAULT, CHUNK_NO_WORD, CHUNK_NOT_EXPOSED, CHUNK_OK, STAGE_NEVER, STAGE_NONE, chunk_result,
    chunk_status,
};
pub use header::{HEAD_WORDS, Header, Kind, WireError};
