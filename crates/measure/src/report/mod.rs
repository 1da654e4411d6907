//! What studies' reports are made of: one HTML file each that needs nothing else, with drawings and tables in
//! it.

mod colours;
pub mod output;
pub mod page;
pub mod plots;
pub mod show;
