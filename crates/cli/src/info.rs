//! `standpipe info`: the transports there are, and libfabric's providers with what each can do and needs.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use measure::signals::complain;
use measure::stdout::print;
use measure::table::{Layout, Table, plain, wrapped};
use measure::transport;
use serde::Serialize;
use standpipe::network::{Library, ONE_SIDED_MIN, Offer, Tested, library, look_for, untested};
use standpipe::path::{self, Access, Facts, Keys, Limits, MemId, Wanted};
use standpipe::{PathReason, STAGED_MIN};

/// Arguments of `standpipe info`.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// One transport, as the setting `STANDPIPE_TRANSPORT` names it.
#[derive(Debug, Serialize)]
struct Transport {
    name: &'static str,
    /// Whether nodes can be opened over it here.
    usable: bool,
    /// Why not.
    error: Option<String>,
    /// Providers that are chosen where they are, and were never tried for want of hardware.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    untested: Vec<&'static str>,
    /// What it runs on, where that is not the system alone.
    #[serde(flatten)]
    library: Option<Library>,
}

/// All of it.
#[derive(Debug, Serialize)]
struct Info {
    transports: Vec<Transport>,
    paths: Vec<PathRow>,
}

/// Which path is taken to what.
#[derive(Debug, Serialize)]
struct PathRow {
    /// Where the memory lies.
    memory: &'static str,
    /// Where the peer is, and what may be done there.
    peer: &'static str,
    /// What is transferred.
    what: &'static str,
    /// How, by the name that it has in the library: an older key.
    path: &'static str,
    /// As what it counts, which is the word in `top`, metrics and `PathReason`s.
    mechanism: &'static str,
}

/// The paths that the library takes: what it is asked itself, for examples of all that decides.
fn paths() -> Vec<PathRow> {
    const SHORT: u64 = 1 << 10;
    let row = |memory, peer, what, bytes, access| {
        let limits = Limits { small: SHORT, direct_min: ONE_SIDED_MIN, staged_min: STAGED_MIN, stages: true };
        let mem = match memory {
            HEAP => MemId::Heap,
            GRANTED => MemId::Grant(0),
            _ => MemId::Space,
        };
        let facts = Facts { wanted: Wanted::Put, bytes, alone: true, memory: mem, access, limits };
        let path = path::choose(&facts).path;
        PathRow { memory, peer, what, path: path.name(), mechanism: path.mechanism().name() }
    };
    let refused = Access::Attach(Err(PathReason::PtraceDenied));
    let (near, nearby) = ("near", "near, attach refused");
    vec![
        row(HEAP, near, "any", SHORT, Access::Mapped),
        row(PRIVATE, near, "any", SHORT, Access::Attach(Ok(()))),
        row(PRIVATE, nearby, "short", SHORT, refused),
        row(PRIVATE, nearby, "long", STAGED_MIN, refused),
        row(HEAP, "far, over sockets", "a word", 8, Access::Direct),
        row(HEAP, "far, over sockets", "more", SHORT, Access::Direct),
        row(HEAP, "far, registered", "any, a hit", 8, Access::Keys(Keys::Held)),
        row(PRIVATE, "far, not registered", "short", SHORT, Access::No(PathReason::Network)),
        row(PRIVATE, "far, not registered", "long", STAGED_MIN, Access::No(PathReason::Network)),
        row(PRIVATE, "far, registered", "a hit", SHORT, Access::Keys(Keys::Held)),
        row(PRIVATE, "far, registered", "a miss, short", SHORT, Access::Keys(Keys::Absent { pays: true })),
        row(PRIVATE, "far, registered", "a miss", STAGED_MIN, Access::Keys(Keys::Absent { pays: true })),
        row(PRIVATE, "far, registered", "no room", SHORT, Access::Keys(Keys::Refused)),
        row(GRANTED, near, "any", SHORT, Access::Attach(Ok(()))),
        row(GRANTED, nearby, "short", SHORT, refused),
        row(GRANTED, nearby, "long", STAGED_MIN, refused),
        row(GRANTED, "far", "short", SHORT, Access::No(PathReason::Granted)),
        row(GRANTED, "far", "long", STAGED_MIN, Access::No(PathReason::Granted)),
    ]
}

const HEAP: &str = "heap";
const PRIVATE: &str = "private";
const GRANTED: &str = "granted";

const PATHS: &str = "path: mapped, a store; cma, cross-memory attach, one system call; registered, one-sided by a key; \
                     message, which the owner answers. how: one key, for the whole heap; held key, known already; asks \
                     first, the owner is asked for a key; riding, short bytes go with the question; staged, \
                     through the owner's heap; inside, in the messages themselves.";

/// How a path is taken, where there are several of its word.
fn how(path: &str) -> &str {
    match path {
        "direct" => "one key",
        "registered" => "held key",
        "asked" => "asks first",
        "asked, riding" => "riding",
        "staged" => "staged",
        "chunks" => "inside",
        _ => "",
    }
}

/// Looks at what there is, and prints it.
///
/// # Errors
/// If standard output cannot take the result.
pub(crate) fn run(args: &InfoArgs) -> Result<ExitCode> {
    // One that cannot be read has been told already.
    if let Ok(transport) = transport::chosen(None)
        && let Err(error) = transport::look_for(&transport)
    {
        complain(format_args!(
            "standpipe: no node would open: {}={transport}: {error}",
            transport::TRANSPORT
        ));
    }
    let info = Info { transports: vec![SHM, ofi()], paths: paths() };
    if args.json {
        print(serde_json::to_string_pretty(&info)?)?;
    } else {
        print(text(&info, Layout::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

const SHM: Transport =
    Transport { name: "shm", usable: true, error: None, untested: Vec::new(), library: None };

fn ofi() -> Transport {
    let untested = untested().collect();
    match library() {
        Ok(library) => {
            // What `run` and nodes ask, too.
            let error = look_for(None).err().map(|error| error.to_string());
            Transport { name: "ofi", usable: error.is_none(), error, untested, library: Some(library) }
        }
        Err(error) => {
            let error = Some(error.to_string());
            Transport { name: "ofi", usable: false, error, untested, library: None }
        }
    }
}

fn text(info: &Info, layout: Layout) -> String {
    let mut lines = Vec::new();
    for transport in &info.transports {
        let line = match (&transport.library, &transport.error) {
            (None, None) => format!("{}: processes of one host, by memory that they share", transport.name),
            (Some(library), None) => {
                format!("{}: libfabric {} ({})", transport.name, library.version, library.origin)
            }
            (_, Some(error)) => format!("{}: cannot be used: {error}", transport.name),
        };
        lines.push(wrapped(&line, layout));
    }
    let offers = info.transports.iter().filter_map(|transport| transport.library.as_ref());
    let offers: Vec<&Offer> = offers.flat_map(|library| &library.providers).collect();
    if !offers.is_empty() {
        lines.push(format!("\n{}\n\n{}", table(&offers).text(layout), wrapped(LEGEND, layout)));
    }
    for (names, error) in refused(&offers) {
        let note = format!("{}: cannot be used: {error}", names.join(", "));
        lines.push(format!("\n{}", wrapped(&note, layout)));
    }
    for transport in info.transports.iter().filter(|transport| !transport.untested.is_empty()) {
        let names = transport.untested.join(", ");
        let note = format!("{names}: untested on hardware; each is chosen all the same where it is found.");
        lines.push(format!("\n{}", wrapped(&note, layout)));
    }
    let mut table = plain(&["memory", "peer", "transfer", "path", "how"]);
    for PathRow { memory, peer, what, path, mechanism } in &info.paths {
        table.add_row([memory, peer, what, mechanism, how(path)]);
    }
    lines.push(format!("\n{}\n\n{}", table.text(layout), wrapped(PATHS, layout)));
    lines.join("\n")
}

/// Providers that cannot be used, those together that are refused for the same reason.
fn refused<'a>(offers: &[&'a Offer]) -> Vec<(Vec<String>, &'a str)> {
    let mut refused: Vec<(Vec<String>, &str)> = Vec::new();
    for (offer, error) in offers.iter().filter_map(|offer| Some((offer, offer.error.as_deref()?))) {
        let name = format!("{} on {}", offer.description.provider, offer.description.domain);
        match refused.iter_mut().find(|(_, known)| *known == error) {
            Some((names, _)) => names.push(name),
            None => refused.push((vec![name], error)),
        }
    }
    refused
}

const LEGEND: &str = "registers: what must be registered besides what peers reach: nothing, as keys are mere numbers, or \
                      `pins`, memory that must be there, or own buffers too (`local`). key: bytes of a remote key. has: \
                      a word when a write is delivered (otherwise a read follows); a way to sleep until something comes. longest: the longest message. tested: whether \
                      Standpipe was ever tried over it, and on what. The setting \
                      STANDPIPE_TRANSPORT=ofi:PROVIDER chooses one.";

fn table(offers: &[&Offer]) -> Table {
    let header = ["provider", "on", "registers", "key", "has", "longest", "tested"];
    let mut table = plain(&header);
    for offer in offers {
        let found = &offer.description;
        let registers = match (found.mr_mode.local, found.mr_mode.is_free()) {
            (true, _) => "local",
            (false, true) => "nothing",
            (false, false) => "pins",
        };
        table.add_row([
            found.provider.clone(),
            found.domain.clone(),
            registers.to_owned(),
            found.key_bytes.to_string(),
            has(offer),
            longest(found.message_bytes),
            tested(offer.tested).to_owned(),
        ]);
    }
    table
}

fn has(offer: &Offer) -> String {
    let found = &offer.description;
    let all = [(found.delivery, "delivered"), (offer.sleeps, "sleeps")];
    let names: Vec<&str> = all.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}

/// Some say so for what no memory could hold.
const ENDLESS_BYTES: usize = 1 << 62;

fn longest(bytes: usize) -> String {
    if bytes >= ENDLESS_BYTES { "no limit".to_owned() } else { measure::units::bytes(bytes as u64) }
}

fn tested(tested: Tested) -> &'static str {
    match tested {
        Tested::Yes => "yes",
        Tested::Emulated => "on emulated devices",
        Tested::Untried => "no",
        _ => "untested on hardware",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_says_why() {
        let error = Some("no library".to_owned());
        let ofi = Transport { name: "ofi", usable: false, error, untested: vec!["efa"], library: None };
        let info = Info { transports: vec![SHM, ofi], paths: paths() };
        let text = text(&info, Layout::FILE);
        assert!(
            text.contains("shm: processes of one host") && text.contains("cannot be used: no library\n"),
            "{text}"
        );
        assert!(text.contains("\nefa: untested on hardware"), "{text}");
        let json = serde_json::to_value(&info).expect("plain data");
        assert_eq!(json["transports"][1]["error"], "no library");
        assert_eq!(json["transports"][1]["untested"], serde_json::json!(["efa"]));
        assert_eq!(json["transports"][0]["usable"], true);
    }

    #[test]
    fn each_path_that_there_is_has_an_example() {
        let mut shown: Vec<&str> = paths().iter().map(|row| row.path).collect();
        shown.sort_unstable();
        shown.dedup();
        let all =
            ["asked", "asked, riding", "attached", "chunks", "direct", "mapped", "registered", "staged"];
        assert_eq!(shown, all);
    }

    #[test]
    fn granted_memory_goes_by_the_kernel_near_and_by_its_owner_elsewhere() {
        let granted = paths().into_iter().filter(|row| row.memory == GRANTED);
        let ways: Vec<_> = granted.map(|row| (row.peer == "near", row.mechanism)).collect();
        assert!(ways.len() > 2 && ways.iter().all(|(near, by)| *by == if *near { "cma" } else { "message" }));
    }

    #[test]
    fn what_nobody_could_try_is_named() {
        let ofi = ofi();
        assert_eq!(ofi.untested, ["cxi", "efa", "psm3"]);
        let note = text(&Info { transports: vec![SHM, ofi], paths: Vec::new() }, Layout::FILE);
        assert!(note.contains("\ncxi, efa, psm3: untested on hardware"), "{note}");
        for offer in [Tested::Yes, Tested::Emulated, Tested::Untried, Tested::No] {
            let json = serde_json::to_value(offer).expect("plain data");
            let words = json.as_str().expect("a word or three");
            assert_eq!(words.contains("untested on hardware"), offer == Tested::No, "{words}");
        }
    }

    #[test]
    fn every_provider_has_a_row_with_what_it_needs() {
        let transport = ofi();
        let Some(library) = &transport.library else {
            return testbed::skip(transport.error.expect("it says why"));
        };
        let offers: Vec<&Offer> = library.providers.iter().collect();
        let table = table(&offers).text(Layout::FILE);
        for offer in offers {
            assert!(table.contains(&offer.description.provider), "{table}");
        }
        let json = serde_json::to_value(&transport).expect("plain data");
        for provider in json["providers"].as_array().expect("a list") {
            for key in ["provider", "mr_mode", "key_bytes", "delivery", "sleeps", "tested", "error"] {
                assert!(provider.get(key).is_some(), "{key} in {provider}");
            }
        }
    }
}
