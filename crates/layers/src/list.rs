//! The parts of each layer of the list that are here.

use layer_list::Id;

use crate::features::Feature;
use crate::{bip, fm, gam, pm, via};

/// The study's features, with what the layer does in each respect.
#[must_use]
pub const fn features_of(layer: Id) -> &'static [Feature] {
    match layer {
        Id::Gam => gam::FEATURES,
        Id::Bip => bip::FEATURES,
        Id::Fm => fm::FEATURES,
        Id::Pm => pm::FEATURES,
        Id::Via => via::FEATURES,
    }
}
