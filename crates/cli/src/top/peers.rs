//! One rank's registration of memory, and what its grants led to, peer by peer.

use std::ops::AddAssign;

use comfy_table::{CellAlignment, ContentArrangement};
use measure::table::{Layout, plain};
use serde::{Serialize, Serializer};
use standpipe::watch::{Busiest, GrantPeerCounters, GrantPeers, PeerCounters, Peers};

use super::report::{AWAITED, RankReport, Report};
use super::text::{self, headline, short};

/// A report with what `--peers` asks for besides. This is also what `--json` prints.
#[derive(Serialize)]
pub(super) struct WithPeers<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<OfRank>,
}

/// A rank's figures of its peers.
#[derive(Serialize)]
struct OfRank {
    rank: u32,
    #[serde(flatten)]
    registration: Shown<PeerCounters>,
    /// Of accesses that it refused, and waits for granted memory.
    grants: Shown<GrantPeerCounters>,
}

/// Figures of one kind.
#[derive(Serialize)]
#[serde(bound = "")]
struct Shown<C: Figures> {
    /// Whether the rank has shown anything that can be.
    shown: bool,
    peers: Vec<Row<C>>,
    /// Peers beyond these.
    more: u32,
    others: Counters<C>,
}

#[derive(Serialize)]
#[serde(bound = "")]
struct Row<C: Figures> {
    peer: u32,
    #[serde(flatten)]
    counters: Counters<C>,
}

struct Counters<C>(C);

/// A figure's name in JSON, and its column.
type Field<C> = (&'static str, &'static str, fn(&C) -> u64);

/// Figures of a peer.
trait Figures: Copy + Default + PartialEq + AddAssign + 'static {
    /// The shown ones, in this order.
    const FIELDS: &[Field<Self>];
}

impl Figures for PeerCounters {
    const FIELDS: &[Field<PeerCounters>] = &FIELDS;
}

impl Figures for GrantPeerCounters {
    const FIELDS: &[Field<GrantPeerCounters>] = &GRANT_FIELDS;
}

const GRANT_FIELDS: [Field<GrantPeerCounters>; 3] = [
    ("denied", "denied", |counters| counters.denied),
    ("revocations_waited", "waited", |counters| counters.waited),
    ("revocations_in_use", "in use", |counters| counters.in_use),
];

const FIELDS: [Field<PeerCounters>; 7] = [
    ("hits", "hits", |counters| counters.hits),
    ("misses", "misses", |counters| counters.misses),
    ("moves", "moves", |counters| counters.moves),
    ("held_bytes", "held B", |counters| counters.held),
    ("served", "served", |counters| counters.served),
    ("recalls", "recalls", |counters| counters.recalls),
    ("given_bytes", "given B", |counters| counters.given),
];

impl<'a> WithPeers<'a> {
    /// `report` with the peers of the rank that is `chosen`, if one is.
    pub(super) fn of(report: &'a Report, chosen: Option<u32>) -> WithPeers<'a> {
        let peers = chosen.and_then(|rank| report.ranks.get(rank as usize)).map(OfRank::of);
        WithPeers { report, peers }
    }
}

impl OfRank {
    fn of(rank: &RankReport) -> OfRank {
        OfRank {
            rank: rank.rank,
            registration: Shown::of(rank.peers.as_ref()),
            grants: Shown::of(rank.grant_peers.as_ref()),
        }
    }
}

impl<C: Figures> Shown<C> {
    fn of(peers: Option<&Busiest<C>>) -> Shown<C> {
        let rows = peers.iter().flat_map(|peers| &peers.busiest);
        Shown {
            shown: peers.is_some(),
            peers: rows.map(|(peer, counters)| Row { peer: *peer, counters: Counters(*counters) }).collect(),
            more: peers.map_or(0, |peers| peers.more),
            others: Counters(peers.map_or_else(C::default, |peers| peers.others)),
        }
    }
}

impl<C: Figures> Serialize for Counters<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(C::FIELDS.iter().map(|(name, _, of)| (name, of(&self.0))))
    }
}

/// A report as lines of text: the peers of the rank that is chosen, or all ranks.
pub(super) fn lines(report: &Report, chosen: Option<u32>, layout: Layout) -> Vec<String> {
    chosen.map_or_else(|| text::lines(report, layout), |rank| of_rank(report, rank, layout))
}

/// A headline, what the rank has pinned, and a row for each of its peers.
fn of_rank(report: &Report, chosen: u32, layout: Layout) -> Vec<String> {
    let (said, peers) = said_of_rank(report, chosen);
    let mut lines = text::sentences(said, layout);
    if let Some(peers) = peers {
        lines.push(String::new());
        lines.extend(tables(peers, layout));
        lines.extend(text::sentences(others(peers), layout));
    }
    let grants = report.ranks.get(chosen as usize).and_then(|rank| rank.grant_peers.as_ref());
    if let Some(peers) = grants.filter(|peers| **peers != GrantPeers::default()) {
        lines.push(String::new());
        lines.extend(text::sentences([GRANTS.to_owned(), String::new()], layout));
        lines.extend(tables(peers, layout));
        lines.extend(text::sentences(others(peers), layout));
    }
    lines
}

const GRANTS: &str = "denied: accesses that it refused a peer; waited: waits for granted memory that found a peer at it; in use: \
                      of these, those that ended so";

/// Sentences about a rank, and its peers if it has shown any.
fn said_of_rank(report: &Report, chosen: u32) -> (Vec<String>, Option<&Peers>) {
    let mut lines = vec![headline(report), String::new()];
    let Some(rank) = report.ranks.get(chosen as usize) else { return (lines, None) };
    let (number, state) = (rank.rank, &rank.state);
    let Some(registration) = &rank.figures.registration else {
        if rank.state == AWAITED {
            lines.push(format!("rank {number} has not opened a node"));
            return (lines, None);
        }
        let why = match rank.figures.uses_registered() {
            true => "it reaches its peers' heaps by one key each, which pins nothing",
            false => "what it reaches its peers by needs none",
        };
        lines.push(format!("rank {number}, {state}, registers no memory: {why}"));
        lines.extend(rank.pinned_besides().map(|bytes| format!("it {}", text::pins(bytes))));
        return (lines, None);
    };
    let [now, peak, budget] = registration.pinned().map(|bytes| short(bytes as f64));
    lines.push(format!("rank {number}, {state}: {now} bytes pinned, {peak} at the peak, {budget} at most"));
    lines.extend(rank.pinned_besides().map(|bytes| format!("it {}", text::pins(bytes))));
    match &rank.peers {
        None => lines.push("of its peers it has shown nothing".into()),
        Some(peers) if *peers == Peers::default() => {
            lines.push("it has asked no peer for memory, and none has asked it".into());
        }
        Some(peers) => {
            lines.push("hits to held: what it uses of a peer; served to given: what a peer of it".into());
            return (lines, Some(peers));
        }
    }
    (lines, None)
}

/// A line about the others, if there are any.
fn others<C: Figures>(peers: &Busiest<C>) -> Option<String> {
    match (peers.more, peers.others == C::default()) {
        (0, true) => None,
        (0, false) => Some("others: those that are gone".into()),
        (1, _) => Some("others: 1 more peer, and those that are gone".into()),
        (more, _) => Some(format!("others: {more} more peers, and those that are gone")),
    }
}

/// A table, or several below each other where the columns do not fit beside each other.
fn tables<C: Figures>(peers: &Busiest<C>, layout: Layout) -> Vec<String> {
    let (mut rest, mut lines) = (C::FIELDS, Vec::new());
    while !rest.is_empty() {
        let fits = |count: &usize| {
            let table = table(peers, &rest[..*count]);
            table.iter().all(|line| line.trim_end().chars().count() <= layout.columns.into())
        };
        let count = (1..=rest.len()).rev().find(fits).unwrap_or(1);
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(table(peers, &rest[..count]));
        rest = &rest[count..];
    }
    lines
}

/// All together, each, and the others, by these figures.
fn table<C: Figures>(peers: &Busiest<C>, fields: &[Field<C>]) -> Vec<String> {
    let Busiest { busiest, others, .. } = peers;
    let header: Vec<&str> = ["peer"].into_iter().chain(fields.iter().map(|(_, column, _)| *column)).collect();
    let mut table = plain(&header);
    table.set_content_arrangement(ContentArrangement::Disabled);
    let mut row = |name: String, counters: &C| {
        let figures = fields.iter().map(|(_, _, of)| short(of(counters) as f64));
        table.add_row([name].into_iter().chain(figures));
    };
    let mut all = *others;
    busiest.iter().for_each(|(_, counters)| all += *counters);
    row("all".into(), &all);
    busiest.iter().for_each(|(rank, counters)| row(rank.to_string(), counters));
    if self::others(peers).is_some() {
        row("others".into(), others);
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.lines(Layout::FILE)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{registration, sample};
    use super::*;

    fn counters(scale: u64) -> PeerCounters {
        PeerCounters {
            hits: 999_000 * scale,
            misses: 9 * scale,
            moves: 7 * scale,
            held: 4096 * scale,
            served: 5 * scale,
            recalls: 3 * scale,
            given: 8192 * scale,
        }
    }

    /// Rank 1 has told of 32 peers and more.
    fn told() -> Report {
        let mut report = sample(Some(registration(3, 4096)));
        let busiest = (0..32).map(|peer| (peer, counters(u64::from(peer) + 1))).collect();
        report.ranks[1].peers = Some(Peers { busiest, more: 900, others: counters(1000) });
        report
    }

    #[test]
    fn every_peer_has_a_row_and_all_columns_fit_a_terminal_of_80() {
        let lines = lines(&told(), Some(1), Layout::FILE);
        let text = lines.join("\n");
        assert!(lines.iter().all(|line| line.trim_end().chars().count() <= 80), "{text}");
        for column in FIELDS.map(|(_, column, _)| column) {
            assert!(text.contains(column), "{column}: {text}");
        }
        let cells = |name: &str| -> Vec<&str> {
            let line = lines.iter().find(|line| line.trim_start().starts_with(name)).expect("a row");
            line.trim_start().strip_prefix(name).expect("it begins so").split_whitespace().collect()
        };
        assert_eq!(cells("31 "), ["32.0M", "288", "224", "131k", "160", "96", "262k"]);
        assert_eq!(cells("others "), ["999M", "9.00k", "7.00k", "4.10M", "5.00k", "3.00k", "8.19M"]);
        assert_eq!(cells("all")[1], "13.8k");
        assert_eq!(lines.last().map(String::as_str), Some("others: 900 more peers, and those that are gone"));
        assert!(text.contains("rank 1, killed 9") && text.contains("4.10k at the peak"), "{text}");
    }

    #[test]
    fn a_narrow_terminal_cuts_no_column() {
        for columns in [60, 40] {
            let lines = lines(&told(), Some(1), Layout { columns, ..Layout::FILE });
            let text = lines.join("\n");
            assert!(lines.iter().all(|line| line.trim_end().chars().count() <= columns.into()), "{text}");
            for column in FIELDS.map(|(_, column, _)| column) {
                assert!(text.contains(column), "{column}: {text}");
            }
            let rows = lines.iter().filter(|line| line.trim_start().starts_with("31 ")).count();
            assert!(rows > 1, "each part names the peers: {text}");
        }
    }

    #[test]
    fn what_there_is_nothing_of_is_said_in_words() {
        let none = lines(&sample(None), Some(0), Layout::FILE);
        assert_eq!(none.len(), 3);
        assert!(
            none[2].contains("rank 0, running, registers no memory: what it reaches its peers by needs none"),
            "{none:?}"
        );
        let mut keyed = sample(None);
        keyed.ranks[0].figures.operations[0].mechanism = standpipe::Mechanism::Registered;
        assert!(lines(&keyed, Some(0), Layout::FILE)[2].contains("by one key each"));
        keyed.ranks[0].process_pinned_bytes = Some(83 << 20);
        assert!(
            lines(&keyed, Some(0), Layout::FILE)[3].starts_with("it pins 87.0M B besides"),
            "{:?}",
            lines(&keyed, Some(0), Layout::FILE)
        );
        let mut report = told();
        // The process has pinned the registered memory alone.
        let besides = |report: &mut Report, all| {
            report.ranks[1].process_pinned_bytes = Some(all);
            lines(report, Some(1), Layout::FILE).into_iter().find(|line| line.contains("besides"))
        };
        let [registered, ..] = report.ranks[1].figures.registration.expect("some").pinned();
        assert_eq!((registered, besides(&mut report, 4096)), (4096, None));
        assert!(besides(&mut report, 8192).is_some_and(|line| line.starts_with("it pins 4.10k B besides")));
        assert_eq!(besides(&mut report, 100), None, "the two are not read at one time");
        assert!(
            lines(&report, Some(0), Layout::FILE).last().is_some_and(|line| line.contains("shown nothing"))
        );
        report.ranks[0].peers = Some(Peers::default());
        assert!(
            lines(&report, Some(0), Layout::FILE).last().is_some_and(|line| line.contains("asked no peer"))
        );
        report.ranks[0].peers = Some(Peers { others: counters(1), ..Peers::default() });
        assert_eq!(
            lines(&report, Some(0), Layout::FILE).last().map(String::as_str),
            Some("others: those that are gone")
        );
    }

    #[test]
    fn json_has_what_is_shown() {
        let report = told();
        let json = serde_json::to_value(WithPeers::of(&report, Some(1))).expect("numbers and lists");
        let peers = &json["peers"];
        assert_eq!((&peers["rank"], &peers["shown"], &peers["more"]), (&1.into(), &true.into(), &900.into()));
        assert_eq!(peers["peers"][31]["peer"], 31);
        assert_eq!(peers["peers"][31]["given_bytes"], 32 * 8192);
        assert_eq!(peers["others"]["recalls"], 3000);
        assert_eq!(json["size"], 2, "beside all the rest");
        let json = serde_json::to_value(WithPeers::of(&report, Some(0))).expect("numbers and lists");
        assert_eq!((&json["peers"]["shown"], &json["peers"]["others"]["hits"]), (&false.into(), &0.into()));
        let json = serde_json::to_value(WithPeers::of(&report, None)).expect("numbers and lists");
        assert!(json.get("peers").is_none());
    }

    #[test]
    fn peers_that_grants_concern_have_a_table_of_their_own() {
        let mut report = sample(None);
        let each = |denied| GrantPeerCounters { denied, waited: 2, in_use: 1 };
        let busiest = vec![(0, each(7)), (1, each(0))];
        report.ranks[0].grant_peers = Some(GrantPeers { busiest, more: 0, others: each(9) });
        let lines = lines(&report, Some(0), Layout { columns: 80, ..Layout::FILE });
        let text = lines.join("\n");
        assert!(lines.iter().all(|line| line.trim_end().chars().count() <= 80), "{text}");
        let cells: Vec<Vec<&str>> = lines.iter().map(|line| line.split_whitespace().collect()).collect();
        for row in
            [["all", "16", "6", "3"], ["0", "7", "2", "1"], ["1", "·", "2", "1"], ["others", "9", "2", "1"]]
        {
            assert!(cells.iter().any(|cells| *cells == row), "{row:?} in\n{text}");
        }
        assert!(text.contains("registers no memory") && text.contains("waits for granted memory"), "{text}");
        let json = serde_json::to_value(WithPeers::of(&report, Some(0))).expect("numbers and lists");
        let grants = &json["peers"]["grants"];
        assert_eq!((&grants["shown"], &json["peers"]["shown"]), (&true.into(), &false.into()));
        assert_eq!((&grants["peers"][0]["peer"], &grants["peers"][0]["denied"]), (&0.into(), &7.into()));
        assert_eq!(
            (&grants["others"]["revocations_waited"], &grants["others"]["revocations_in_use"]),
            (&2.into(), &1.into())
        );
    }
}
