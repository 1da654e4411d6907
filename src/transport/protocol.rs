//! The protocols of endpoints: peers whose endpoints speak otherwise never hear each other, and are told so
//! when they meet.

use serde::{Deserialize, Serialize};

/// The layer that makes reliable datagrams of a provider's connections; every libfabric has it.
const LAYER: &str = ";ofi_rxm";

/// The provider that every libfabric can open, wherever it is.
const EVERYWHERE: &str = "tcp;ofi_rxm";

/// Letters of a name or version that a peer gives which are shown.
const SHOWN_MAX: usize = 40;

/// The protocol of an endpoint in the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NetProtocol {
    /// libfabric's name of the provider.
    pub(crate) provider: String,
    /// The version of libfabric. Two of them may well speak the same.
    pub(crate) library: String,
    /// libfabric's number of what the provider speaks, and its version.
    pub(crate) number: u32,
    pub(crate) version: u32,
}

impl NetProtocol {
    /// Why endpoints that speak these two cannot understand each other, and what to do; `None`: they can.
    pub(crate) fn differs(&self, theirs: &NetProtocol) -> Option<String> {
        let of = |it: &NetProtocol| (it.provider.clone(), it.number, it.version);
        (of(self) != of(theirs)).then(|| {
            let (ours, its, remedy) = (self.shown(), theirs.shown(), self.remedy(theirs));
            format!(
                "one of the two has {its}, the other {ours}, which do not understand each other: {remedy}"
            )
        })
    }

    fn shown(&self) -> String {
        if self.provider.is_empty() {
            return "no network".to_owned();
        }
        let short = |text: &str| text.chars().take(SHOWN_MAX).collect::<String>();
        let (provider, library) = (short(&self.provider), short(&self.library));
        format!("{provider:?} of libfabric {library} (protocol {}, version {})", self.number, self.version)
    }

    /// The setting that makes two endpoints that differ speak the same.
    fn remedy(&self, theirs: &NetProtocol) -> String {
        if self.provider.is_empty() || theirs.provider.is_empty() {
            return "set STANDPIPE_TRANSPORT to the same at both".to_owned();
        }
        if self.provider == theirs.provider {
            return "use the same libfabric at both (STANDPIPE_LIBFABRIC names its file)".to_owned();
        }
        // A name such as `tcp` is one thing before libfabric 1.18, with the layer, and another one after.
        let plain = self.provider.strip_suffix(LAYER).unwrap_or(&self.provider);
        let layered = format!("{plain}{LAYER}");
        let is_same = theirs.provider == plain || theirs.provider == layered;
        let common = if is_same { layered } else { EVERYWHERE.to_owned() };
        format!("set STANDPIPE_TRANSPORT='ofi:{common}' at both")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoken(provider: &str, library: &str, number: u32) -> NetProtocol {
        NetProtocol { provider: provider.to_owned(), library: library.to_owned(), number, version: 1 }
    }

    #[test]
    fn both_are_named_with_what_works_for_the_pair() {
        let old = spoken("tcp;ofi_rxm", "1.17", 7);
        for (pair, remedy) in [
            // What `ofi:tcp` means to the one is not what it means to the other.
            ([old.clone(), spoken("tcp", "2.5", 15)], "STANDPIPE_TRANSPORT='ofi:tcp;ofi_rxm' at both"),
            (
                [old.clone(), spoken("verbs;ofi_rxm", "2.5", 7)],
                "STANDPIPE_TRANSPORT='ofi:tcp;ofi_rxm' at both",
            ),
            ([spoken("verbs", "2.4", 1), spoken("verbs;ofi_rxm", "2.5", 7)], "'ofi:verbs;ofi_rxm' at both"),
            ([spoken("tcp", "1.22", 14), spoken("tcp", "2.5", 15)], "the same libfabric at both"),
        ] {
            let [a, b] = &pair;
            for (ours, theirs) in [(a, b), (b, a)] {
                let why = ours.differs(theirs).expect("they differ");
                for part in [remedy, &a.provider, &b.provider, &a.library, &b.library] {
                    assert!(why.contains(part), "{part} is not in: {why}");
                }
            }
        }
        let none = old.differs(&NetProtocol::default()).expect("one has a network");
        assert!(
            none.contains("one of the two has no network") && none.contains("the same at both"),
            "{none}"
        );
        // Another library that speaks the same is as good.
        assert_eq!(old.differs(&spoken("tcp;ofi_rxm", "2.5", 7)), None);
        let long = old.differs(&spoken(&"x".repeat(5000), "2.5", 7)).expect("no name");
        assert!(long.len() < 400, "{long}");
    }
}
