//! The two application kernels that the Firehose paper (Bell and Bonachea, 2003) measured.

pub mod trace;
