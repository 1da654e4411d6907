//! The tables of what is promised: each row has its test, each function its row, each feature its test.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use layers::features::NAMES;
use layers::{ALL, features_of};

const HEADING: &str = "function\tdocumented result\tsource\ttest";

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn workspace() -> PathBuf {
    crate_folder().join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A row: function, documented result, source, test.
type Row = [String; 4];

fn rows(layer: &str) -> Vec<Row> {
    let path = crate_folder().join("conformance").join(format!("{layer}.tsv"));
    let table = read(&path);
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some(HEADING), "{}", path.display());
    let rows = lines.map(|line| {
        let cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
        let row = Row::try_from(cells).unwrap_or_else(|_| panic!("{layer}: four cells: {line}"));
        assert!(row.iter().all(|cell| !cell.trim().is_empty()), "{layer}: an empty cell: {line}");
        row
    });
    rows.collect()
}

/// Whether a file of Rust has such a test.
fn has_test(file: &Path, name: &str) -> bool {
    let text = read(file);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let named = format!("fn {name}()");
    let at = lines.iter().position(|line| line.starts_with(&named));
    at.is_some_and(|at| {
        lines[..at].iter().rev().take_while(|line| line.starts_with('#')).any(|line| *line == "#[test]")
    })
}

/// Checks a test that is named `FILE::FUNCTION`, its file seen from a folder.
fn check_test(named: &str, from: &Path, what: &str) {
    let (file, name) = named.split_once("::").unwrap_or_else(|| panic!("{what}: FILE::TEST: {named}"));
    assert!(has_test(&from.join(file), name), "{what}: there is no test {named}");
}

/// A header without its comments.
fn without_comments(header: &str) -> String {
    let mut code = String::new();
    for (number, piece) in header.split("/*").enumerate() {
        let kept = if number == 0 { piece } else { piece.split_once("*/").map_or("", |(_, code)| code) };
        code.push_str(kept);
        code.push(' ');
    }
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Identifiers of a text, each with the text after it.
fn identifiers(code: &str) -> impl Iterator<Item = (&str, &str)> {
    let starts = code.char_indices().filter(|(at, letter)| {
        is_of_name(*letter) && !letter.is_ascii_digit() && !code[..*at].ends_with(is_of_name)
    });
    starts.map(|(at, _)| {
        let rest = &code[at..];
        rest.split_at(rest.find(|letter| !is_of_name(letter)).unwrap_or(rest.len()))
    })
}

/// Functions, macros that look like functions, and variables that a header declares.
fn declared(header: &str, prefixes: &[&str]) -> BTreeSet<String> {
    let code = without_comments(header);
    let is_own = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let called = identifiers(&code).filter(|(_, rest)| rest.trim_start().starts_with('('));
    let mut names: BTreeSet<String> =
        called.map(|(name, _)| name).filter(|name| is_own(name)).map(str::to_owned).collect();
    let externs =
        code.split(';').filter_map(|statement| statement.rsplit_once("extern ").map(|(_, rest)| rest));
    for variables in externs.filter(|rest| !rest.contains(['"', '('])) {
        // The last of each is its name, those before are its type's.
        let last = variables.split(',').filter_map(|variable| identifiers(variable).last());
        names.extend(last.map(|(name, _)| name.to_owned()).filter(|name| is_own(name)));
    }
    names
}

fn header(name: &str) -> String {
    read(&crate_folder().join("include").join(name))
}

/// The names of a row, which are several where one promise is of all of them. There are none where it is of
/// no function, but of what stands in brackets.
fn functions(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(", ").filter(|name| !name.starts_with('('))
}

#[test]
fn every_row_has_a_function_and_a_test() {
    for layer in ALL {
        let code: String = layer.headers.iter().map(|name| without_comments(&header(name))).collect();
        let names: BTreeSet<&str> = identifiers(&code).map(|(name, _)| name).collect();
        let mut seen = BTreeSet::new();
        for [function, result, source, test] in rows(layer.name) {
            let what = format!("{}.tsv: {function}: {result} ({source})", layer.name);
            for name in functions(&function) {
                assert!(names.contains(name), "{what}: {name} is in none of {:?}", layer.headers);
            }
            check_test(&test, crate_folder(), &what);
            assert!(seen.insert((function, result)), "{what}: twice");
        }
    }
}

#[test]
fn every_function_and_variable_has_a_row() {
    for layer in ALL {
        let rows = rows(layer.name);
        for name in layer.headers {
            let declared = declared(&header(name), layer.prefixes);
            assert!(!declared.is_empty(), "{name} declares nothing that begins with {:?}", layer.prefixes);
            let missing: Vec<_> = declared
                .iter()
                .filter(|name| rows.iter().all(|row| functions(&row[0]).all(|of| of != **name)))
                .collect();
            assert!(missing.is_empty(), "{}.tsv has no row for these of {name}: {missing:?}", layer.name);
        }
    }
}

#[test]
fn every_feature_has_a_test() {
    for layer in ALL {
        let features = features_of(layer.id);
        let named: Vec<&str> = features.iter().map(|feature| feature.feature).collect();
        assert_eq!(named, NAMES, "{}", layer.name);
        for feature in features {
            assert_eq!(feature.layer, layer.name, "{feature:?}");
            assert!(!feature.holds.is_empty(), "{feature:?}");
            check_test(feature.test, &workspace(), &format!("{feature:?}"));
        }
    }
}

#[test]
fn headers_are_read_as_they_are_meant() {
    let header = "/* x_not(here) */ extern \"C\" { int x_one(int x_arg);\nextern int x_two, x_three;\nextern int *x_four(void);\n#define x_five(a) (a)\ntypedef int (*x_type)(int); y_six(); }";
    let names: Vec<String> = declared(header, &["x_"]).into_iter().collect();
    assert_eq!(names, ["x_five", "x_four", "x_one", "x_three", "x_two"]);
}
