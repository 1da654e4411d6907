//! The documents against the code: what they list is what there is.

use standpipe::config::SETTINGS;
use standpipe::{Code, PathReason};

#[test]
fn the_page_of_settings_has_every_setting_as_the_table_has_it() {
    let page = std::fs::read_to_string("docs/SETTINGS.md").expect("the page stands in the repository");
    let settings = page.split("\n## ").next().unwrap_or_default();
    let rows: Vec<&str> = settings.lines().filter(|line| line.starts_with("| `STANDPIPE_")).collect();
    let expected: Vec<String> = SETTINGS
        .iter()
        .map(|s| {
            let methods = s.methods.join("`, `");
            format!("| `{}` | {} | {} | {} | {} | `{methods}` |", s.name, s.unit, s.default, s.help, s.cost)
        })
        .collect();
    assert!(rows == expected, "the table in docs/SETTINGS.md should be\n{}", expected.join("\n"));
}

#[test]
fn the_first_program_for_tasks_is_the_example() {
    let page = std::fs::read_to_string("docs/ASYNC.md").expect("the page stands in the repository");
    let example = std::fs::read_to_string("examples/channel.rs").expect("the example stands there, too");
    let program = page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    assert!(program.is_some_and(|program| example.ends_with(program)), "docs/ASYNC.md has another program");
}

#[test]
fn the_readme_and_the_changelog_have_this_version() {
    let read = |page: &str| std::fs::read_to_string(page).expect("the page stands in the repository");
    let version = env!("CARGO_PKG_VERSION");
    assert!(read("README.md").contains(&format!("This is version {version}")));
    assert!(read("CHANGELOG.md").contains(&format!("\n## {version} - ")));
}

#[test]
fn the_page_on_paths_has_every_reason() {
    let page = std::fs::read_to_string("docs/PATHS.md").expect("the page stands in the repository");
    let table = page.split("| `PathReason` |").nth(1).and_then(|rest| rest.split("\n\n").next());
    let rows = table.expect("the table").lines().skip(2);
    let named: Vec<&str> = rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(named, PathReason::ALL.map(|reason| format!("{reason:?}")));
}

#[test]
fn the_page_on_errors_has_every_code() {
    let page = std::fs::read_to_string("docs/ERRORS.md").expect("the page stands in the repository");
    let is_row = |line: &&str| line.strip_prefix("| ").is_some_and(|row| row.starts_with(char::is_numeric));
    let rows: Vec<&str> = page.lines().filter(is_row).collect();
    let row = |code: &Code| {
        format!("| {} | `{code}` | `{:?}` | {} |", code.number(), code.io_kind(), code.meaning())
    };
    let expected: Vec<String> = Code::ALL.iter().map(row).collect();
    assert!(rows == expected, "the table in docs/ERRORS.md should be\n{}", expected.join("\n"));
}
