//! What the paper says.

/// MB/s by hits in percent.
pub(super) const PAPER: [(f64, f64); 2] = [(0.0, 78.7), (100.0, 108.8)];
