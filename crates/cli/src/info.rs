//! `standpipe info`: the transports there are, and libfabric's providers with what each can do and needs.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use standpipe::network::{Library, Offer, library};

use crate::printed::print;

/// Arguments of `standpipe info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
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
    /// What it runs on, where that is not the system alone.
    #[serde(flatten)]
    library: Option<Library>,
}

/// All of it.
#[derive(Debug, Serialize)]
struct Info {
    transports: Vec<Transport>,
}

/// Looks at what there is, and prints it.
///
/// # Errors
/// If standard output cannot take the result.
pub fn run(args: &InfoArgs) -> Result<ExitCode> {
    let info = Info { transports: vec![SHM, ofi()] };
    if args.json {
        print(serde_json::to_string_pretty(&info)?)?;
    } else {
        print(text(&info))?;
    }
    Ok(ExitCode::SUCCESS)
}

const SHM: Transport = Transport { name: "shm", usable: true, error: None, library: None };

fn ofi() -> Transport {
    match library() {
        Ok(library) => {
            let usable = library.providers.iter().any(|offer| offer.error.is_none());
            let error = (!usable).then(|| "libfabric has no provider that can be used here".to_owned());
            Transport { name: "ofi", usable, error, library: Some(library) }
        }
        Err(error) => Transport { name: "ofi", usable: false, error: Some(error.to_string()), library: None },
    }
}

fn text(info: &Info) -> String {
    let mut lines = Vec::new();
    for transport in &info.transports {
        lines.push(match (&transport.library, &transport.error) {
            (None, None) => format!("{}: processes of one host, by memory that they share", transport.name),
            (Some(library), None) => {
                format!("{}: libfabric {} ({})", transport.name, library.version, library.origin)
            }
            (_, Some(error)) => format!("{}: cannot be used: {error}", transport.name),
        });
    }
    let offers = info.transports.iter().filter_map(|transport| transport.library.as_ref());
    let offers: Vec<&Offer> = offers.flat_map(|library| &library.providers).collect();
    if !offers.is_empty() {
        lines.push(format!("\n{}\n\n{}", table(&offers), crate::table::wrapped(LEGEND)));
    }
    lines.join("\n")
}

const LEGEND: &str = "registers: what must be registered besides what peers reach: nothing, as keys are mere numbers, or \
                      `pins`, memory that must be there, or own buffers too (`local`). key: bytes of a remote key. atomics: \
                      whether the provider has them; ranks do without. delivered: whether it says when a write has arrived; \
                      otherwise a read follows. sleeps: whether a thread can sleep until something comes. The setting \
                      STANDPIPE_TRANSPORT=ofi:PROVIDER chooses one.";

fn table(offers: &[&Offer]) -> crate::table::Table {
    let header =
        ["provider", "on", "registers", "key", "atomics", "delivered", "sleeps", "longest message", "usable"];
    let mut table = crate::table::plain(&header);
    for offer in offers {
        let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
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
            yes(found.atomics),
            yes(found.delivery),
            yes(offer.sleeps),
            crate::kv::outcome::bytes(found.message_bytes as u64),
            offer.error.clone().unwrap_or_else(|| "yes".to_owned()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_says_why() {
        let ofi =
            Transport { name: "ofi", usable: false, error: Some("no library".to_owned()), library: None };
        let info = Info { transports: vec![SHM, ofi] };
        let text = text(&info);
        assert!(
            text.contains("shm: processes of one host") && text.ends_with("cannot be used: no library"),
            "{text}"
        );
        let json = serde_json::to_value(&info).expect("plain data");
        assert_eq!(json["transports"][1]["error"], "no library");
        assert_eq!(json["transports"][0]["usable"], true);
    }

    #[test]
    fn every_provider_has_a_row_with_what_it_needs() {
        let transport = ofi();
        let Some(library) = &transport.library else {
            return eprintln!("skipped: {}", transport.error.expect("it says why"));
        };
        let offers: Vec<&Offer> = library.providers.iter().collect();
        let table = table(&offers).to_string();
        for offer in offers {
            assert!(table.contains(&offer.description.provider), "{table}");
        }
        let json = serde_json::to_value(&transport).expect("plain data");
        for provider in json["providers"].as_array().expect("a list") {
            for key in ["provider", "mr_mode", "key_bytes", "atomics", "delivery", "sleeps", "error"] {
                assert!(provider.get(key).is_some(), "{key} in {provider}");
            }
        }
    }
}
