//! The study's table of features, with the test behind each cell.

/// A cell of the table: what a layer does in one respect.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// The layer: `gam`, `bip`, `fm`, `pm`, `via`.
    pub layer: &'static str,
    /// One of [`NAMES`].
    pub feature: &'static str,
    /// The layer's behaviour, in a few words.
    pub holds: &'static str,
    /// The test that shows it: a path from the workspace's root, two colons, and the test function's name.
    pub test: &'static str,
}

/// The rows of the paper's comparison, in its order. The wording is ours.
pub const NAMES: [&str; 11] = [
    "paradigm",
    "protection",
    "multiprogramming",
    "loss handling",
    "order",
    "flow control",
    "send path",
    "receive copies",
    "notification",
    "threads",
    "message size",
];
