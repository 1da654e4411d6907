//! What the layers of the 1990s did where ours stand beside them, as far as it is known, and which are
//! missing here.

use serde::Serialize;

/// How sure a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Source {
    /// It stands in a manual, a header, a paper's abstract or a source of its time.
    Found,
    /// It is concluded from sources, and said by none.
    Inferred,
    /// It is known from memory only, and was not seen.
    Recalled,
}

/// What an original did in one respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Original {
    pub(super) holds: &'static str,
    pub(super) source: Source,
}

impl Original {
    /// For a reader; what was found needs no mark.
    pub(super) fn said(self) -> String {
        match self.source {
            Source::Found => self.holds.to_owned(),
            Source::Inferred => format!("{} (inferred)", self.holds),
            Source::Recalled => format!("{} (recalled)", self.holds),
        }
    }
}

/// A layer that is missing here.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Missing {
    pub(super) layer: &'static str,
    pub(super) why: &'static str,
}

/// The study's fifth layer, and the interface that followed all of them.
pub(super) const MISSING: [Missing; 2] = [
    Missing { layer: VMMC_2, why: "the study's fifth layer: no header or program of it was found" },
    Missing {
        layer: "VIA",
        why: "the standard that followed them: it runs here, and no bench measures it yet",
    },
];

/// The study's layer that is missing here.
pub(super) const VMMC_2: &str = "vmmc-2";

const fn found(holds: &'static str) -> Option<Original> {
    Some(Original { holds, source: Source::Found })
}

const fn inferred(holds: &'static str) -> Option<Original> {
    Some(Original { holds, source: Source::Inferred })
}

const fn recalled(holds: &'static str) -> Option<Original> {
    Some(Original { holds, source: Source::Recalled })
}

/// By layer, the originals' cells in the order of [`layers::features::NAMES`]; `None`: unknown.
const ORIGINALS: [(&str, [Option<Original>; 11]); 6] = [
    (
        "gam",
        [
            found("requests, one reply each, stores and gets"),
            recalled("none"),
            recalled("no"),
            found("detected: damaged packets told of and dropped"),
            inferred("no promise"),
            found("credits, 30 a pair"),
            found("a copy, then the card"),
            found("1, of bulk"),
            found("poll, or am_sleep"),
            recalled("one"),
            found("bulk up to am_max_size; nothing is cut"),
        ],
    ),
    (
        "bip",
        [
            found("send and receive, by tags"),
            recalled("none"),
            recalled("no"),
            found("detected, and nothing recovers"),
            found("kept"),
            inferred("none for short messages"),
            recalled("short: written by the processor; long: the card"),
            found("short 1, in place 0; long 0"),
            found("poll"),
            recalled("one"),
            found("any, in words of 4 bytes"),
        ],
    ),
    (
        "fm",
        [
            found("streams of pieces, and handlers"),
            recalled("none"),
            recalled("no"),
            recalled("the network was taken for lossless"),
            found("kept, by sender"),
            found("credits, returned as one extracts"),
            recalled("written by the processor"),
            recalled("1, in FM_receive"),
            found("poll, by FM_extract"),
            found("sends and extracts from any"),
            found("any, up to what was announced"),
        ],
    ),
    (
        "pm",
        [
            found("messages, and remote write between locked memory"),
            recalled("by channel"),
            found("gangs, by switching channels"),
            found("ACK and NACK"),
            found("kept"),
            found("ACK and NACK"),
            recalled("the card"),
            recalled("0 on write; read in place"),
            found("poll"),
            recalled("one"),
            recalled("8 KiB a message"),
        ],
    ),
    (
        "via",
        [
            found("send and receive by connection, remote write and read"),
            found("by tags of memory, and by connection"),
            recalled("yes: each VI is one process's"),
            recalled("three levels of reliability"),
            recalled("kept, by VI"),
            recalled("none: a receive must be posted"),
            recalled("the card; KVIA: by descriptor and size"),
            recalled("0"),
            found("poll, wait, or a handler"),
            found("any; one queue, one at a time"),
            recalled("32 KiB and more"),
        ],
    ),
    (
        VMMC_2,
        [
            found("remote write into exported buffers"),
            found("by export and import"),
            recalled("yes"),
            found("sent again"),
            recalled("by buffer"),
            recalled("none needed"),
            recalled("short: written by the processor; long: the card"),
            found("0, by redirection"),
            found("poll, or a notification"),
            recalled("any"),
            None,
        ],
    ),
];

/// What the original of that name did in that respect, where it is known.
pub(super) fn original(layer: &str, feature: &str) -> Option<Original> {
    let (_, cells) = ORIGINALS.iter().find(|(name, _)| *name == layer)?;
    let at = layers::features::NAMES.iter().position(|name| *name == feature)?;
    cells[at]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_a_layer_that_is_here_has_its_original() {
        for layer in layers::ALL {
            for feature in layers::features::NAMES {
                assert!(original(layer.name, feature).is_some(), "{} {feature}", layer.name);
            }
        }
        let cell = original("gam", "protection").expect("it is recalled");
        assert_eq!(cell.said(), "none (recalled)");
        assert_eq!(original(VMMC_2, "message size"), None, "nobody knows");
        assert!(MISSING.iter().all(|missing| layers::ALL.iter().all(|layer| layer.name != missing.layer)));
    }
}
