//! The invariants of the engine, the simulator and the words by which memory is taken back, each with the
//! text that keeps it.
//!
//! `docs/INVARIANTS.md` lists them for readers; [`mutate`](crate::mutate) breaks each.

/// A rule, where it stands, the text that keeps it, the text that breaks it, and what notices that.
pub(crate) struct Mutation {
    pub(crate) rule: &'static str,
    pub(crate) file: &'static str,
    pub(crate) keeps: &'static str,
    pub(crate) breaks: &'static str,
    pub(crate) by: By,
}

/// What notices that a rule is broken.
#[derive(Clone, Copy)]
pub(crate) enum By {
    /// The simulator's storms.
    Storm,
    /// The engine's own tests that have this in their names.
    Tests(&'static str),
    /// Models that loom checks, which have this in their names.
    Loom(&'static str),
}

/// The models of [`vm::announcements`](../../vm/src/announcements.rs).
pub(crate) const LOOM: &str = "announcements::";

/// All of them, in the order in which they are broken.
pub(crate) const MUTATIONS: &[Mutation] = &[
    Mutation {
        rule: "every reference is given back",
        file: "engine/src/node/transfer/keyed.rs",
        keeps: "locals.into_iter().for_each(|reg| registration.table.release(reg));",
        breaks: "locals.into_iter().skip(1).for_each(|reg| registration.table.release(reg));",
        by: By::Storm,
    },
    Mutation {
        rule: "what is in use is not evicted",
        file: "engine/src/registration/table/entry.rs",
        keeps: "entry.local + entry.holders > 0 || entry.state != State::Ready",
        breaks: "entry.local > 0 || entry.state != State::Ready",
        by: By::Storm,
    },
    Mutation {
        rule: "a revocation is answered when the last use is over",
        file: "engine/src/registration/firehose/giving_up.rs",
        keeps: "let idle = hose.refs == 0;",
        breaks: "let idle = true;",
        by: By::Storm,
    },
    Mutation {
        rule: "a revoked right is not used any more",
        file: "engine/src/registration/firehose/giving_up.rs",
        keeps: "self.forget(at);\n        let hose = &mut self.hoses.0[at as usize];\n        hose.revoked = true;",
        breaks: "let hose = &mut self.hoses.0[at as usize];\n        hose.revoked = true;",
        by: By::Storm,
    },
    Mutation {
        rule: "messages are held back until revoked rights are given back",
        file: "engine/src/node/registration/revocations.rs",
        keeps: "!self.out.is_empty()",
        breaks: "false && !self.out.is_empty()",
        by: By::Storm,
    },
    Mutation {
        rule: "a right is given back once",
        file: "engine/src/node/registration/moves.rs",
        keeps: "registration.owed.entry(peer).or_default().push(holder),",
        breaks: "registration.owed.entry(peer).or_default().extend([holder, holder]),",
        by: By::Storm,
    },
    Mutation {
        rule: "what peers hold is charged to M",
        file: "engine/src/registration/table/holders.rs",
        keeps: "charge += if entry.is_some_and(|entry| entry.holders > 0) { 0 } else { bytes };",
        breaks: "charge += if entry.is_some_and(|entry| entry.holders > 0) { 0 } else { bytes / 2 };",
        by: By::Storm,
    },
    Mutation {
        rule: "bytes are pinned until the deregistration is over",
        file: "engine/src/node/registration/actions.rs",
        keeps: "Deregistering::Pending => {}",
        breaks: "Deregistering::Pending => registration.table.deregistered(reg),",
        by: By::Storm,
    },
    Mutation {
        rule: "peers are told keys of what is ready, and nothing else",
        file: "engine/src/registration/table/mod.rs",
        keeps: "(entry.state == State::Ready && is_for_peers(entry)).then_some(entry.key)",
        breaks: "is_for_peers(entry).then_some(entry.key)",
        by: By::Storm,
    },
    Mutation {
        rule: "a move names what was given up for it",
        file: "engine/src/node/registration/state.rs",
        keeps: "self.hoses.make_room(peer, most, detach);",
        breaks: "self.hoses.make_room(peer, most, &mut Vec::new());",
        by: By::Storm,
    },
    Mutation {
        rule: "a right that its revocation has overtaken is refused",
        file: "engine/src/node/registration/moves.rs",
        keeps: "if !registration.hoses.has(peer, holder) && registration.asks(peer) {",
        breaks: "if !registration.hoses.has(peer, holder) && registration.asks(peer) && holder.0 == u32::MAX {",
        by: By::Storm,
    },
    Mutation {
        rule: "a registration begins when it fits",
        file: "engine/src/registration/table/mod.rs",
        keeps: "if self.counters.pinned + bytes <= self.counters.budget {",
        breaks: "if self.counters.pinned <= self.counters.budget {",
        by: By::Storm,
    },
    Mutation {
        rule: "changed memory is registered anew before it is used",
        file: "engine/src/registration/table/changes.rs",
        keeps: "self.counters.invalidations += 1;\n        self.forget(at);",
        breaks: "self.counters.invalidations += 1;",
        by: By::Storm,
    },
    Mutation {
        rule: "a transfer is over when all of its parts are",
        file: "engine/src/node/transfer/keyed.rs",
        keeps: "if keyed.children == 0 {\n                    self.end_keyed(key);",
        breaks: "if keyed.children <= 1 {\n                    self.end_keyed(key);",
        by: By::Storm,
    },
    Mutation {
        rule: "who waits for a registration goes on when it is there",
        file: "engine/src/node/registration/actions.rs",
        keeps: "Waiter::Op(key) => self.ready.push_back(key),",
        breaks: "Waiter::Op(_) => {}",
        by: By::Storm,
    },
    Mutation {
        rule: "a lost peer is given nothing",
        file: "engine/src/node/poll.rs",
        keeps: "_ if self.core.is_gone(peer) => {}",
        breaks: "_ if self.core.is_gone(u32::MAX) => {}",
        by: By::Storm,
    },
    Mutation {
        rule: "puts without a key are held back, too",
        file: "engine/src/node/transfer/put_get.rs",
        keeps: "if direction == Direction::Put && self.mail.holds_back() {",
        breaks: "if direction == Direction::Put && self.core.rank == u32::MAX {",
        by: By::Storm,
    },
    Mutation {
        rule: "what was meant for a process does not reach the next of its rank",
        file: "sim/src/onesided.rs",
        keeps: "flight.op.is_some() && sent && self.lived(flight.peer, flight.peer_incarnation, self.now)",
        breaks: "flight.op.is_some() && sent && self.process(flight.peer).lived_at(self.now)",
        by: By::Storm,
    },
    Mutation {
        rule: "a process that has been replaced is heard no more",
        file: "sim/src/incarnation.rs",
        keeps: "if incarnation < met.incarnation.max(met.void) {\n            return Admission::Refused;",
        breaks: "if incarnation < met.incarnation.max(met.void) {\n            return Admission::Granted;",
        by: By::Storm,
    },
    Mutation {
        rule: "who was given up is let in no more",
        file: "engine/src/node/peer_loss.rs",
        keeps: "            self.core.transport.disconnect(peer);\n",
        breaks: "",
        by: By::Storm,
    },
    Mutation {
        rule: "rights to the memory of a process that is gone are gone",
        file: "engine/src/node/registration/moves.rs",
        keeps: "        registration.hoses.drop_peer(peer);\n",
        breaks: "",
        by: By::Storm,
    },
    Mutation {
        rule: "what a process held that is gone is for others",
        file: "engine/src/node/registration/moves.rs",
        keeps: "        registration.drop_holder(peer);\n",
        breaks: "",
        by: By::Storm,
    },
    Mutation {
        rule: "a right is given back to nobody but who gave it",
        file: "engine/src/registration/firehose/uses.rs",
        keeps: "return if gone { Released::Gone } else { Released::Wanted(peer, holder) };",
        breaks: "return if gone { Released::Wanted(peer, holder) } else { Released::Wanted(peer, holder) };",
        by: By::Storm,
    },
    Mutation {
        rule: "what was given up counts until it can write no more",
        file: "engine/src/node/operations/mod.rs",
        keeps: "if !awaited.is_empty() && !core.is_lost(peer) {",
        breaks: "if !awaited.is_empty() && core.is_lost(core.rank) {",
        by: By::Storm,
    },
    Mutation {
        rule: "a chunk that was given up is awaited",
        file: "engine/src/node/transfer/chunks.rs",
        keeps: "if transfer.direction == Direction::Put {\n            let sent",
        breaks: "if transfer.direction == Direction::Put && transfer.peer == u32::MAX {\n            let sent",
        by: By::Storm,
    },
    Mutation {
        rule: "a put that rides in a move and was given up is awaited",
        file: "engine/src/node/transfer/keyed.rs",
        keeps: "awaited.extend(keyed.riding.map(|_| Awaited::Ridden(key)));",
        breaks: "",
        by: By::Storm,
    },
    Mutation {
        rule: "a name that was revoked means nothing",
        file: "engine/src/grants.rs",
        keeps: "line.generation == grant.generation && line.is_granted()",
        breaks: "line.is_granted()",
        by: By::Storm,
    },
    Mutation {
        rule: "a grant's key is taken back before its memory is another's",
        file: "engine/src/registration/table/granted.rs",
        keeps: "self.granted.counts.get(&grant).is_none_or(|count| *count == current)",
        breaks: "self.granted.counts.get(&grant).is_none_or(|count| *count >= current)",
        by: By::Storm,
    },
    Mutation {
        rule: "who revokes or re-points takes keys back",
        file: "engine/src/node/calls/grants.rs",
        keeps: "        registration.table.recall_grant(grant);\n",
        breaks: "        registration.table.is_grant_idle(grant);\n",
        by: By::Storm,
    },
    Mutation {
        rule: "a key is for those to whom its memory is granted",
        file: "engine/src/node/registration/granted.rs",
        keeps: "granted.rights == Rights::ReadWrite && granted.is_for(peer)",
        breaks: "granted.rights == Rights::ReadWrite",
        by: By::Storm,
    },
    Mutation {
        rule: "an atomic in a grant needs the rights to what it does",
        file: "engine/src/node/transfer/access.rs",
        keeps: "resolve(own, peer, atomic.rights(), (word, size))",
        breaks: "resolve(own, peer, crate::Rights::Read, (word, size))",
        by: By::Storm,
    },
    Mutation {
        rule: "an atomic in a grant that was given up is awaited",
        file: "engine/src/node/transfer/atomics.rs",
        keeps: "if asked.sent && asked.atomic.may_change() {",
        breaks: "if asked.sent && asked.peer == u32::MAX {",
        by: By::Tests("an_atomic_that_is_given_up_settles"),
    },
    Mutation {
        rule: "what waits for a lane goes before what comes later",
        file: "engine/src/node/mail/mod.rs",
        keeps: "self.must_wait(peer, lane) || self.outbox.has(peer, lane)",
        breaks: "self.must_wait(peer, lane)",
        by: By::Tests("mail::"),
    },
    Mutation {
        rule: "an answer that is held back waits",
        file: "engine/src/node/mail/deferred.rs",
        keeps: "if deferred.held && holds_back {",
        breaks: "if deferred.held && holds_back && lane == Lane::Request {",
        by: By::Tests("mail::"),
    },
    Mutation {
        rule: "what is held back is counted",
        file: "engine/src/node/mail/deferred.rs",
        keeps: "self.held_bytes += deferred.held_bytes();",
        breaks: "",
        by: By::Tests("mail::"),
    },
    Mutation {
        rule: "the first outcome of an operation counts",
        file: "engine/src/node/operations/mod.rs",
        keeps: "let Some(op) = self.table.get_mut(key).filter(|op| op.outcome.is_none()) else { return };",
        breaks: "let Some(op) = self.table.get_mut(key) else { return };",
        by: By::Tests("operations::"),
    },
    Mutation {
        rule: "an operation that has ended is under way no more",
        file: "engine/src/node/operations/mod.rs",
        keeps: "            self.clients.end(op.client);\n        }\n        if op.parent",
        breaks: "        }\n        if op.parent",
        by: By::Tests("operations::"),
    },
    Mutation {
        rule: "an end that nobody asks about is handed on",
        file: "engine/src/node/operations/mod.rs",
        keeps: "self.ends.push_back(End { key, parent, outcome, kind });",
        breaks: "drop((key, parent, outcome, kind));",
        by: By::Tests("operations::"),
    },
    Mutation {
        rule: "an answer settles what was given up once",
        file: "engine/src/node/operations/settling.rs",
        keeps: "        known.remove(&awaited);\n",
        breaks: "",
        by: By::Tests("operations::"),
    },
    Mutation {
        rule: "whoever comes last opens the barrier",
        file: "engine/src/node/barrier/mod.rs",
        keeps: "Ok(before) if before % size == size - 1 => {",
        breaks: "Ok(before) if before % size == size - 2 => {",
        by: By::Tests("barrier::"),
    },
    Mutation {
        rule: "an old notice opens no later barrier",
        file: "engine/src/node/barrier/mod.rs",
        keeps: "        if epoch <= self.opened {",
        breaks: "        if epoch < self.opened {",
        by: By::Tests("barrier::"),
    },
    Mutation {
        rule: "a collective is over when nothing of it is open",
        file: "engine/src/node/teams/run.rs",
        keeps: "self.at == self.plan.steps.len() && self.open == 0 &&",
        breaks: "self.at == self.plan.steps.len() &&",
        by: By::Tests("teams"),
    },
    Mutation {
        rule: "no member is sent what it cannot keep",
        file: "engine/src/node/teams/steps.rs",
        keeps: "if run.number > pace.come_to.saturating_add(AHEAD) {",
        breaks: "if run.number > pace.come_to.saturating_add(AHEAD * 1000) {",
        by: By::Tests("teams"),
    },
    Mutation {
        rule: "what members offer is confirmed before it is made use of",
        file: "engine/src/node/teams/steps.rs",
        keeps: "if of.is_some_and(|tag| !run.is_confirmed(tag)) {",
        breaks: "if of.is_some_and(|tag| !run.is_confirmed(tag) && tag == u16::MAX) {",
        by: By::Tests("team"),
    },
    Mutation {
        rule: "no end lies until something else moves",
        file: "engine/src/node/poll.rs",
        keeps: "        self.on_completed(id, result);\n        self.work();\n",
        breaks: "        self.on_completed(id, result);\n",
        by: By::Storm,
    },
    Mutation {
        rule: "a peer that breaks the rules is given up",
        file: "engine/src/node/core.rs",
        keeps: "        self.counters.malformed += 1;\n        self.lose_soon(peer);",
        breaks: "        self.counters.malformed += 1;",
        by: By::Tests("node"),
    },
    Mutation {
        rule: "whoever announces a use looks after that",
        file: "vm/src/announcements.rs",
        keeps: "        self.0.store(epoch << NUMBER_BITS | u64::from(owner), Ordering::Release);\n        fence(Ordering::SeqCst);",
        breaks: "        self.0.store(epoch << NUMBER_BITS | u64::from(owner), Ordering::Release);",
        by: By::Loom(LOOM),
    },
    Mutation {
        rule: "a use is over when a later one is announced",
        file: "vm/src/announcements.rs",
        keeps: "self.0.store(epoch << NUMBER_BITS | u64::from(owner), Ordering::Release);",
        breaks: "self.0.store(epoch << NUMBER_BITS | u64::from(owner), Ordering::Relaxed);",
        by: By::Loom(LOOM),
    },
    Mutation {
        rule: "an owner looks for users after it has barred new ones",
        file: "vm/src/announcements.rs",
        keeps: "pub fn before_looking_for_users() {\n    fence(Ordering::SeqCst);",
        breaks: "pub fn before_looking_for_users() {",
        by: By::Loom(LOOM),
    },
    Mutation {
        rule: "a use is over when its end is seen",
        file: "vm/src/announcements.rs",
        keeps: "self.0.store(0, Ordering::Release);",
        breaks: "self.0.store(0, Ordering::Relaxed);",
        by: By::Loom(LOOM),
    },
    Mutation {
        rule: "a look finds words that were together",
        file: "vm/src/announcements.rs",
        keeps: "if before & 1 == 0 && table.load_all(at, [Ordering::Relaxed])? == [before] {",
        breaks: "if before & 1 == 0 {",
        by: By::Loom(LOOM),
    },
    Mutation {
        rule: "a line is marked while it changes",
        file: "vm/src/announcements.rs",
        keeps: "    line[0].store(before.wrapping_add(1), Ordering::Relaxed);\n    fence(Ordering::Release);",
        breaks: "    line[0].store(before.wrapping_add(1), Ordering::Relaxed);",
        by: By::Loom(LOOM),
    },
    Mutation {
        rule: "a word is counted before it is announced in",
        file: "vm/src/announcements.rs",
        keeps: "used.fetch_max(index + 1, Ordering::SeqCst);",
        breaks: "used.fetch_max(index, Ordering::SeqCst);",
        by: By::Loom(LOOM),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::root;

    fn row(mutation: &Mutation) -> String {
        let by = match mutation.by {
            By::Storm => "storms",
            By::Tests(filter) => &format!("tests of `{}`", filter.trim_end_matches("::")),
            By::Loom(filter) => &format!("loom on `{}`", filter.trim_end_matches("::")),
        };
        format!("| {} | `{}` | {by} |\n", mutation.rule, mutation.file)
    }

    #[test]
    fn the_page_lists_them_all_in_this_order() {
        let page = root().join("docs/INVARIANTS.md");
        let rows: String = MUTATIONS.iter().map(row).collect();
        if std::env::var("STANDPIPE_TEST_INVARIANTS").is_ok_and(|mode| mode == "write") {
            std::fs::write(&page, format!("{HEAD}{rows}")).expect("the page is written");
        }
        let page = std::fs::read_to_string(&page).expect("the page is there");
        assert_eq!(page, format!("{HEAD}{rows}"), "STANDPIPE_TEST_INVARIANTS=write writes it anew");
    }

    /// What stands before the table.
    const HEAD: &str = "\
# What must hold

This page is for people who change the engine, the simulator, or how memory that is granted is taken back.
`cargo xtask mutate` breaks each of these, one at a time in a copy of the tree, and wants what is named to
fail. The list itself is `crates/xtask/src/invariants.rs`. The storms look at every invariant of the tables
after every step (`Node::audit`), and programs of the simulator compare every byte.

| invariant | kept by `crates/` | noticed by |
|---|---|---|
";
}
