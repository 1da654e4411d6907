//! The layer's column in the study's table.

use crate::features::Feature;

/// What BIP does in each respect, and the test that shows it.
pub const FEATURES: &[Feature] = &[];
