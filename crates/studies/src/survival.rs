//! For tests of what processes tell the command.

use std::fmt::Debug;

use measure::json_lines::{decode, encode};
use serde::{Serialize, de::DeserializeOwned};

/// What is said arrives, on one line each, and is told apart from what is no line.
pub(crate) fn survive<L: Serialize + DeserializeOwned + PartialEq + Debug>(lines: Vec<L>) {
    for line in lines {
        let text = encode(&line);
        assert!(!text.contains('\n'), "{text:?}");
        assert_eq!(decode(&text), Some(line));
    }
    assert_eq!(decode::<L>("thread 'main' panicked"), None);
}
