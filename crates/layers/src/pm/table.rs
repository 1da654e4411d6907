//! PM's cells of the study's table.

use crate::features::Feature;

/// What PM does in each respect, with the test that shows it.
pub const FEATURES: &[Feature] = &[];
