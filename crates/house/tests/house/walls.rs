//! Which of our crates may depend on which (the directions of the design), and from where others may come.

use crate::finding::Finding;
use crate::workspace::Package;

/// What one package of ours may depend on, of ours.
struct Wall {
    package: &'static str,
    normal: &'static [&'static str],
    dev: &'static [&'static str],
}

const fn wall(package: &'static str, normal: &'static [&'static str], dev: &'static [&'static str]) -> Wall {
    Wall { package, normal, dev }
}

/// Every crate of ours, those to come included.
const WALLS: &[Wall] = &[
    wall("standpipe-testbed", &[], &[]),
    wall("standpipe-engine", &[], &[]),
    wall("standpipe-vm", &[], &["standpipe-testbed"]),
    wall("standpipe-fabric", &[], &["standpipe-testbed"]),
    wall("standpipe-pmix", &[], &[]),
    wall(
        "standpipe",
        &["standpipe-engine", "standpipe-vm", "standpipe-fabric", "standpipe-pmix"],
        &["standpipe-conformance", "standpipe-sim", "standpipe-testbed"],
    ),
    wall("standpipe-sim", &["standpipe-engine"], &["standpipe-conformance"]),
    wall("standpipe-conformance", &["standpipe-engine", "standpipe-testbed"], &[]),
    wall("standpipe-layer-list", &[], &[]),
    wall("standpipe-layers", &["standpipe", "standpipe-layer-list"], &["standpipe-testbed"]),
    wall("standpipe-layers-c", &["standpipe", "standpipe-layers"], &["standpipe-testbed"]),
    wall("standpipe-capi", &["standpipe"], &["standpipe-testbed"]),
    wall("standpipe-malloc", &["standpipe-vm"], &["standpipe", "standpipe-capi", "standpipe-testbed"]),
    wall("standpipe-python", &["standpipe"], &[]),
    wall("block-directory", &["standpipe"], &[]),
    // Its limits do without the library what the library does: they call the same system underneath.
    wall("standpipe-measure", &["standpipe", "standpipe-vm", "standpipe-fabric"], &["standpipe-testbed"]),
    wall(
        "standpipe-studies",
        &["standpipe", "standpipe-layers", "standpipe-measure", "standpipe-sim", "block-directory"],
        &["standpipe-testbed"],
    ),
    wall(
        "standpipe-cli",
        &["standpipe", "standpipe-layer-list", "standpipe-measure"],
        &["standpipe-testbed"],
    ),
    wall(
        "standpipe-study",
        &["standpipe", "standpipe-measure", "standpipe-sim", "standpipe-studies"],
        &["standpipe-testbed"],
    ),
    wall("standpipe-house", &[], &[]),
    wall("xtask", &["standpipe-testbed"], &[]),
];

/// Dependencies that go through a wall, crates the table does not know, and crates from outside the registry.
pub(crate) fn check(packages: &[Package]) -> Vec<Finding> {
    packages.iter().flat_map(check_package).collect()
}

/// Packages that do not take the workspace's lints, and so escape `missing_docs` and the rules on unsafe
/// code.
pub(crate) fn lints(packages: &[Package]) -> Vec<Finding> {
    let bare = packages.iter().filter(|package| !package.manifest_text.contains("[lints]\nworkspace = true"));
    bare.map(|package| {
        Finding::new(
            &package.manifest,
            0,
            "does not take the workspace's lints",
            "add `[lints]` with `workspace = true`",
        )
    })
    .collect()
}

fn check_package(package: &Package) -> Vec<Finding> {
    let Some(wall) = WALLS.iter().find(|wall| wall.package == package.name) else {
        let what = format!("crate `{}` is not in the table of walls", package.name);
        return vec![Finding::new(
            &package.manifest,
            0,
            what,
            "declare it in WALLS of crates/house/tests/house/walls.rs",
        )];
    };
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        let allowed = if dependency.dev { [wall.normal, wall.dev].concat() } else { wall.normal.to_vec() };
        let kind = if dependency.dev { "for tests" } else { "normally" };
        let to = dependency.package.as_str();
        let from_registry =
            dependency.source.as_deref().is_some_and(|source| source.starts_with("registry+"));
        let ours = dependency.source.is_none();
        if ours && to != package.name && !allowed.contains(&to) {
            let what = format!("`{}` depends {kind} on `{to}`; it may on {allowed:?}", package.name);
            let remedy = "turn the dependency round or move the code to where it belongs";
            findings.push(Finding::new(&package.manifest, line_of(package, to), what, remedy));
        } else if !ours && !from_registry {
            let what = format!("`{to}` comes from {}", dependency.source.as_deref().unwrap_or("nowhere"));
            findings.push(Finding::new(
                &package.manifest,
                line_of(package, to),
                what,
                "take it from crates.io",
            ));
        }
    }
    findings
}

/// The manifest's line that names `dependency`, under its package's name or the short one the workspace gives
/// it.
fn line_of(package: &Package, dependency: &str) -> usize {
    let short = dependency.strip_prefix("standpipe-").unwrap_or(dependency);
    let mut lines = package.manifest_text.lines().skip_while(|line| !line.contains("dependencies]"));
    let names = |line: &str| line.starts_with(short) || line.starts_with(dependency);
    let before = package.manifest_text.lines().count() - lines.clone().count();
    lines.position(names).map_or(0, |position| before + position + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, dependencies: &[(&str, bool, Option<&str>)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(package, dev, source)| Dependency {
                package: package.to_string(),
                dev: *dev,
                source: source.map(str::to_owned),
            })
            .collect();
        let manifest_text =
            "[package]\n[dependencies]\nvm.workspace = true\n[lints]\nworkspace = true\n".into();
        Package {
            name: name.into(),
            manifest: "Cargo.toml".into(),
            manifest_text,
            dependencies,
            targets: vec![],
        }
    }

    #[test]
    fn a_dependency_through_a_wall_is_found_with_its_line() {
        let found = check(&[package("standpipe-engine", &[("standpipe-vm", false, None)])]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
        assert!(
            found[0].what.contains("`standpipe-engine` depends normally on `standpipe-vm`"),
            "{}",
            found[0]
        );
    }

    #[test]
    fn a_dependency_for_tests_stays_one() {
        let conformance = "standpipe-conformance";
        assert_eq!(check(&[package("standpipe", &[(conformance, true, None)])]), []);
        assert_eq!(check(&[package("standpipe", &[(conformance, false, None)])]).len(), 1);
    }

    #[test]
    fn an_undeclared_crate_is_found() {
        assert!(check(&[package("standpipe-new", &[])])[0].what.contains("not in the table"));
    }

    #[test]
    fn a_crate_from_outside_the_registry_is_found() {
        let registry = Some("registry+https://github.com/rust-lang/crates.io-index");
        assert_eq!(check(&[package("standpipe", &[("libc", false, registry)])]), []);
        let git = Some("git+https://example.org/libc");
        assert!(check(&[package("standpipe", &[("libc", false, git)])])[0].what.contains("git+https"));
    }

    #[test]
    fn a_package_without_the_workspace_lints_is_found() {
        let mut bare = package("standpipe", &[]);
        assert_eq!(lints(std::slice::from_ref(&bare)), []);
        bare.manifest_text = "[package]\n".into();
        assert_eq!(lints(&[bare]).len(), 1);
    }
}
