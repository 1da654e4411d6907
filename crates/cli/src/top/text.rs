//! A report as lines of text.

use comfy_table::{CellAlignment, ContentArrangement};
use standpipe::{Mechanism, Operation};

use super::report::{FIELDS, Figures, RankReport, Registration, Report};

/// What moves data: where it goes by messages that is no Active Message of the program.
const TRANSFERS: [Operation; 2] = [Operation::Put, Operation::Get];

/// A headline, the ranks, and all of them together.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let Report { program, size, launcher_pid, running, lost, ranks, totals, .. } = report;
    let mut lines = vec![
        format!("{program}: {size} ranks started by {launcher_pid}, {running} running, {lost} lost"),
        String::new(),
    ];
    let columns = columns(totals);
    let header: Vec<&str> =
        ["rank", "pid", "state"].into_iter().chain(columns.iter().map(|column| column.name)).collect();
    let mut table = crate::table::plain(&header);
    table.set_content_arrangement(ContentArrangement::Disabled);
    let figures = |figures: &Figures, away| -> Vec<String> {
        columns.iter().map(|column| (column.value)(figures, away)).collect()
    };
    let total = ["all".into(), String::new(), String::new()];
    table.add_row(total.into_iter().chain(figures(totals, None)));
    for RankReport { rank, pid, state, away_seconds, figures: its } in ranks {
        let pid = pid.map(|pid| pid.to_string()).unwrap_or_default();
        table.add_row([rank.to_string(), pid, state.clone()].into_iter().chain(figures(its, *away_seconds)));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index != 2 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    lines.extend(table.lines());
    lines
}

/// A column of figures.
struct Column {
    name: &'static str,
    value: Box<Value>,
}

/// The text for some figures, which are so many seconds old where that is known.
type Value = dyn Fn(&Figures, Option<f64>) -> String;

fn column(name: &'static str, value: impl Fn(&Figures, Option<f64>) -> String + 'static) -> Column {
    Column { name, value: Box::new(value) }
}

/// Those of memory that is registered only where any is.
fn columns(totals: &Figures) -> Vec<Column> {
    let mut columns = Vec::new();
    for (mechanism, name) in [
        (Mechanism::Mapped, "mapped/s"),
        (Mechanism::Cma, "cma/s"),
        (Mechanism::Message, "message/s"),
        (Mechanism::Registered, "registered/s"),
    ] {
        if mechanism != Mechanism::Registered || totals.registration.is_some() {
            columns.push(column(name, move |figures, _| short(figures.rate(&TRANSFERS, &[mechanism]).0)));
            columns.push(column("B/s", move |figures, _| short(figures.rate(&TRANSFERS, &[mechanism]).1)));
        }
    }
    let rate = |name, operations: &'static [Operation]| {
        column(name, move |figures, _| short(figures.rate(operations, &Mechanism::ALL).0))
    };
    columns.push(rate("AM/s", &[Operation::Request, Operation::Reply]));
    columns.push(rate("handled/s", &[Operation::Handled]));
    columns.push(rate("atomic/s", &[Operation::Atomic]));
    columns.push(column("malformed", |figures, _| figures.malformed.to_string()));
    columns.push(column("away s", |_, away| away.map(|away| format!("{away:.1}")).unwrap_or_default()));
    if totals.registration.is_some() {
        columns.extend(registration_columns());
    }
    columns
}

fn registration_columns() -> impl Iterator<Item = Column> {
    FIELDS.iter().enumerate().filter_map(|(index, field)| {
        let of = move |Registration(values): Registration| short(values[index] as f64);
        let value = move |figures: &Figures, _| figures.registration.map(of).unwrap_or_default();
        Some(column(field.column?, value))
    })
}

/// Three digits and a power of a thousand; nothing where it is zero, so that what there is stands out.
fn short(value: f64) -> String {
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
    use super::super::report::tests::{registration, sample};
    use super::*;

    #[test]
    fn figures_are_short() {
        let texts = [0.0, 0.2, 7.0, 999.4, 999.6, 12_345.0, 1.5e6, 99_990.0, 3e30].map(short);
        let expected = ["·", "0", "7", "999", "1.00k", "12.3k", "1.50M", "100k"];
        assert_eq!(texts[..8], expected);
        assert!(texts[8].ends_with('E'));
    }

    #[test]
    fn registration_has_columns_only_where_there_is_any() {
        let without = lines(&sample(None)).join("\n");
        assert!(without.contains("1 lost") && without.contains("killed 9") && without.contains("1.50M"));
        assert!(!without.contains("evictions") && !without.contains("registered/s"), "{without}");
        let with = lines(&sample(Some(registration(3, 4096)))).join("\n");
        assert!(with.contains("evictions") && with.contains("registered/s") && with.contains("4.10k"));
    }
}
