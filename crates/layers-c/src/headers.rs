//! The headers' text, for whoever carries them along with the library.

/// Names and texts of all headers: those of the layers, and what they share.
pub const HEADERS: &[(&str, &str)] = &[
    ("am.h", include_str!("../include/am.h")),
    ("bip.h", include_str!("../include/bip.h")),
    ("fm.h", include_str!("../include/fm.h")),
    ("gam.h", include_str!("../include/gam.h")),
    ("pm.h", include_str!("../include/pm.h")),
    ("score.h", include_str!("../include/score.h")),
    ("standpipe_layers.h", include_str!("../include/standpipe_layers.h")),
];
