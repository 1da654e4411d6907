//! Standpipe's sans-IO engine: spans, operations, wire formats and the transport trait.
#![forbid(unsafe_code)]
