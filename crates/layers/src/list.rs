//! All layers that there are.

use crate::features::Feature;
use crate::{bip, fm, gam, pm};

/// A layer.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Its name in reports and on the command line.
    pub name: &'static str,
    /// Its name in full.
    pub title: &'static str,
    /// The headers that C programs include, the main one first.
    pub headers: &'static [&'static str],
    /// The study's features, with what it does in each respect.
    pub features: &'static [Feature],
}

/// Every layer, in the order in which the study names them.
pub const ALL: &[Layer] = &[
    Layer {
        name: "gam",
        title: "Generic Active Messages 1.1",
        headers: &["am.h", "gam.h"],
        features: gam::FEATURES,
    },
    Layer { name: "bip", title: "BIP 0.92", headers: &["bip.h"], features: bip::FEATURES },
    Layer { name: "fm", title: "Fast Messages 2.x", headers: &["fm.h"], features: fm::FEATURES },
    Layer { name: "pm", title: "PM, PMv2", headers: &["pm.h", "score.h"], features: pm::FEATURES },
];
