//! The list of the historic layers: one row each.
//!
//! It is a crate of its own, and needs no other: so the `standpipe` command reads it without the layers.
//!
//! Code that does something for each layer matches on [`Id`], and does not compile while one is missing. A
//! layer's files are named after it; this crate's test says which of them are not there.
#![forbid(unsafe_code)]

/// A layer.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Which of them it is.
    pub id: Id,
    /// Its name in reports and on the command line. Its files are named after it.
    pub name: &'static str,
    /// Its name in full.
    pub title: &'static str,
    /// The headers that C programs include, the main one first.
    pub headers: &'static [&'static str],
    /// The names that its headers declare begin with one of these.
    pub prefixes: &'static [&'static str],
}

macro_rules! layers {
    ($($id:ident $name:literal, $title:literal, headers $headers:tt, prefixes $prefixes:tt;)+) => {
        /// Which layer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Id { $(#[doc = $title] $id,)+ }

        /// Every layer, in the order in which the study names them.
        pub const ALL: &[Layer] = &[$(Layer {
            id: Id::$id,
            name: $name,
            title: $title,
            headers: &$headers,
            prefixes: &$prefixes,
        },)+];
    };
}

layers! {
    Gam "gam", "Generic Active Messages 1.1",
        headers ["am.h", "gam.h"], prefixes ["am_", "gam_", "lam_", "cntr_", "r_", "ta_"];
    Bip "bip", "BIP 0.92",
        headers ["bip.h"], prefixes ["bip_"];
    Fm "fm", "Fast Messages 2.x",
        headers ["fm.h"], prefixes ["FM_"];
    Pm "pm", "PM, PMv2",
        headers ["pm.h", "score.h"], prefixes ["pm", "score_"];
    Via "via", "VIA, VIPL 1.0",
        headers ["vipl.h"], prefixes ["Vip"];
}
