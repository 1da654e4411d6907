//! The C++ headers, by programs of each standard: cases of all classes, coroutines, examples, and the guide's
//! snippets.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use support::{Programs, STRICT, here, run_alone, run_well, text};

static PROGRAMS: LazyLock<Programs> = LazyLock::new(Programs::new);

/// Exceptions and types at run time are not there.
const BARE: [&str; 3] = ["-std=c++20", "-fno-exceptions", "-fno-rtti"];

/// The sanitizers of the cases.
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

fn compile(source: &str, flags: &[&str]) -> PathBuf {
    PROGRAMS.compile(&here(source), &[flags, &["-g"], &STRICT].concat())
}

fn runs(program: &Path, sizes: &[u32], line: &str, env: &[(&str, &str)]) {
    for ranks in sizes {
        let ran = run_well(program, *ranks, &[], env);
        assert!(ran.says(line), "{ran:#?}");
    }
}

#[test]
fn all_cases_hold_in_cplusplus_17() {
    let program = compile("tests/programs/cpp.cc", &["-std=c++17"]);
    runs(&program, &[1, 2, 3], "12 cases", &[]);
    runs(&program, &[2], "12 cases", &[("STANDPIPE_ATTACH", "never")]);
}

#[test]
fn all_cases_hold_in_cplusplus_20() {
    runs(&compile("tests/programs/cpp.cc", &["-std=c++20"]), &[2], "12 cases", &[]);
}

#[test]
fn all_cases_but_exceptions_hold_without_exceptions() {
    runs(&compile("tests/programs/cpp.cc", &BARE), &[2], "11 cases", &[]);
}

#[test]
fn coroutines_are_resumed_by_the_thread_that_runs_their_loop() {
    runs(&compile("tests/programs/await.cc", &["-std=c++20"]), &[1, 2, 3], "24 coroutines", &[]);
}

#[test]
fn no_case_is_at_odds_with_address_and_undefined_behaviour_sanitizers() {
    if PROGRAMS.has(SANITIZERS[0]) {
        // The library's own heap of shared memory is no leak, and threads of it outlive `main`.
        let env = [("ASAN_OPTIONS", "detect_leaks=0")];
        for (source, standard, line) in [
            ("tests/programs/cpp.cc", "-std=c++17", "12 cases"),
            ("tests/programs/await.cc", "-std=c++20", "24 coroutines"),
        ] {
            let program = compile(source, &[&[standard][..], &SANITIZERS].concat());
            runs(&program, &[2], line, &env);
        }
    }
}

#[test]
fn a_node_that_ends_with_a_handlers_exception_names_the_handler_and_terminates() {
    let output = run_alone(&mut Command::new(compile("tests/programs/thrown.cc", &["-std=c++17"])));
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("the handler \"fails\" has thrown an exception"), "{said}");
    assert!(said.contains("nobody waits for this"), "{said}");
}

/// What the compiler says of a program, for each of these compilers that is there.
fn checked(compilers: &[&str], source: &Path, flags: &[&str]) -> Vec<(bool, String)> {
    let check = |compiler: &&str| {
        let mut command = Command::new(compiler);
        command.args(STRICT).args(flags).arg("-fsyntax-only").arg(format!("-I{}", here("include").display()));
        let output = command.arg(source).output().ok()?;
        Some((output.status.success(), text(&output)))
    };
    compilers.iter().filter_map(check).collect()
}

/// A file of the test's folder.
fn written(name: &str, source: &str) -> PathBuf {
    let path = PROGRAMS.folder.path().join(name);
    std::fs::write(&path, source).expect("there is room for a program's text");
    path
}

#[test]
fn all_compilers_take_the_headers() {
    let main = "\nint main() {}\n";
    let plain = written("plain.cc", &format!("#include <standpipe.hpp>{main}"));
    let awaits = written("awaits.cc", &format!("#include <standpipe_await.hpp>{main}"));
    let bare17 = ["-std=c++17", "-fno-exceptions", "-fno-rtti"];
    for (source, flags) in
        [(&plain, &["-std=c++17"][..]), (&plain, &bare17), (&awaits, &["-std=c++20"]), (&awaits, &BARE)]
    {
        let all = checked(&["c++", "clang++"], source, flags);
        assert!(!all.is_empty(), "a C++ compiler is there");
        assert!(all.iter().all(|(is_taken, _)| *is_taken), "{flags:?}: {all:#?}");
    }
}

#[test]
fn what_cannot_work_is_refused_by_the_compiler_in_words() {
    for (index, (wrong, why)) in [
        ("if (node.progress()) {}", "of a result<bool>, ask ok() and then *"),
        ("(void)node.put_nb(sp::remote(), 5);", "name a variable"),
        ("(void)node.get(sp::remote(), std::vector<int>(5));", "name a variable"),
        ("const char *text = \"x\"; (void)node.put(sp::remote(), text);", "how long is the memory?"),
        ("std::vector<std::string> all; (void)node.put(sp::remote(), all);", "this is no plain data"),
        ("node.barrier();", "nodiscard"),
    ]
    .into_iter()
    .enumerate()
    {
        let program = format!("#include <standpipe.hpp>\nvoid wrong(sp::node &node) {{ {wrong} }}\n");
        for (is_taken, said) in
            checked(&["c++"], &written(&format!("wrong{index}.cc"), &program), &["-std=c++17"])
        {
            assert!(!is_taken && said.contains(why), "{wrong}: {said}");
        }
    }
}

#[test]
fn the_headers_stay_small() {
    for (header, most) in [("standpipe.hpp", 400), ("standpipe_await.hpp", 100)] {
        let source = std::fs::read_to_string(here("include").join(header)).expect("the header is there");
        let guarded = source.split_once("#ifndef").expect("it has a guard").1;
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        let lines = guarded.lines().filter(is_code).count();
        assert!(lines <= most, "{header} has {lines} lines of code");
        assert!(
            source.lines().all(|line| line.chars().count() <= 120),
            "{header} has a line that is too wide"
        );
    }
}

#[test]
fn the_headers_first_program_is_the_first_example() {
    let header = std::fs::read_to_string(here("include/standpipe.hpp")).expect("the header is there");
    let program = header.split_once("#endif").expect("it ends").0.split_once('\n').expect("it begins").1;
    let example = here("../../examples/c++/hello.cc");
    assert!(std::fs::read_to_string(&example).expect("the example is there").ends_with(program));
    let program = PROGRAMS.compile(&example, &[&["-std=c++17"][..], &STRICT].concat());
    let ran = run_well(&program, 2, &[], &[]);
    assert!(ran.says("0: hello from 1") && ran.says("1: hello from 0"), "{ran:#?}");
}

#[test]
fn kv_await() {
    let source = here("../../examples/c++/kv_await.cc");
    let lines = std::fs::read_to_string(&source).expect("the example is there").lines().count();
    assert!(lines < 100, "it has {lines} lines");
    let program = PROGRAMS.compile(&source, &[&["-std=c++20"][..], &STRICT].concat());
    runs(&program, &[2, 3], "pulled 256 blocks, 0 of them wrong", &[]);
}

#[test]
fn the_guides_snippets_compile() {
    let page = std::fs::read_to_string(here("../../docs/CPP.md")).expect("the guide is there");
    let snippets: Vec<&str> =
        page.split("```cpp\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(snippets.len() > 4, "{snippets:?}");
    let mut program = String::from("#include <standpipe_await.hpp>\n#include <map>\n");
    for (index, snippet) in snippets.iter().enumerate() {
        let is_function = snippet.contains("\n}\n");
        let begin = match is_function {
            true => format!("namespace snippet{index} {{"),
            false => format!("[[maybe_unused]] static void snippet{index}(sp::node &node) {{"),
        };
        program += &format!("{begin}\n{snippet}}}\n");
    }
    program += "int main() {}\n";
    let flags = ["-std=c++20", "-Wno-unused-variable", "-Wno-unused-but-set-variable"];
    for (is_taken, said) in checked(&["c++"], &written("snippets.cc", &program), &flags) {
        assert!(is_taken, "{said}");
    }
}
