//! Rules broken on purpose, one at a time in a copy of the tree: the storm, the part's own tests, or a model
//! of it must notice each.
//!
//! A check that lets a broken rule pass checks nothing. Each mutation replaces one piece of the engine's, the
//! simulator's or a lock-free part's text, found there exactly once, so that a mutation that no longer fits
//! the code fails loudly, too.

use std::fs;
use std::path::Path;

use crate::command::{Failure, root, run};
use crate::invariants::{By, LOOM, MUTATIONS, Mutation};
use crate::outcome::Outcome;

/// Seconds that a try may take; a rule whose breach makes them go on for ever is noticed, too.
const LIMIT_S: u64 = 400;

/// Letters of what was found that are shown.
const SHOWN: usize = 100;

/// Breaks every rule in turn that has `only` in its words, and says which breaches were missed.
pub(crate) fn mutate(only: &str) -> Outcome {
    all(only).into()
}

fn all(only: &str) -> Result<(), Failure> {
    let chosen: Vec<&Mutation> = MUTATIONS.iter().filter(|mutation| mutation.rule.contains(only)).collect();
    if chosen.is_empty() {
        return Err(Failure(format!("no invariant has {only:?} in its words")));
    }
    let copy = tempfile::tempdir().map_err(|error| Failure(format!("no temporary folder: {error}")))?;
    copy_tree(copy.path())?;
    for by in [By::Storm, By::Tests(""), By::Loom(LOOM)] {
        found(copy.path(), by)?.map_or(Ok(()), |found| {
            Err(Failure(format!("something is found with every rule kept: {found}")))
        })?;
    }
    let mut missed = Vec::new();
    for (number, mutation) in (1..).zip(&chosen) {
        let path = copy.path().join("crates").join(mutation.file);
        let kept = read(&path)?;
        write(&path, &mutation.applied(&kept)?)?;
        let count = format!("{number} of {}", chosen.len());
        match found(copy.path(), mutation.by)? {
            Some(found) => println!("caught  {count}, {}: {found}", mutation.rule),
            None => {
                println!("MISSED  {count}, {}", mutation.rule);
                missed.push(mutation.rule);
            }
        }
        write(&path, &kept)?;
    }
    if missed.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("nothing noticed that these were broken: {}", missed.join("; "))))
}

impl Mutation {
    fn applied(&self, text: &str) -> Result<String, Failure> {
        match text.matches(self.keeps).count() {
            1 => Ok(text.replace(self.keeps, self.breaks)),
            count => Err(Failure(format!("{}: found {count} times: {}", self.file, self.keeps))),
        }
    }
}

/// Runs what is to notice a breach there. `Some`: it has found something. A copy that does not compile has
/// not been tried.
fn found(tree: &Path, by: By) -> Result<Option<String>, Failure> {
    let (target, flags) = match by {
        By::Loom(_) => ("target/mutate-loom", Some("--cfg loom")),
        By::Storm | By::Tests(_) => ("target/mutate", None),
    };
    let cargo = |line: &str| {
        let line = run("sh -c").arg(format!("cargo {line} >found 2>&1")).dir(tree).limit_s(LIMIT_S);
        let line = line.env("CARGO_TARGET_DIR", root().join(target)).env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
        if let Some(flags) = flags { line.env("RUSTFLAGS", flags) } else { line }
    };
    let (test, filter) = match by {
        By::Storm => ("test --package standpipe-sim --test storm", ""),
        By::Tests(filter) => ("test --package standpipe-engine", filter),
        By::Loom(filter) => ("test --package standpipe-vm --lib", filter),
    };
    cargo(&format!("{test} --no-run")).output()?;
    let tested = cargo(&format!("{test} -- {filter}")).output();
    let said = read(&tree.join("found"))?;
    let of_step = |line: &str| Some(line.strip_prefix("after step ")?.split_once(": ")?.1.to_owned());
    let of_test = |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
    let what = said.lines().find_map(|line| of_step(line).or_else(|| of_test(line)));
    Ok(tested.err().map(|Failure(how)| what.map_or(how, |what| what.chars().take(SHOWN).collect())))
}

/// Copies what Git tracks.
fn copy_tree(to: &Path) -> Result<(), Failure> {
    for file in run("git ls-files").dir(root()).output()?.lines() {
        let target = to.join(file);
        let parent = target.parent().expect("a file has a folder");
        let copied = fs::create_dir_all(parent).and_then(|()| fs::copy(root().join(file), &target));
        copied.map_err(|error| Failure(format!("cannot copy {file}: {error}")))?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure(format!("{}: {error}", path.display())))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_fits_the_code_as_it_is() {
        for mutation in MUTATIONS {
            let text = read(&root().join("crates").join(mutation.file)).expect("the file is there");
            let broken = mutation.applied(&text).unwrap_or_else(|failure| panic!("{}", failure.0));
            assert_ne!(broken, text, "{}", mutation.rule);
        }
    }
}
