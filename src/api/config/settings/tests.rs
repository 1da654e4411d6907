use std::path::Path;

use super::*;

fn config(name: &str, value: &str) -> Result<Config, ConfigError> {
    Config::from_lookup(|asked| (asked == name).then(|| value.to_owned()))
}

#[test]
fn byte_counts_take_suffixes_and_refuse_nonsense() {
    assert_eq!(bytes("4096"), Ok(4096));
    assert_eq!(bytes("64M"), Ok(64 << 20));
    assert_eq!(bytes("2g"), Ok(2 << 30));
    for bad in ["", "M", "-1", "1KK", "99999999999T", "0", "1.5G"] {
        assert!(bytes(bad).is_err(), "{bad}");
    }
    let said = |value| config("STANDPIPE_PIN", value).expect_err("no such number").to_string();
    assert!(said("0").ends_with("; it must be 1 or more"), "{}", said("0"));
    for large in ["16777216T", "18446744073709551616", "999999999999999999999999999999999999999999K"] {
        assert!(said(large).ends_with("; it is more than 64 bits can count"), "{}", said(large));
    }
    assert!(said("many").ends_with("(K, M, G, T)"), "{}", said("many"));
}

#[test]
fn every_setting_takes_what_its_row_says_and_refuses_nonsense() {
    for Setting { name, unit, .. } in SETTINGS {
        let good = |value: &str| config(name, value).is_ok();
        let parts = || unit.split(", ");
        if good("7") {
            // It counts something, from the first to the last number that the unit has, if it has any.
            if let Some((first, last)) = parts().find_map(|part| part.split_once(" to ")) {
                let beyond = last.parse::<u64>().expect("a number") + 1;
                assert!(good(first) && good(last) && !good(&beyond.to_string()), "{name}: {unit}");
            }
            assert!(good("0") || !parts().any(|part| part.starts_with("0 for ")), "{name}: {unit}");
        } else {
            let is_word = |part: &&str| part.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
            let words: Vec<&str> = parts().filter(is_word).collect();
            assert!(!words.is_empty() && words.into_iter().all(good), "{name}: {unit}");
        }
        let error = config(name, "nonsense").expect_err("no setting takes that word");
        let ConfigError::Value { name: said, value, .. } = &error else { panic!("{error}") };
        assert_eq!((*said, value.as_str()), (*name, "nonsense"));
    }
}

#[test]
fn every_default_that_is_a_value_is_what_holds_where_nothing_is_set() {
    let unset = format!("{:?}", Config::new());
    for Setting { name, default, .. } in SETTINGS {
        match config(name, default) {
            Ok(set) => assert_eq!(format!("{set:?}"), unset, "{name}"),
            Err(error) => assert!(default.contains(' '), "neither a value nor a sentence: {error}"),
        }
    }
}

#[test]
fn every_method_that_a_row_names_is_there() {
    let methods = include_str!("../../config.rs");
    for Setting { name, methods: named, .. } in SETTINGS {
        let is_there = |method: &&str| methods.contains(&format!("pub fn {method}(mut self"));
        assert!(!named.is_empty() && named.iter().all(is_there), "{name}: {named:?}");
    }
}

#[test]
fn none_and_for_ever_are_written_0() {
    assert_eq!(
        config("STANDPIPE_TIMEOUT_MS", "250").map(|c| c.timeout),
        Ok(Some(Duration::from_millis(250)))
    );
    assert_eq!(config("STANDPIPE_ATTACH", "strict").map(|c| c.attach), Ok(Attach::Strict));
    assert_eq!(config("STANDPIPE_TIMEOUT_MS", "0").map(|c| c.timeout), Ok(None));
}

#[test]
fn every_variable_that_is_read_anywhere_is_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut folders, mut found) = (vec![root.join("src"), root.join("crates")], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("there") {
            let path = entry.expect("readable").path();
            // What only tests and examples give their children, no user sets.
            if path.ends_with("tests") || path.ends_with("examples") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("text");
                let words = text.split('"').filter(|word| word.starts_with(PREFIX));
                let is_name = |word: &&str| word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
                for name in words.filter(is_name).filter(|name| *name != PREFIX) {
                    assert!(!is_unknown(name), "{name} in {}", path.display());
                    found += 1;
                }
            }
        }
    }
    assert!(found > 50, "{found} names found");
    assert!(is_unknown(&format!("{PREFIX}HEPA")) && !is_unknown("PATH"));
}

#[test]
fn of_a_misspelt_name_the_nearest_is_told() {
    let said = |name: &str| Config::unknown_variable(&format!("{PREFIX}{name}"));
    for (given, meant) in [
        ("HAEP", "HEAP"),
        ("TRANSPROT", "TRANSPORT"),
        ("TIMEOUT", "TIMEOUT_MS"),
        ("RENDEZVOUZ", "RENDEZVOUS"),
        ("SPIN", "SPIN_US"),
    ] {
        assert!(said(given).ends_with(&format!("did you mean {PREFIX}{meant}?")), "{}", said(given));
    }
    for unlike in ["", "X", "COLOURFUL_OUTPUT"] {
        assert!(!said(unlike).contains("did you mean"), "{}", said(unlike));
    }
}

#[test]
fn transports_are_read_as_they_are_written() {
    for name in ["shm", "ofi", "ofi:tcp", "ofi:verbs;ofi_rxm"] {
        assert_eq!(Transport::parse(name).map(|transport| transport.to_string()).as_deref(), Some(name));
    }
    for bad in ["", "ofi:", "tcp", "shm:", "shm:tcp", ":"] {
        assert_eq!(Transport::parse(bad), None, "{bad}");
    }
    let error = config("STANDPIPE_TRANSPORT", "tcp").expect_err("a provider's bare name").to_string();
    assert!(error.ends_with("it is named by ofi:tcp"), "{error}");
}

#[test]
fn the_word_that_was_meant_is_named() {
    for (name, value, meant) in [
        ("STANDPIPE_TRANSPORT", "shmm", "shm"),
        ("STANDPIPE_TRANSPORT", "OFI", "ofi"),
        ("STANDPIPE_ATTACH", "nver", "never"),
        ("STANDPIPE_EXPOSE", "range", "ranges"),
        ("STANDPIPE_TRACER", "parnet", "parent"),
        ("STANDPIPE_STRATEGY", "firehoes", "firehose"),
    ] {
        let error = config(name, value).expect_err("misspelt").to_string();
        assert!(error.ends_with(&format!("; did you mean {meant}?")), "{error}");
    }
    let error = config("STANDPIPE_ATTACH", "sometimes").expect_err("no such word").to_string();
    assert!(!error.contains("mean"), "{error}");
}

#[test]
fn each_variable_that_cannot_be_read_is_told() {
    let set = [("STANDPIPE_HEAP", "banana"), ("STANDPIPE_PEERS", "7"), ("STANDPIPE_EXPOSE", "x")];
    let bad = bad_of(|name| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned()));
    let names: Vec<&str> = bad.iter().map(ConfigError::name).collect();
    assert_eq!(names, ["STANDPIPE_HEAP", "STANDPIPE_EXPOSE"]);
}

#[test]
fn places_to_listen_are_read_as_they_are_written() {
    for text in ["auto", "none", "127.0.0.1:0", "10.0.0.1:7000", "[::1]:7000", "0.0.0.0:7000"] {
        assert_eq!(Listen::parse(text).map(|listen| listen.to_string()).as_deref(), Some(text));
    }
    for bad in ["127.0.0.1", "localhost:7000", "10.0.0.1:70000", "7000", "None"] {
        let error = config("STANDPIPE_LISTEN", bad).expect_err("nobody can listen there").to_string();
        let wanted = format!("STANDPIPE_LISTEN=\"{bad}\" is not auto, none, IP:PORT (port 0: any)");
        assert_eq!(error, wanted);
    }
}

#[test]
fn every_strategy_that_networks_can_have_is_named() {
    for strategy in Strategy::ALL {
        let set = config("STANDPIPE_STRATEGY", strategy.name()).map(|config| config.strategy);
        assert_eq!(set.ok().flatten(), Some(strategy).filter(|strategy| *strategy != Strategy::Hardware));
    }
    let unit = SETTINGS.iter().find(|setting| setting.name == "STANDPIPE_STRATEGY").expect("there").unit;
    assert_eq!(unit.split(", ").filter(|name| config("STANDPIPE_STRATEGY", name).is_ok()).count(), 6);
}

#[test]
fn every_setting_is_read_and_set_by_its_name() {
    let values = [
        ("heap", "67108864"),
        ("SPIN_US", "50"),
        ("STANDPIPE_PROGRESS", "off"),
        ("attach", "strict"),
        ("transport", "ofi:tcp"),
        ("strategy", "firehose"),
        ("pin", "4096"),
        ("copiers", "64"),
        ("meet_ms", "7"),
        ("silence_ms", "0"),
        ("peers", "0"),
        ("expose", "ranges"),
        ("tracer", "parent"),
        ("listen", "127.0.0.1:0"),
        ("interface", "127.0.0.1"),
        ("timeout_ms", "9"),
    ];
    assert_eq!(values.len(), SETTINGS.len());
    let mut config = Config::new();
    for (name, value) in values {
        config.set(name, value).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.clone().get(name), Ok(Some(value.to_owned())), "{name}");
    }
    for (name, value) in values {
        assert!(config.set(name, "nonsense").is_err(), "{name}");
        assert_eq!(config.get(name), Ok(Some(value.to_owned())), "{name} is as it was");
    }
    let unknown = config.set("hepa", "1").expect_err("there is none");
    assert!(unknown.to_string().contains("STANDPIPE_HEAP"), "{unknown}");
}
