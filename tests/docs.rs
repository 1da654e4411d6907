//! The documents against the code: what they list is what there is.

use standpipe::config::SETTINGS;

#[test]
fn the_guide_has_every_setting_as_the_table_has_it() {
    let guide = std::fs::read_to_string("docs/API.md").expect("the guide stands in the repository");
    let rows: Vec<&str> = guide.lines().filter(|line| line.starts_with("| `STANDPIPE_")).collect();
    let expected: Vec<String> = SETTINGS
        .iter()
        .map(|s| {
            let methods = s.methods.join("`, `");
            format!("| `{}` | {} | {} | {} | {} | `{methods}` |", s.name, s.unit, s.default, s.help, s.cost)
        })
        .collect();
    assert!(rows == expected, "the table in docs/API.md should be\n{}", expected.join("\n"));
}
