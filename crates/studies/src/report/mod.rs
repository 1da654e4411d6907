//! What studies' reports are made of: one HTML file each that needs nothing else, with drawings and tables in
//! it.

mod colours;
pub(crate) mod output;
pub(crate) mod page;
pub(crate) mod plots;
pub(crate) mod show;
