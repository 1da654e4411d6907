//! Each layer of the list has all its pieces, and each header, table and page is of a layer.

use std::fs;
use std::path::{Path, PathBuf};

use layer_list::{ALL, Layer};

/// Files, from the workspace's root; here and below a star stands for the layer's name.
const FILES: [&str; 9] = [
    "crates/layers/src/*.rs",
    "crates/layers/src/*/features.rs",
    "crates/layers-c/src/*.rs",
    "crates/layers-c/conformance/*.tsv",
    "crates/layers-c/tests/polling/*.c",
    "crates/studies/src/study/layers/benches/*.rs",
    "fuzz/fuzz_targets/*_messages.rs",
    "fuzz/seeds/*_messages",
    "docs/layer-*.md",
];

/// Layers that no study measures yet: they have no bench, and the study's report says so.
const UNMEASURED: [&str; 1] = ["via"];

/// Folders with a file or a folder of the layer's name, or of one that goes on after it.
const FOLDERS: [&str; 3] = ["crates/layers/tests", "crates/layers-c/tests", "crates/layers-c/programs"];

/// Files, and what they say of each layer.
const TEXTS: [(&str, &str); 5] = [
    ("crates/layers-c/tests/polling.rs", "gives_away(\"*\");"),
    ("crates/studies/src/study/layers/originals.rs", "        \"*\",\n        ["),
    ("crates/xtask/src/verbs.rs", "const SHORT~    layer(\"layers-c/*\", \"~const FIREHOSE"),
    ("crates/xtask/src/verbs.rs", "const LONG~    layer(\"layers-c/*\", \""),
    ("fuzz/Cargo.toml", "name = \"*_messages\"\npath = \"fuzz_targets/*_messages.rs\"\n"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn entries(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Whether a text has these pieces, which `~` parts, in their order.
fn says(text: &str, pieces: &str) -> bool {
    pieces.split('~').try_fold(text, |rest, piece| Some(rest.split_once(piece)?.1)).is_some()
}

/// Whether a file's name is the layer's, or goes on after it.
fn is_of(file: &str, name: &str) -> bool {
    file.strip_prefix(name).is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_alphanumeric()))
}

/// What a layer lacks.
fn missing(layer: &Layer) -> Vec<String> {
    let named = |text: &str| text.replace('*', layer.name);
    let headers = layer.headers.iter().map(|header| format!("crates/layers-c/include/{header}"));
    let is_needed = |path: &&&str| !path.contains("/benches/") || !UNMEASURED.contains(&layer.name);
    let files = FILES.iter().filter(is_needed).map(|path| named(path)).chain(headers);
    let mut missing: Vec<String> = files.filter(|path| !root().join(path).exists()).collect();
    for folder in FOLDERS {
        if !entries(folder).iter().any(|file| is_of(file, layer.name)) {
            missing.push(format!("{folder}/{}…", layer.name));
        }
    }
    for (file, pieces) in TEXTS {
        if !says(&read(file), &named(pieces)) {
            let said = named(pieces).replace('~', " … ");
            missing.push(format!("{file}: {}", said.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
    }
    let verbs = read("crates/xtask/src/verbs.rs");
    let long = verbs.split_once("const LONG").map_or("", |(_, long)| long);
    let mut steps = long.split("layer(\"layers/").skip(1).filter_map(|rest| rest.split_once('"'));
    if !steps.any(|(step, _)| is_of(step, layer.name)) {
        missing.push(format!("crates/xtask/src/verbs.rs: const LONG … layer(\"layers/{}…", layer.name));
    }
    let page = named("[layer-*.md](layer-*.md) |");
    let is_row = |line: &str| line.starts_with(&format!("| {} |", layer.title)) && line.ends_with(&page);
    let has_headers = |line: &str| layer.headers.iter().all(|header| line.contains(&format!("`{header}`")));
    if !read("docs/LAYERS.md").lines().any(|line| is_row(line) && has_headers(line)) {
        missing.push(format!("docs/LAYERS.md: a row: | {} | {:?} | … | {page}", layer.title, layer.headers));
    }
    missing
}

#[test]
fn every_layer_has_all_its_pieces() {
    let missing: Vec<String> = ALL
        .iter()
        .flat_map(|layer| missing(layer).into_iter().map(move |piece| format!("{}: {piece}", layer.name)))
        .collect();
    assert!(missing.is_empty(), "missing pieces of layers:\n{}", missing.join("\n"));
}

#[test]
fn every_header_table_and_page_is_of_a_layer() {
    let known = |of: fn(&Layer) -> Vec<String>| ALL.iter().flat_map(of).collect::<Vec<_>>();
    let headers = known(|layer| layer.headers.iter().map(|header| (*header).to_owned()).collect());
    for header in entries("crates/layers-c/include") {
        assert!(header == "standpipe_layers.h" || headers.contains(&header), "{header} is of no layer");
    }
    let tables = known(|layer| vec![format!("{}.tsv", layer.name)]);
    for table in entries("crates/layers-c/conformance") {
        assert!(tables.contains(&table), "{table} is of no layer");
    }
    let pages = known(|layer| vec![format!("layer-{}.md", layer.name)]);
    for page in entries("docs").iter().filter(|page| page.starts_with("layer-")) {
        assert!(pages.contains(page), "{page} is of no layer");
    }
    let names = known(|layer| vec![layer.name.to_owned()]);
    let has_features =
        |folder: &&String| root().join(format!("crates/layers/src/{folder}/features.rs")).exists();
    for folder in entries("crates/layers/src").iter().filter(has_features) {
        assert!(names.contains(folder), "the features of {folder} are of no layer");
    }
}

#[test]
fn a_layer_without_pieces_lacks_them_all() {
    let layer = Layer { name: "nonesuch", title: "None", headers: &["nonesuch.h"], ..ALL[0] };
    let missing = missing(&layer);
    assert_eq!(missing.len(), FILES.len() + 1 + FOLDERS.len() + TEXTS.len() + 2, "{missing:#?}");
    assert!(is_of("pm_mpi.rs", "pm") && !is_of("pma.rs", "pm") && says("abc", "a~c") && !says("ca", "a~c"));
}
