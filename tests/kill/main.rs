//! What dies, stops or is told to end in the middle of its work, and what the rest make of it: errors in
//! time, no hang, nothing left behind.

mod ends;
mod storm;
#[path = "../support/mod.rs"]
mod support;

/// Not a test: what the ranks and launchers of the tests do.
#[test]
fn child() {
    let Some(role) = support::role() else { return };
    match role.as_str() {
        "storm" => storm::rank(),
        "launcher" => ends::launcher(),
        "stops" => ends::stops(),
        "waits" => ends::waits(),
        "asks" => ends::asks(),
        other => panic!("no role {other}"),
    }
}
