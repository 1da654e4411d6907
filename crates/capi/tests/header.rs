//! The header: every language reads it, and it declares what the library exports, with the same types.

mod support;

use std::collections::BTreeMap;
use std::process::Command;

use support::{STRICT, here, library, text};

fn header() -> String {
    std::fs::read_to_string(here("include/standpipe.h")).expect("the header is there")
}

#[test]
fn every_compiler_reads_it_twice_without_a_warning() {
    let folder = tempfile::tempdir().expect("there is room");
    let languages = [
        ("gcc", "c99", "c"),
        ("gcc", "c11", "c"),
        ("gcc", "c2x", "c"),
        ("g++", "c++17", "cc"),
        ("g++", "c++20", "cc"),
        ("clang", "c99", "c"),
        ("clang", "c11", "c"),
        ("clang", "c2x", "c"),
        ("clang++", "c++17", "cc"),
        ("clang++", "c++20", "cc"),
    ];
    for (compiler, standard, extension) in languages {
        if Command::new(compiler).arg("--version").output().is_err() {
            testbed::skip(format!("the header by {compiler}: not installed"));
            continue;
        }
        let source = folder.path().join(format!("header.{extension}"));
        let program = "#include <standpipe.h>\n#include <standpipe.h>\nint main(void) { return 0; }\n";
        std::fs::write(&source, program).expect("there is room");
        let output = Command::new(compiler)
            .args([&format!("-std={standard}"), "-fsyntax-only"])
            .args(STRICT)
            .arg(format!("-I{}", here("include").display()))
            .arg(&source)
            .output()
            .expect("it is there");
        assert!(output.status.success(), "{compiler} {standard}: {}", text(&output));
    }
}

/// The header without comments and preprocessor lines.
fn code() -> String {
    let header = header();
    // What is inlined is declared before.
    let header = header.split_once("/* ==== Inline functions").expect("it ends with these").0;
    let (mut rest, mut code) = (header, String::new());
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").expect("comments end").1;
    }
    code.push_str(rest);
    // The program in front is no part of the interface.
    let code = code.split_once("#endif").expect("it ends").1;
    code.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// A type as both languages have it: `mut`, `const` or nothing for what it points to, and the last name.
fn c_type(declared: &str, name_last: bool) -> String {
    let spaced = declared.replace('*', " * ").replace("[4]", "");
    let pointers = spaced.matches('*').count() + usize::from(declared.contains("[4]"));
    let words: Vec<&str> =
        spaced.split_whitespace().filter(|word| !matches!(*word, "*" | "struct" | "enum")).collect();
    let is_const = words.first() == Some(&"const");
    let words: Vec<&str> = words.into_iter().filter(|word| *word != "const").collect();
    let base = if name_last { &words[..words.len() - 1] } else { &words[..] }.join(" ");
    let base = match base.as_str() {
        "int" | "int32_t" => "i32",
        "uint32_t" => "u32",
        "uint64_t" => "u64",
        "int64_t" => "i64",
        "size_t" => "usize",
        "double" => "f64",
        "char" => "c_char",
        "void" => "c_void",
        other => other,
    };
    let stars = if pointers == 0 {
        ""
    } else if is_const {
        "const"
    } else {
        "mut"
    };
    format!("{}{stars}{base}", "*".repeat(pointers))
}

/// The functions that the header declares: their arguments' types, and what they return.
fn declared() -> BTreeMap<String, (Vec<String>, String)> {
    let code = code();
    let mut all = BTreeMap::new();
    for statement in code.split(';') {
        let statement = statement.rsplit('}').next().unwrap_or("").trim();
        let Some((head, _)) = statement.split_once('(') else { continue };
        let Some(at) = head.rfind("sp_") else { continue };
        if statement.starts_with("typedef") || statement.contains("(*") && !head[at..].starts_with("sp_") {
            continue;
        }
        let name = head[at..].trim().to_owned();
        let returns = head[..at].trim();
        let returns = returns.trim_start_matches("extern \"C\" {").trim();
        let args = statement[head.len() + 1..].trim_end().trim_end_matches(')');
        assert!(!args.is_empty(), "{name}: no arguments are (void)");
        let mut parts = Vec::new();
        let (mut depth, mut part) = (0, String::new());
        for letter in args.chars() {
            depth += i32::from(letter == '(') - i32::from(letter == ')');
            if letter == ',' && depth == 0 {
                parts.push(std::mem::take(&mut part));
            } else {
                part.push(letter);
            }
        }
        parts.push(part);
        let args = match args {
            "void" => Vec::new(),
            _ => parts
                .iter()
                .map(|arg| if arg.contains("(*") { "fn".to_owned() } else { c_type(arg, true) })
                .collect(),
        };
        all.insert(name, (args, c_type(returns, false)));
    }
    all
}

/// The C name of a Rust type of the border.
fn in_c(name: &str) -> String {
    let own = match name {
        "c_int" => "i32",
        "CRemote" => "sp_remote",
        "CPiece" => "sp_piece",
        "CStrided" => "sp_strided",
        "CIndexed" => "sp_indexed",
        "CSignal" => "sp_signal",
        "CWait" => "sp_wait",
        "CCompletion" => "sp_completion",
        "CCall" => "sp_call",
        "CCollective" => "sp_collective",
        "CName" => "sp_name",
        "GrantParams" => "sp_grant_params",
        "AllocParams" => "sp_alloc_params",
        "LastError" => "sp_error",
        "CNode" => "sp_node",
        "Settings" => "sp_config",
        "CEvent" => "sp_event",
        "Queue" => "sp_queue",
        "CTeam" => "sp_team",
        "CGrant" => "sp_grant",
        "CExposed" => "sp_exposed",
        "Pin" => "sp_pin",
        "CPayload" => "sp_payload",
        "CPrepared" => "sp_prepared",
        "CRendezvous" => "sp_rendezvous",
        other => other,
    };
    own.to_owned()
}

/// A Rust type as [`c_type`] has it.
fn rust_type(of: &syn::Type) -> String {
    match of {
        syn::Type::Ptr(pointer) => {
            let inner = rust_type(&pointer.elem);
            match inner.strip_prefix('*') {
                // Of a pointer to a pointer, C's first `const` is the inner one's.
                Some(_) => format!("*{inner}"),
                None => format!(
                    "*{}{inner}",
                    if matches!(pointer.mutability, syn::PointerMutability::Mut(_)) {
                        "mut"
                    } else {
                        "const"
                    }
                ),
            }
        }
        syn::Type::Path(path) => {
            let last = path.path.segments.last().expect("a path has a name");
            let name = last.ident.to_string();
            match (&*name, &last.arguments) {
                ("Handle", syn::PathArguments::AngleBracketed(of)) => match of.args.first() {
                    Some(syn::GenericArgument::Type(of)) => rust_type(of),
                    _ => panic!("a handle of no type"),
                },
                // Functions.
                ("Option", syn::PathArguments::AngleBracketed(_)) => "fn".to_owned(),
                _ => in_c(&name),
            }
        }
        _ => panic!("a type that no C function has"),
    }
}

/// The functions that the sources export by a plain definition.
fn exported() -> BTreeMap<String, (Vec<String>, String)> {
    let mut all = BTreeMap::new();
    for file in std::fs::read_dir(here("src")).expect("there are sources").flatten() {
        let source = std::fs::read_to_string(file.path()).expect("it can be read");
        for item in syn::parse_file(&source).expect("it is Rust").items {
            let syn::Item::Macro(written) = item else { continue };
            if !written.mac.path.is_ident("exported") {
                continue;
            }
            let function: syn::ItemFn = written.mac.parse_body().expect("a function");
            let args = function.sig.inputs.iter().map(|arg| match arg {
                syn::FnArg::Typed(arg) => rust_type(&arg.ty),
                syn::FnArg::Receiver(_) => panic!("a function"),
            });
            let returns = match &function.sig.output {
                syn::ReturnType::Default => "c_void".to_owned(),
                syn::ReturnType::Type(_, of) => rust_type(of),
            };
            all.insert(function.sig.ident.to_string(), (args.collect(), returns));
        }
    }
    all
}

/// Names of C types of functions: a typedef's pointer is a function.
fn plain(of: &str) -> &str {
    match of {
        "sp_handler" | "sp_combine" => "fn",
        other => other,
    }
}

#[test]
fn it_declares_what_the_library_exports() {
    let symbols =
        Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().expect("nm is there");
    let symbols = String::from_utf8(symbols.stdout).expect("names are ASCII");
    let symbols: Vec<&str> = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let declared: Vec<String> = declared().into_keys().collect();
    let mut exported: Vec<String> = symbols.iter().map(|name| (*name).to_owned()).collect();
    exported.sort();
    assert_eq!(exported, declared, "exported, and declared");
    assert!(declared.len() <= 170, "{} functions", declared.len());
}

/// Where the linker is told which functions there are, and of which version; by a test, if it asks for that.
const WRITE_MAP: &str = "STANDPIPE_TEST_MAP";

#[test]
fn the_linkers_map_has_what_it_declares() {
    let series = env!("CARGO_PKG_VERSION").rsplit_once('.').expect("a version has three numbers").0;
    let functions: String = declared().keys().map(|name| format!("        {name};\n")).collect();
    let map = format!("STANDPIPE_{series} {{\n    global:\n{functions}    local:\n        *;\n}};\n");
    let path = here("libstandpipe.map");
    if std::env::var_os(WRITE_MAP).is_some_and(|value| value == "write") {
        std::fs::write(&path, &map).expect("it can be written");
    }
    let committed = std::fs::read_to_string(&path).expect("it is there");
    assert!(committed == map, "{WRITE_MAP}=write has this test write it anew:\n{map}");
}

#[test]
fn it_declares_the_types_that_the_sources_have() {
    let declared = declared();
    let exported = exported();
    assert!(exported.len() > 100, "{} were found", exported.len());
    for (name, (args, returns)) in exported {
        let (c_args, c_returns) = &declared[&name];
        let c_args: Vec<&str> = c_args.iter().map(|arg| plain(arg)).collect();
        assert_eq!(args, c_args, "{name}: arguments in Rust, and in C");
        assert_eq!(&returns, c_returns, "{name}: result in Rust, and in C");
    }
}

#[test]
fn its_version_is_the_librarys() {
    let header = header();
    let number = |which: &str| {
        let line = header.lines().find(|line| line.starts_with(&format!("#define SP_VERSION_{which} ")));
        line.and_then(|line| line.rsplit(' ').next()).expect("it is there").to_owned()
    };
    assert_eq!(["MAJOR", "MINOR", "PATCH"].map(number).join("."), env!("CARGO_PKG_VERSION"));
}

#[test]
fn its_statuses_are_the_codes() {
    let code = code();
    for known in standpipe::Code::ALL {
        let name = format!("SP_ERR_{}", known.name().to_uppercase().replace('-', "_"));
        let line = code.lines().find(|line| line.trim().starts_with(&format!("{name} =")));
        let line = line.unwrap_or_else(|| panic!("{name} is not there"));
        let number = line.split('=').nth(1).expect("it has a number").trim().trim_end_matches(',');
        assert_eq!(number, format!("-{}", known.number()), "{name}");
    }
    assert_eq!(code.matches("SP_ERR_").count(), standpipe::Code::ALL.len());
}

#[test]
fn each_function_says_who_may_call_it() {
    let header = header();
    let body = header.split_once("==== 1 Errors").expect("it begins").1;
    let body = body.split_once("==== Inline functions").expect("it ends with these").0;
    let mut said = false;
    for line in body.lines() {
        if line.starts_with("/* ====") {
            said = false;
        }
        said |= [
            "[any thread",
            "[one thread",
            "[the handler's thread",
            "As sp_",
            "as sp_",
            "As those",
            "The same",
        ]
        .iter()
        .any(|words| line.contains(words));
        let is_function =
            line.contains(" sp_") && line.contains('(') && !line.starts_with([' ', '/', '#', 't']);
        assert!(!is_function || said, "{line}");
    }
}
