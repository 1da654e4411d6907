//! Every header compiles by itself, twice, in C of 1989 and of 2011 and in C++, with warnings as errors.

mod support;

#[test]
fn every_header_compiles_by_itself() {
    let headers = std::fs::read_dir(support::folder("include")).expect("there are headers");
    let mut names: Vec<String> =
        headers.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert!(!names.is_empty());
    for name in names {
        support::header_compiles(&name);
    }
}
