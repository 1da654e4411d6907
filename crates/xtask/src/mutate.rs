//! Rules broken on purpose, one at a time in a copy of the tree: the storm must notice each.
//!
//! A check that lets a broken rule pass checks nothing. Each mutation replaces one piece of the engine's or
//! the simulator's text, found there exactly once, so that a mutation that no longer fits the code fails
//! loudly, too.

use std::fs;
use std::path::Path;

use crate::command::{Failure, root, run};
use crate::outcome::Outcome;

/// Seconds that all storms may take; a rule whose breach makes them go on for ever is noticed, too.
const LIMIT_S: u64 = 400;

/// Letters of what was found that are shown.
const SHOWN: usize = 100;

/// A rule, where it stands, the text that keeps it, and the text that breaks it.
struct Mutation {
    rule: &'static str,
    file: &'static str,
    keeps: &'static str,
    breaks: &'static str,
}

const MUTATIONS: [Mutation; 26] = [
    Mutation {
        rule: "every reference is given back",
        file: "engine/src/node/transfer/keyed.rs",
        keeps: "locals.into_iter().for_each(|reg| registration.table.release(reg));",
        breaks: "locals.into_iter().skip(1).for_each(|reg| registration.table.release(reg));",
    },
    Mutation {
        rule: "what is in use is not evicted",
        file: "engine/src/registration/table/entry.rs",
        keeps: "entry.local + entry.holders > 0 || entry.state != State::Ready",
        breaks: "entry.local > 0 || entry.state != State::Ready",
    },
    Mutation {
        rule: "a revocation is answered when the last use is over",
        file: "engine/src/registration/firehose/mod.rs",
        keeps: "let idle = hose.refs == 0;",
        breaks: "let idle = true;",
    },
    Mutation {
        rule: "a revoked right is not used any more",
        file: "engine/src/registration/firehose/mod.rs",
        keeps: "self.forget(at);\n        let hose = &mut self.hoses.0[at as usize];\n        hose.revoked = true;",
        breaks: "let hose = &mut self.hoses.0[at as usize];\n        hose.revoked = true;",
    },
    Mutation {
        rule: "messages are held back until revoked rights are given back",
        file: "engine/src/node/registration/revocations.rs",
        keeps: "!self.out.is_empty()",
        breaks: "false && !self.out.is_empty()",
    },
    Mutation {
        rule: "a right is given back once",
        file: "engine/src/node/registration/moves.rs",
        keeps: "registration.owed.entry(peer).or_default().push(holder),",
        breaks: "registration.owed.entry(peer).or_default().extend([holder, holder]),",
    },
    Mutation {
        rule: "what peers hold is charged to M",
        file: "engine/src/registration/table/holders.rs",
        keeps: "charge += if entry.is_some_and(|entry| entry.holders > 0) { 0 } else { bytes };",
        breaks: "charge += if entry.is_some_and(|entry| entry.holders > 0) { 0 } else { bytes / 2 };",
    },
    Mutation {
        rule: "bytes are pinned until the deregistration is over",
        file: "engine/src/node/registration/actions.rs",
        keeps: "Deregistering::Pending => {}",
        breaks: "Deregistering::Pending => registration.table.deregistered(reg),",
    },
    Mutation {
        rule: "peers are told keys of what is ready, and nothing else",
        file: "engine/src/registration/table/mod.rs",
        keeps: "(entry.state == State::Ready && entry.is_for == IsFor::All).then_some(entry.key)",
        breaks: "(entry.is_for == IsFor::All).then_some(entry.key)",
    },
    Mutation {
        rule: "a move names what was given up for it",
        file: "engine/src/node/registration/moves.rs",
        keeps: "registration.hoses.make_room(peer, detach_max, detach);",
        breaks: "registration.hoses.make_room(peer, detach_max, &mut Vec::new());",
    },
    Mutation {
        rule: "a right that its revocation has overtaken is refused",
        file: "engine/src/node/registration/moves.rs",
        keeps: "if !registration.hoses.has(peer, holder) && registration.asks(peer) {",
        breaks: "if !registration.hoses.has(peer, holder) && registration.asks(peer) && holder.0 == u32::MAX {",
    },
    Mutation {
        rule: "a registration begins when it fits",
        file: "engine/src/registration/table/mod.rs",
        keeps: "if self.counters.pinned + bytes <= self.counters.budget {",
        breaks: "if self.counters.pinned <= self.counters.budget {",
    },
    Mutation {
        rule: "changed memory is registered anew before it is used",
        file: "engine/src/registration/table/mod.rs",
        keeps: "self.counters.invalidations += 1;\n        self.forget(at);",
        breaks: "self.counters.invalidations += 1;",
    },
    Mutation {
        rule: "a transfer is over when all of its parts are",
        file: "engine/src/node/transfer/keyed.rs",
        keeps: "if keyed.children == 0 {\n                    self.end_keyed(key);",
        breaks: "if keyed.children <= 1 {\n                    self.end_keyed(key);",
    },
    Mutation {
        rule: "who waits for a registration goes on when it is there",
        file: "engine/src/node/registration/actions.rs",
        keeps: "Waiter::Op(key) => self.ready.push_back(key),",
        breaks: "Waiter::Op(_) => {}",
    },
    Mutation {
        rule: "a lost peer is given nothing",
        file: "engine/src/node/poll.rs",
        keeps: "_ if self.is_gone(peer) => {}",
        breaks: "_ if self.is_gone(u32::MAX) => {}",
    },
    Mutation {
        rule: "puts without a key are held back, too",
        file: "engine/src/node/transfer/put_get.rs",
        keeps: "if direction == Direction::Put && self.holds_back() {",
        breaks: "if direction == Direction::Put && self.rank == u32::MAX {",
    },
    Mutation {
        rule: "what was meant for a process does not reach the next of its rank",
        file: "sim/src/onesided.rs",
        keeps: "flight.op.is_some() && sent && self.lived(flight.peer, flight.peer_incarnation, self.now)",
        breaks: "flight.op.is_some() && sent && self.process(flight.peer).lived_at(self.now)",
    },
    Mutation {
        rule: "a process that has been replaced is heard no more",
        file: "sim/src/incarnation.rs",
        keeps: "if incarnation < met.incarnation.max(met.void) {\n            return Admission::Refused;",
        breaks: "if incarnation < met.incarnation.max(met.void) {\n            return Admission::Granted;",
    },
    Mutation {
        rule: "who was given up is let in no more",
        file: "engine/src/node/peer_loss.rs",
        keeps: "            self.transport.disconnect(peer);\n",
        breaks: "",
    },
    Mutation {
        rule: "rights to the memory of a process that is gone are gone",
        file: "engine/src/node/registration/moves.rs",
        keeps: "        registration.hoses.drop_peer(peer);\n",
        breaks: "",
    },
    Mutation {
        rule: "what a process held that is gone is for others",
        file: "engine/src/node/registration/moves.rs",
        keeps: "        registration.drop_holder(peer);\n",
        breaks: "",
    },
    Mutation {
        rule: "a right is given back to nobody but who gave it",
        file: "engine/src/registration/firehose/uses.rs",
        keeps: "return if gone { Released::Gone } else { Released::Wanted(peer, holder) };",
        breaks: "return if gone { Released::Wanted(peer, holder) } else { Released::Wanted(peer, holder) };",
    },
    Mutation {
        rule: "what was given up counts until it can write no more",
        file: "engine/src/node/op_table.rs",
        keeps: "if !self.is_lost(peer) {",
        breaks: "if self.is_lost(self.rank) {",
    },
    Mutation {
        rule: "a chunk that was given up is awaited",
        file: "engine/src/node/transfer/chunks.rs",
        keeps: "if transfer.direction == Direction::Put {\n            let sent",
        breaks: "if transfer.direction == Direction::Put && transfer.peer == u32::MAX {\n            let sent",
    },
    Mutation {
        rule: "a put that rides in a move and was given up is awaited",
        file: "engine/src/node/transfer/keyed.rs",
        keeps: "awaited.extend(keyed.riding.map(|_| Awaited::Ridden(key)));",
        breaks: "",
    },
];

/// Breaks every rule in turn, and says which the storm did not miss.
pub(crate) fn mutate() -> Outcome {
    all().into()
}

fn all() -> Result<(), Failure> {
    let copy = tempfile::tempdir().map_err(|error| Failure(format!("no temporary folder: {error}")))?;
    copy_tree(copy.path())?;
    storm(copy.path())?.map_or(Ok(()), |found| {
        Err(Failure(format!("the storm finds something with every rule kept: {found}")))
    })?;
    let mut missed = Vec::new();
    for mutation in &MUTATIONS {
        let path = copy.path().join("crates").join(mutation.file);
        let kept = read(&path)?;
        write(&path, &mutation.applied(&kept)?)?;
        match storm(copy.path())? {
            Some(found) => println!("caught  {}: {found}", mutation.rule),
            None => {
                println!("MISSED  {}", mutation.rule);
                missed.push(mutation.rule);
            }
        }
        write(&path, &kept)?;
    }
    if missed.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("the storm did not notice that these were broken: {}", missed.join("; "))))
}

impl Mutation {
    fn applied(&self, text: &str) -> Result<String, Failure> {
        match text.matches(self.keeps).count() {
            1 => Ok(text.replace(self.keeps, self.breaks)),
            count => Err(Failure(format!("{}: found {count} times: {}", self.file, self.keeps))),
        }
    }
}

/// Runs the storms of the simulator's tests there. `Some`: what they found. A copy that does not compile has
/// not been tried.
fn storm(tree: &Path) -> Result<Option<String>, Failure> {
    let cargo = |line: &str| {
        let target = root().join("target/mutate");
        let line = run("sh -c").arg(format!("cargo {line} >found 2>&1")).dir(tree).limit_s(LIMIT_S);
        line.env("CARGO_TARGET_DIR", target).env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
    };
    cargo("test --package standpipe-sim --test storm --no-run").output()?;
    let tested = cargo("test --package standpipe-sim --test storm").output();
    let found = read(&tree.join("found"))?;
    let what = found
        .lines()
        .find_map(|line| line.strip_prefix("after step ").and_then(|rest| rest.split_once(": ")));
    Ok(tested.err().map(|Failure(how)| what.map_or(how, |(_, what)| what.chars().take(SHOWN).collect())))
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
        for mutation in &MUTATIONS {
            let text = read(&root().join("crates").join(mutation.file)).expect("the file is there");
            let broken = mutation.applied(&text).unwrap_or_else(|failure| panic!("{}", failure.0));
            assert_ne!(broken, text, "{}", mutation.rule);
        }
    }
}
