//! Standpipe's named development checks.
#![forbid(unsafe_code)]
fn main() {}
