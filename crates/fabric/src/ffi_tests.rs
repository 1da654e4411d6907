//! The layouts and numbers of `ffi` against the headers of an installed libfabric, where a C compiler and
//! they are.

use super::*;
use std::fmt::Write as _;
use std::process::Command;

pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) fields: Vec<(&'static str, usize)>,
}

/// Structures that this crate makes for the library to read or write: these must have the same size too. Of
/// the others the library makes them, and they may go on.
const WHOLE: &[&str] =
    &["fid", "fi_cq_attr", "fi_av_attr", "fi_cq_data_entry", "fi_rma_iov", "fi_msg_rma", "fi_context2"];

/// A C program that prints `name value` for every layout and number.
fn program() -> String {
    let headers = ["fabric", "fi_domain", "fi_endpoint", "fi_eq", "fi_cm", "fi_rma"];
    let mut text = String::from("#include <stdio.h>\n#include <stddef.h>\n");
    for header in headers {
        writeln!(text, "#include <rdma/{header}.h>").expect("a string takes everything");
    }
    text.push_str("#define P(name, value) printf(\"%s %llu\\n\", name, (unsigned long long)(value));\n");
    text.push_str("int main(void) {\n");
    for layout in layouts() {
        let name = layout.name;
        if WHOLE.contains(&name) {
            writeln!(text, "P(\"{name}\", sizeof(struct {name}))").expect("a string takes everything");
        }
        for (field, _) in &layout.fields {
            let field = field.trim_start_matches("r#");
            writeln!(text, "P(\"{name}.{field}\", offsetof(struct {name}, {field}))")
                .expect("a string takes everything");
        }
    }
    for (name, _) in numbers() {
        writeln!(text, "P(\"{name}\", {name})").expect("a string takes everything");
    }
    text.push_str("return 0; }\n");
    text
}

/// The same lines as the program should print.
fn ours() -> Vec<String> {
    let mut lines = Vec::new();
    for layout in layouts() {
        if WHOLE.contains(&layout.name) {
            lines.push(format!("{} {}", layout.name, layout.size));
        }
        for (field, offset) in &layout.fields {
            lines.push(format!("{}.{} {offset}", layout.name, field.trim_start_matches("r#")));
        }
    }
    lines.extend(numbers().iter().map(|(name, value)| format!("{name} {value}")));
    lines
}

#[test]
fn layouts_are_those_of_the_headers() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (source, binary) = (dir.path().join("layouts.c"), dir.path().join("layouts"));
    std::fs::write(&source, program()).expect("the directory is ours");
    let probe = dir.path().join("probe.c");
    std::fs::write(&probe, "#include <rdma/fabric.h>\nint main(void) { return 0; }\n").expect("it is ours");
    let compiled = Command::new("cc").arg(&probe).arg("-o").arg(&binary).output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        testbed::skip("no C compiler, or no headers of libfabric");
        return;
    }
    let output =
        Command::new("cc").arg(&source).arg("-o").arg(&binary).output().expect("it was there just now");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = Command::new(&binary).output().expect("it was just compiled").stdout;
    let printed = String::from_utf8(printed).expect("names and numbers");
    let theirs: Vec<&str> = printed.lines().collect();
    let ours = ours();
    assert!(theirs.len() > 200, "{}", theirs.len());
    assert_eq!(theirs, ours);
}

#[test]
fn a_table_too_short_offers_nothing() {
    extern "C" fn close(_: *mut fid) -> c_int {
        0
    }
    let mut ops = fi_ops { size: size_of::<fi_ops>(), close: Some(close), bind: None, control: None };
    // SAFETY: the table is a local value of the type named, alive through the block.
    unsafe {
        assert!(offers!(&ops, fi_ops, close).is_some());
        assert!(offers!(&ops, fi_ops, bind).is_none());
        ops.size = size_of::<size_t>();
        assert!(offers!(&ops, fi_ops, close).is_none());
        assert!(offers!(std::ptr::null(), fi_ops, close).is_none());
    }
}
