//! The standpipe command.
fn main() {}
