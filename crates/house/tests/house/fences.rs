//! Where unsafe code may stand, and that each piece of it argues why it is sound.

use crate::finding::Finding;
use crate::source::{Role, Tree, attrs_of, needs_test};
use crate::workspace::Package;
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use std::path::Path;
use syn::visit::{self, Visit};

/// Folders (with a slash at their end) and files in which production code may be unsafe.
const FENCES: &[&str] = &[
    "crates/vm/",
    "crates/fabric/",
    // The launchers' library, which is C.
    "crates/pmix/",
    // Where an address from the user enters:
    "src/base/pointers.rs",
    "src/api/all_memory.rs",
    "src/api/ops/buffer.rs",
    "src/api/ops/raw.rs",
    "src/transport/shm/copy.rs",
    "src/transport/shm/copy/",
    "src/transport/shm/own.rs",
    "src/transport/shm/transport.rs",
    // The same, for libfabric, which is also lent memory here.
    "src/transport/ofi/buffers.rs",
    "src/transport/ofi/endpoint.rs",
    "src/transport/ofi/endpoint/rma_small.rs",
    // Exported symbols and the addresses of C programs.
    "crates/layers-c/",
    "crates/capi/",
    "crates/malloc/",
    // The kernels' ranks name the addresses of their peers' inboxes.
    "crates/studies/src/kernels/job.rs",
    // The example's ranks name the addresses of their peers' blocks.
    "examples/block-directory/src/main.rs",
    // The study's workers name the addresses of their blocks.
    "crates/studies/src/study/kv/job.rs",
    // The layers' benches name the addresses of their peers' buffers.
    "crates/studies/src/study/layers/benches/memory.rs",
    // The live studies' ranks name the addresses of their peer's memory.
    "crates/studies/src/study/live/rank.rs",
    // The benchmarks' limits: memcpy, cross-memory attach, pages to lock, words of a peer's heap, and
    // libfabric's calls.
    "src/api/underneath.rs",
    "crates/measure/src/bare/attach.rs",
    "crates/measure/src/bare/locked_pages.rs",
    "crates/measure/src/bare/memory.rs",
    "crates/measure/src/bare/slots.rs",
    "crates/measure/src/bare/turns.rs",
    "crates/measure/src/bare/wire.rs",
    "crates/measure/src/bare/wire/frames.rs",
    // The benchmark of raw memory names the addresses of its peer's buffers.
    "crates/measure/src/perf/memory.rs",
];

/// Packages that have no unsafe code at all, not even in their tests.
const FORBIDDING: &[&str] = &[
    "standpipe-engine",
    "standpipe-sim",
    "standpipe-conformance",
    "standpipe-testbed",
    "standpipe-cli",
    "standpipe-layers",
    "xtask",
];

/// Fewer words than this are no argument.
const SAFETY_WORDS_MIN: usize = 8;

/// Unsafe code outside the fences, or without its argument.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for module in &tree.modules {
        let mut visitor = Sites { role: module.role, found: vec![] };
        module.items.iter().for_each(|item| visitor.visit_item(item));
        let file = &tree.files[module.file];
        for site in visitor.found {
            if site.role == Role::Production && !fenced(&file.path) {
                let what = format!("{} outside the fences", site.kind.name());
                let remedy = format!("move it behind one of {FENCES:?}");
                findings.push(Finding::new(&file.path, site.line, what, remedy));
            }
            findings.extend(site.unargued(&file.path, &file.text));
        }
    }
    findings
}

/// Crates that promise to have no unsafe code and do not hold themselves to it.
pub(crate) fn forbidding(packages: &[Package], trees: &[Tree]) -> Vec<Finding> {
    let promising = packages.iter().filter(|package| FORBIDDING.contains(&package.name.as_str()));
    let roots = promising.flat_map(|package| {
        let src = Path::new(&package.manifest).with_file_name("src");
        package.targets.iter().map(|(_, path)| path).filter(move |path| path.starts_with(&src))
    });
    let bare = roots.filter(|path| !trees.iter().any(|tree| forbids(tree, path)));
    bare.map(|path| {
        let (file, remedy) = (path.to_string_lossy(), "add `#![forbid(unsafe_code)]`");
        Finding::new(&file, 1, "this crate does not forbid unsafe code", remedy)
    })
    .collect()
}

fn forbids(tree: &Tree, root: &Path) -> bool {
    let is_root = tree.files.first().is_some_and(|file| Path::new(&file.path) == root);
    is_root
        && tree.modules[0].inner.iter().any(|attr| {
            attr.path().is_ident("forbid")
                && attr.parse_args::<syn::Ident>().is_ok_and(|lint| lint == "unsafe_code")
        })
}

fn fenced(path: &str) -> bool {
    FENCES.iter().any(|fence| path == *fence || (fence.ends_with('/') && path.starts_with(fence)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Block,
    Impl,
    ExternBlock,
    Attribute,
    Function,
    Trait,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Block => "unsafe block",
            Kind::Impl => "unsafe impl",
            Kind::ExternBlock => "unsafe extern block",
            Kind::Attribute => "unsafe attribute",
            Kind::Function => "unsafe fn",
            Kind::Trait => "unsafe trait",
        }
    }

    /// Whether it demands something of others, which its documentation must say; the rest must argue for
    /// itself.
    fn is_contract(self) -> bool {
        matches!(self, Kind::Function | Kind::Trait)
    }
}

struct Site {
    kind: Kind,
    line: usize,
    role: Role,
}

impl Site {
    fn unargued(&self, file: &str, text: &str) -> Option<Finding> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let above = &lines[..self.line - 1];
        if self.kind.is_contract() {
            let what = format!("{} without a `# Safety` section", self.kind.name());
            let missing = !docs_above(above).any(|line| line.contains("# Safety"));
            return missing
                .then(|| Finding::new(file, self.line, what, "say what its caller must guarantee"));
        }
        let words = safety_words_above(above);
        let what = match words {
            0 => format!("{} without a `// SAFETY:` comment directly above", self.kind.name()),
            _ => format!("{} whose SAFETY comment has only {words} words", self.kind.name()),
        };
        let remedy = "argue validity, bounds and lifetime";
        (words < SAFETY_WORDS_MIN).then(|| Finding::new(file, self.line, what, remedy))
    }
}

/// The doc comments and attributes that stand directly above, bottom first.
fn docs_above<'a>(above: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    above.iter().rev().copied().take_while(|line| line.starts_with("//") || line.starts_with("#["))
}

/// How many words argue for the code below. Only attributes and the head of the code's own statement may come
/// between.
fn safety_words_above(above: &[&str]) -> usize {
    let is_comment =
        |line: &str| line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!");
    let same_statement = |line: &str| {
        let code = line.split(" //").next().unwrap_or_default().trim_end();
        !code.is_empty() && !code.ends_with([';', '{', '}']) && !code.contains("unsafe")
    };
    let mut end = above.len();
    while end > 0 && !is_comment(above[end - 1]) {
        if !same_statement(above[end - 1]) {
            return 0;
        }
        end -= 1;
    }
    let comments = above[..end].iter().rev().take_while(|line| is_comment(line)).count();
    let comment: Vec<&str> =
        above[end - comments..end].iter().map(|line| line.trim_start_matches('/')).collect();
    let comment = comment.join(" ");
    let argument = comment.split_once("SAFETY:").map_or("", |(_, after)| after);
    argument.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

struct Sites {
    role: Role,
    found: Vec<Site>,
}

impl Sites {
    fn under(&mut self, attrs: &[syn::Attribute], inside: impl FnOnce(&mut Self)) {
        let around = self.role;
        if needs_test(attrs) {
            self.role = Role::Test;
        }
        inside(self);
        self.role = around;
    }

    fn add(&mut self, kind: Kind, span: Span) {
        self.found.push(Site { kind, line: span.start().line, role: self.role });
    }

    /// Finds `unsafe` in tokens that are not parsed further.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(ident) if ident == "unsafe" => {
                    let kind = match tokens.get(at + 1) {
                        Some(TokenTree::Group(next)) if next.delimiter() == Delimiter::Parenthesis => {
                            Kind::Attribute
                        }
                        Some(TokenTree::Ident(next)) if next == "impl" => Kind::Impl,
                        Some(TokenTree::Ident(next)) if next == "fn" || next == "extern" => Kind::Function,
                        Some(TokenTree::Ident(next)) if next == "trait" => Kind::Trait,
                        _ => Kind::Block,
                    };
                    self.add(kind, ident.span());
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Sites {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.under(attrs_of(item), |inner| visit::visit_item(inner, item));
    }

    fn visit_attribute(&mut self, attr: &'ast syn::Attribute) {
        if attr.path().is_ident("unsafe") {
            self.add(Kind::Attribute, attr.path().segments[0].ident.span());
        }
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.add(Kind::Block, block.unsafe_token.span);
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = &item.unsafety {
            self.add(Kind::Impl, token.span);
        }
        // What a trait demands of its unsafe functions is documented at the trait.
        let of_trait = item.trait_.is_some();
        for member in &item.items {
            match member {
                syn::ImplItem::Fn(function) if of_trait => {
                    self.under(&function.attrs, |inner| inner.visit_block(&function.block));
                }
                _ => self.visit_impl_item(member),
            }
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.under(&function.attrs, |inner| visit::visit_impl_item_fn(inner, function));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if let Some(token) = &item.unsafety {
            self.add(Kind::Trait, token.span);
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_item_foreign_mod(&mut self, item: &'ast syn::ItemForeignMod) {
        let span = item.unsafety.as_ref().map_or(item.abi.extern_token.span, |token| token.span);
        self.add(Kind::ExternBlock, span);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if let syn::Safety::Unsafe(token) = &signature.safety {
            self.add(Kind::Function, token.span);
        }
        visit::visit_signature(self, signature);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.tokens(mac.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGUED: &str = "// SAFETY: the page is mapped for the whole life of `self`, and 8 bytes fit.\n";

    fn found(path: &str, text: &str) -> Vec<String> {
        let findings = check(&Tree::of(Role::Production, &[(path, text)]));
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn unsafe_code_outside_the_fences_is_found_in_any_guise() {
        for text in [
            "fn f() {\nARGUED unsafe { g() } }",
            "ARGUED unsafe impl Send for T {}",
            "/// # Safety\nunsafe fn f() {}",
            "/// # Safety\nunsafe trait T {}",
            "ARGUED unsafe extern \"C\" { fn f(); }",
            "ARGUED #[unsafe(no_mangle)] fn f() {}",
            "macro_rules! m { () => {\nARGUED unsafe { g() } } }",
            "fn f() { m!(\nARGUED unsafe { g() }) }",
            "impl GlobalAlloc for T { unsafe fn alloc(&self) {\nARGUED unsafe { g() } } }",
        ] {
            let text = text.replace("ARGUED", ARGUED);
            assert_eq!(found("crates/vm/src/lib.rs", &text), [""; 0], "{text}");
            let outside = found("src/lib.rs", &text);
            assert!(outside.len() == 1 && outside[0].contains("outside the fences"), "{text}: {outside:?}");
        }
    }

    #[test]
    fn unsafe_code_of_tests_needs_no_fence_but_an_argument() {
        let argued = format!("#[cfg(test)] mod tests {{ fn f() {{\n{ARGUED}unsafe {{ g() }} }} }}");
        assert_eq!(found("src/lib.rs", &argued), [""; 0]);
        let bare = "#[test]\nfn f() { unsafe { g() } }";
        assert_eq!(found("src/lib.rs", bare), ["unsafe block without a `// SAFETY:` comment directly above"]);
    }

    #[test]
    fn a_missing_far_or_thin_argument_is_found() {
        for (before, what) in [
            ("", "without a `// SAFETY:`"),
            ("// SAFETY: it is fine.\n", "only 3 words"),
            ("// Because the page is mapped for the whole life of self.\n", "without a `// SAFETY:`"),
            (&format!("{ARGUED}g();\n"), "without a `// SAFETY:`"),
            (&format!("{ARGUED}unsafe {{ g() }};\n"), "without a `// SAFETY:`"),
        ] {
            let findings = found("crates/vm/src/lib.rs", &format!("fn f() {{\n{before}unsafe {{ g() }}\n}}"));
            assert!(findings.len() == 1 && findings[0].contains(what), "{before}: {findings:?}");
        }
    }

    #[test]
    fn the_argument_may_stand_above_the_statement_or_the_attributes() {
        for text in [
            format!("fn f() {{\n{ARGUED}let x =\n    unsafe {{ g() }};\n}}"),
            format!("{ARGUED}#[cfg(loom)]\nunsafe impl Send for T {{}}"),
            "fn f() {\n// SAFETY: the page is mapped\n// for the whole life of `self`.\nunsafe { g() }\n}"
                .into(),
        ] {
            assert_eq!(found("crates/vm/src/lib.rs", &text), [""; 0], "{text}");
        }
    }

    #[test]
    fn an_unsafe_fn_without_a_safety_section_is_found() {
        let undocumented = "/// Reads.\nunsafe fn f() {}\nimpl T {\nunsafe fn g() {}\n}";
        let missing = "unsafe fn without a `# Safety` section";
        assert_eq!(found("crates/vm/src/lib.rs", undocumented), [missing, missing]);
        let documented = "/// Reads.\n///\n/// # Safety\n/// Mapped.\n#[inline]\npub unsafe fn f() {}";
        assert_eq!(found("crates/vm/src/lib.rs", documented), [""; 0]);
    }

    #[test]
    fn a_crate_that_promises_must_forbid_unsafe_code() {
        let package = |name: &str, manifest: &str, root: &str| Package {
            name: name.into(),
            manifest: manifest.into(),
            manifest_text: String::new(),
            dependencies: vec![],
            targets: vec![(Role::Production, root.into())],
        };
        let packages = [
            package("standpipe-engine", "crates/engine/Cargo.toml", "crates/engine/src/lib.rs"),
            package("standpipe-vm", "crates/vm/Cargo.toml", "crates/vm/src/lib.rs"),
        ];
        let with = |text| [Tree::of(Role::Production, &[("crates/engine/src/lib.rs", text)])];
        assert_eq!(forbidding(&packages, &with("#![forbid(unsafe_code)]")), []);
        assert_eq!(forbidding(&packages, &with("#![deny(unsafe_code)]")).len(), 1);
    }
}
