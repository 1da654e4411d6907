//! The suite that every Standpipe transport passes.
#![forbid(unsafe_code)]
