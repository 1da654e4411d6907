//! What new users do wrong: each mistake has the message that docs/C.md promises.

mod support;

use std::process::Command;

use support::{Programs, STRICT, here, run_alone, text};

/// Whether a message is as a pattern says, in which `…` stands for anything.
fn fits(pattern: &str, message: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().expect("a text has a first part");
    let Some(mut rest) = message.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[test]
fn each_mistake_has_its_message() {
    let guide = std::fs::read_to_string(here("../../docs/C.md")).expect("the guide is there");
    let section =
        guide.split_once("## Mistakes").expect("it has the table").1.split("\n## ").next().expect("it ends");
    let promised: Vec<&str> = section
        .lines()
        .filter_map(|line| line.split('`').nth(1).filter(|_| line.starts_with("| ")))
        .collect();
    let programs = Programs::new();
    let flags = [&["-std=gnu11"][..], &STRICT].concat();
    let output = run_alone(&mut Command::new(programs.compile(&here("tests/programs/mistakes.c"), &flags)));
    assert!(output.status.success(), "{}", text(&output));
    let said = String::from_utf8(output.stdout).expect("it is text");
    let said: Vec<&str> = said.lines().collect();
    assert!(promised.len() >= 20 && said.len() == promised.len(), "{promised:#?} {said:#?}");
    for (line, pattern) in said.iter().zip(promised) {
        let message = line.splitn(3, " | ").nth(2).expect("name, status and message");
        assert!(fits(pattern, message), "promised: {pattern}\nsaid: {line}");
    }
}
