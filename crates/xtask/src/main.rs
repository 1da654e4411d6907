//! Standpipe's named development checks.
fn main() {}
