//! A report as lines of text.

use comfy_table::{CellAlignment, ContentArrangement};
use measure::table::{Layout, plain, wrapped};
use standpipe::{Mechanism, Operation};

use crate::elsewhere::Far;

use super::latency;
use super::report::{
    Figures, GRANT_COLUMNS, REGISTRATION_COLUMNS, RankReport, Registration, Report, TRANSFERS,
};

/// A rank that moves nothing, and whose counts of messages are as old as that, has called nothing that waits
/// or makes progress for longer than most programs compute between two calls.
const AWAY_SECONDS: f64 = 5.0;

/// A headline, what is not as it should be, the ranks, and all of them together.
pub(super) fn lines(report: &Report, layout: Layout) -> Vec<String> {
    let mut lines = sentences([headline(report), String::new()], layout);
    lines.extend(sentences(notes(report), layout));
    lines.extend(tables(report, WHO.len(), columns(), layout));
    let more = [registered_columns(&report.totals), grant_columns(&report.totals)];
    for columns in more.into_iter().filter(|columns| !columns.is_empty()) {
        lines.push(String::new());
        lines.extend(tables(report, 1, columns, layout));
    }
    lines.extend(latency::lines(report));
    lines
}

/// Each sentence in as many lines as it takes.
pub(super) fn sentences(texts: impl IntoIterator<Item = String>, layout: Layout) -> Vec<String> {
    let lines = |text: String| {
        let lines = wrapped(&text, layout);
        lines.split('\n').flat_map(|line| broken(line, layout.columns.into())).collect::<Vec<_>>()
    };
    texts.into_iter().flat_map(lines).collect()
}

/// A line in as many as it takes: a command that is longer than a screen is wide would be cut there.
fn broken(line: &str, columns: usize) -> Vec<String> {
    if line.chars().count() <= columns {
        return vec![line.to_owned()];
    }
    let mut parts: Vec<String> = Vec::new();
    for word in line.split(' ') {
        match parts.last_mut() {
            Some(part) if part.chars().count() + 1 + word.chars().count() <= columns => {
                *part += &format!(" {word}")
            }
            _ => parts.push(word.to_owned()),
        }
    }
    parts
}

/// The job, and its state.
pub(super) fn headline(report: &Report) -> String {
    let Report { program, size, launcher_pid, running, lost, .. } = report;
    // A job of one is its process's own.
    if matches!(&report.ranks[..], [rank] if rank.pid == Some(*launcher_pid)) {
        return format!("{program}: a node of process {launcher_pid}, {running} running, {lost} lost");
    }
    let awaited = match report.awaited {
        0 => String::new(),
        awaited => format!(", {awaited} awaited (no node is open there)"),
    };
    format!("{program}: {size} ranks started by {launcher_pid}, {running} running, {lost} lost{awaited}")
}

/// The columns that tell ranks apart.
const WHO: [&str; 3] = ["rank", "pid", "state"];

/// A table, or several below each other where the columns do not fit beside each other. Bytes stay with what
/// they are of.
fn tables(report: &Report, mut who: usize, columns: Vec<Column>, layout: Layout) -> Vec<String> {
    let (mut rest, mut lines) = (&columns[..], Vec::new());
    while !rest.is_empty() {
        let parts = |at: usize| rest.get(at).is_some_and(|column| column.name == BYTES);
        let fits = |count: &usize| {
            let widest =
                table(report, who, &rest[..*count]).iter().map(|line| line.trim_end().chars().count()).max();
            !parts(*count) && widest <= Some(layout.columns.into())
        };
        // Two at least: one may belong to the other.
        let count = (2..=rest.len()).rev().find(fits).unwrap_or(rest.len().min(2));
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(table(report, who, &rest[..count]));
        (rest, who) = (&rest[count..], 1);
    }
    lines
}

/// All ranks together, and each, by the first `who` of [`WHO`].
fn table(report: &Report, who: usize, columns: &[Column]) -> Vec<String> {
    let names = columns.iter().map(|column| column.name);
    let header: Vec<&str> = WHO.into_iter().take(who).chain(names).collect();
    let mut table = plain(&header);
    // As wide as it is: a screen cuts it.
    table.set_content_arrangement(ContentArrangement::Disabled);
    for column in table.column_iter_mut() {
        column.set_padding((0, 0));
    }
    let figures =
        |figures: &Figures| -> Vec<String> { columns.iter().map(|column| (column.value)(figures)).collect() };
    let total = ["all".into(), String::new(), String::new()];
    table.add_row(total.into_iter().take(who).chain(figures(&report.totals)));
    for RankReport { rank, pid, state, figures: its, .. } in &report.ranks {
        let pid = pid.map(|pid| pid.to_string()).unwrap_or_default();
        let names = [rank.to_string(), pid, state.clone()];
        table.add_row(names.into_iter().take(who).chain(figures(its)));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if WHO.get(index) != Some(&"state") || who <= index {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines(Layout::FILE)
}

/// Figures that few ranks ever have, each in a line that says what it means, and a free line after them.
fn notes(report: &Report) -> Vec<String> {
    let mut notes: Vec<String> = report.far.iter().map(Far::sentence).collect();
    for report in &report.ranks {
        let RankReport { rank, away_seconds, figures, .. } = report;
        let moves = figures.rate(&Operation::ALL, &Mechanism::ALL).0 > 0.0;
        if let Some(away) = away_seconds.filter(|away| *away >= AWAY_SECONDS && !moves) {
            notes.push(format!(
                "rank {rank} computes, or is stuck: for {away:.0} s it has neither waited nor made progress, and takes no messages"
            ));
        }
        let (_, served) = figures.rate(&[Operation::Served], &Mechanism::ALL);
        if served > 0.0 {
            notes.push(format!(
                "rank {rank} copies {} B/s for its peers' puts and gets by message",
                short(served)
            ));
        }
        if let Some(besides) = report.pinned_besides() {
            notes.push(format!("rank {rank} {}", pins(besides)));
        }
        let [malformed, refused] = ["malformed", "refused"].map(|key| figures.scalars.get(key));
        if malformed > 0 {
            notes.push(format!("rank {rank} was sent {malformed} malformed messages, and dropped them"));
        }
        if refused > 0 {
            notes.push(format!("rank {rank} refused {refused} messages: it has no such handler"));
        }
    }
    if !notes.is_empty() {
        notes.push(String::new());
    }
    notes
}

/// Words for these bytes, which a process pins beside the memory that the library has registered.
pub(super) fn pins(besides: u64) -> String {
    let besides = short(besides as f64);
    format!("pins {besides} B besides, in no budget: a provider's queues and buffers, or others' memory")
}

/// The meaning of the columns, for the help.
pub(super) const COLUMNS: &str = "\
Columns:
  map/s cma/s msg/s reg/s   puts and gets by mapped memory, cross-memory attach, message, registered memory;
                            B/s after each: their bytes
  AM/s ran/s atom/s         Active Messages sent, handlers run, atomics
Above them: ranks that compute for five seconds or are stuck, were sent malformed messages, copy for their peers' puts and gets by message, or pin more than
they have registered
  hits misses moves         pieces whose memory at the peer was held, pieces asked for, messages that asked
  recalls evictions         requests to give rights back, registrations taken back to make room
  pinned B peak B budget B  bytes registered now, at most so far, and allowed
  grants granted B made     grants there are, the bytes that they name, grants that were ever made
  denied barred             accesses refused: to peers by this rank, as it serves messages; to this rank by
                            peers' grants
  waited in use             waits for granted memory that found a peer at it; of these, those that ended so";

/// The bytes of the column before.
const BYTES: &str = "B/s";

/// A column of figures.
struct Column {
    name: &'static str,
    value: Box<Value>,
}

/// The text for some figures.
type Value = dyn Fn(&Figures) -> String;

fn column(name: &'static str, value: impl Fn(&Figures) -> String + 'static) -> Column {
    Column { name, value: Box::new(value) }
}

/// The columns of every rank.
fn columns() -> Vec<Column> {
    let mechanisms = [(Mechanism::Mapped, "map/s"), (Mechanism::Cma, "cma/s"), (Mechanism::Message, "msg/s")];
    let mut columns: Vec<Column> =
        mechanisms.into_iter().flat_map(|(mechanism, name)| transfer_columns(mechanism, name)).collect();
    let rate = |name, operations: &'static [Operation]| {
        column(name, move |figures| short(figures.rate(operations, &Mechanism::ALL).0))
    };
    columns.push(rate("AM/s", &[Operation::Request, Operation::Reply]));
    columns.push(rate("ran/s", &[Operation::Handled]));
    columns.push(rate("atom/s", &[Operation::Atomic]));
    columns
}

/// Transfers by one mechanism, and their bytes.
fn transfer_columns(mechanism: Mechanism, name: &'static str) -> [Column; 2] {
    [
        column(name, move |figures| short(figures.rate(&TRANSFERS, &[mechanism]).0)),
        column(BYTES, move |figures| short(figures.rate(&TRANSFERS, &[mechanism]).1)),
    ]
}

/// Columns of transfers by registered memory, and of what they cost: over a network heaps may be reached by
/// one key each, with nothing registered after that. None where no rank does.
fn registered_columns(totals: &Figures) -> Vec<Column> {
    let mut columns = Vec::new();
    if totals.uses_registered() || totals.registration.is_some() {
        columns.extend(transfer_columns(Mechanism::Registered, "reg/s"));
    }
    if totals.registration.is_some() {
        columns.extend(registration_columns());
    }
    columns
}

/// The columns of registered memory.
fn registration_columns() -> impl Iterator<Item = Column> {
    REGISTRATION_COLUMNS.iter().enumerate().filter_map(|(index, name)| {
        let of = move |Registration(values): Registration| short(values[index] as f64);
        let value = move |figures: &Figures| figures.registration.map(of).unwrap_or_default();
        Some(column((*name)?, value))
    })
}

/// Columns of grants; none where no rank has any, nor refused anything.
fn grant_columns(totals: &Figures) -> Vec<Column> {
    let all = GRANT_COLUMNS.iter().filter(|_| totals.tells_of_grants());
    all.map(|(key, name)| column(name, |figures| short(figures.scalars.get(key) as f64))).collect()
}

/// Three digits and a power of a thousand; nothing where it is zero, so that what there is stands out.
pub(super) fn short(value: f64) -> String {
    if value <= 0.0 {
        return "·".into();
    }
    let mut scaled = value;
    let mut units = ["", "k", "M", "G", "T", "P", "E"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while scaled >= 999.5 {
        let Some(next) = units.next() else { break };
        (scaled, unit) = (scaled / 1000.0, next);
    }
    match scaled {
        small if small < 9.995 && !unit.is_empty() => format!("{small:.2}{unit}"),
        middle if middle < 99.95 && !unit.is_empty() => format!("{middle:.1}{unit}"),
        large => format!("{large:.0}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{
        Line,
        tests::{granting, registration, sample},
    };
    use super::*;

    #[test]
    fn figures_are_short() {
        let texts = [0.0, 0.2, 7.0, 999.4, 999.6, 12_345.0, 1.5e6, 99_990.0, 3e30].map(short);
        let expected = ["·", "0", "7", "999", "1.00k", "12.3k", "1.50M", "100k"];
        assert_eq!(texts[..8], expected);
        assert!(texts[8].ends_with('E'));
    }

    #[test]
    fn all_columns_fit_a_terminal_of_80() {
        let mut report = sample(Some(registration(u64::MAX / 4, u64::MAX / 4)));
        for rank in &mut report.ranks {
            rank.pid = Some(4_194_304);
            rank.state = "exited 255".into();
            let by = |mechanism| Line { mechanism, ..rank.figures.operations[0] };
            let more = [Mechanism::Cma, Mechanism::Message].map(by);
            rank.figures.operations.extend(more);
            for line in &mut rank.figures.operations {
                line.per_second = 99_900_000.0;
                line.bytes_per_second = 99_900_000.0;
            }
        }
        let lines = lines(&report, Layout::FILE);
        let widest = lines.iter().map(|line| line.trim_end().chars().count()).max();
        assert!(widest <= Some(80), "{widest:?}\n{}", lines.join("\n"));
        for last in ["atom/s", "budget B"] {
            assert!(lines.iter().any(|line| line.trim_end().ends_with(last)), "{last}");
        }
    }

    #[test]
    fn no_command_is_cut() {
        let command = format!("`{}`", ["nsenter", "-n", "standpipe"].join(" "));
        let lines = sentences([format!("to look there: {command}")], Layout { columns: 20, ..Layout::FILE });
        assert!(lines.iter().all(|line| line.chars().count() <= 20), "{lines:?}");
        assert_eq!(lines.join(" "), format!("to look there: {command}"));
    }

    /// Has it done nothing since the look before.
    fn idle(rank: &mut RankReport) {
        rank.figures.operations.iter_mut().for_each(|line| line.per_second = 0.0);
    }

    #[test]
    fn ranks_without_a_node_are_counted_as_such() {
        let mut report = sample(None);
        assert!(!headline(&report).contains("awaited"));
        (report.running, report.lost, report.awaited) = (0, 0, 2);
        assert!(headline(&report).ends_with("0 lost, 2 awaited (no node is open there)"));
    }

    #[test]
    fn what_is_not_as_it_should_be_is_told_in_words() {
        let mut report = sample(None);
        let text = lines(&report, Layout::FILE).join("\n");
        assert!(!text.contains("stuck") && !text.contains("copies"));
        report.ranks[0].away_seconds = Some(9.25);
        let busy = lines(&report, Layout::FILE).join("\n");
        assert!(!busy.contains("stuck"), "it moves data meanwhile: {busy}");
        idle(&mut report.ranks[0]);
        report.ranks[1].figures.scalars.set("malformed", 3);
        let operations = &mut report.ranks[1].figures.operations;
        let mechanism = Mechanism::Message;
        operations.push(Line {
            operation: Operation::Served,
            mechanism,
            bytes_per_second: 45e6,
            ..operations[0]
        });
        report.ranks[0].process_pinned_bytes = Some(83 << 20);
        let text = lines(&report, Layout::FILE).join("\n");
        assert!(text.contains("rank 0 pins 87.0M B besides") && !text.contains("rank 1 pins"), "{text}");
        assert!(
            text.contains("rank 0 computes, or is stuck: for 9 s it")
                && text.contains("rank 1 was sent 3 malformed")
        );
        assert!(text.contains("rank 1 copies 45.0M B/s for its peers' puts and gets by message"), "{text}");
    }

    #[test]
    fn registration_has_columns_only_where_there_is_any() {
        let without = lines(&sample(None), Layout::FILE).join("\n");
        assert!(without.contains("1 lost") && without.contains("killed 9") && without.contains("1.50M"));
        assert!(!without.contains("evictions") && !without.contains("reg/s"), "{without}");
        let with = lines(&sample(Some(registration(3, 4096))), Layout::FILE).join("\n");
        assert!(with.contains("evictions") && with.contains("reg/s") && with.contains("4.10k"));
    }

    #[test]
    fn grants_have_columns_only_where_there_are_any() {
        let without = lines(&sample(None), Layout::FILE).join("\n");
        assert!(!without.contains("granted B"), "{without}");
        let mut report = granting();
        report.ranks[1].figures.scalars.set("granted_bytes", u64::MAX / 4);
        let lines = lines(&report, Layout { columns: 80, ..Layout::FILE });
        let with = lines.join("\n");
        assert!(lines.iter().all(|line| line.trim_end().chars().count() <= 80), "{with}");
        let row: Vec<&str> = lines
            .iter()
            .rfind(|line| line.starts_with("1 ") || line.trim_start().starts_with("1 "))
            .expect("a row of rank 1")
            .split_whitespace()
            .collect();
        assert_eq!(row, ["1", "1", "4.61E", "3", "4", "5", "6", "7"], "{with}");
    }

    #[test]
    fn what_goes_by_a_heaps_key_is_shown_where_nothing_is_registered() {
        let mut report = sample(None);
        let puts = Line {
            mechanism: Mechanism::Registered,
            per_second: 8020.0,
            ..report.ranks[1].figures.operations[0]
        };
        report.ranks[1].figures.operations.push(puts);
        report.totals = Figures::total(report.ranks.iter().map(|rank| &rank.figures));
        let text = lines(&report, Layout::FILE).join("\n");
        assert!(text.contains("reg/s") && text.contains("8.02k") && !text.contains("evictions"), "{text}");
    }

    #[test]
    fn the_help_says_what_each_column_means() {
        let report = sample(Some(registration(3, 4096)));
        let grants = grant_columns(&granting().totals);
        for column in columns().into_iter().chain(registered_columns(&report.totals)).chain(grants) {
            assert!(COLUMNS.contains(column.name), "{}", column.name);
        }
    }

    #[test]
    fn a_narrow_terminal_cuts_neither_sentences_nor_columns() {
        let mut report = sample(Some(registration(3, 4096)));
        report.ranks[0].away_seconds = Some(9.5);
        idle(&mut report.ranks[0]);
        let wide = lines(&report, Layout::FILE).join("\n");
        for columns in [60, 80] {
            let narrow = lines(&report, Layout { columns, ..Layout::FILE });
            for line in &narrow {
                assert!(line.trim_end().chars().count() <= columns.into(), "{line}");
            }
            let words = |text: &str| {
                text.split_whitespace()
                    .filter(|word| !word.starts_with("─"))
                    .map(str::to_owned)
                    .collect::<std::collections::BTreeSet<_>>()
            };
            assert_eq!(words(&narrow.join(" ")), words(&wide), "all of it is there");
            assert!(
                narrow.iter().all(|line| !line.trim_start().starts_with("B/s")),
                "bytes without what they are of"
            );
        }
    }
}
