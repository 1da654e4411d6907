//! Reports' line charts, as SVG text. Axes and letters are drawn in `currentColor`, so that the page decides
//! between dark on light and light on dark.

use std::ops::Range;

use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, DefaultFormatting, KeyPointHint, Ranged, ValueFormatter},
    },
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::colours;

/// A chart of one or more lines.
#[derive(Debug, Clone)]
pub struct Chart {
    /// What is measured along the bottom, with its unit.
    pub x_label: &'static str,
    /// What is measured up the side, with its unit.
    pub y_label: &'static str,
    /// Whether the bottom is logarithmic; its values must then be above zero.
    pub x_log: bool,
    /// Whether the side is logarithmic, with its values above zero.
    pub y_log: bool,
    /// Writes the numbers at the side.
    pub y_text: fn(f64) -> String,
    /// The top of the side when it is known beforehand, as for a share; else the highest value decides.
    pub y_max: Option<f64>,
    /// Broken lines from top to bottom; all of them are within what the bottom shows.
    pub marks: Vec<Mark>,
    /// The lines.
    pub series: Vec<Series>,
}

/// One line of a chart.
#[derive(Debug, Clone)]
pub struct Series {
    /// What the line shows; the page's legend names it.
    pub name: String,
    /// Its points from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A place along the bottom where something changes.
#[derive(Debug, Clone)]
pub struct Mark {
    /// Where, as the bottom's values are.
    pub at: f64,
    /// What is there; it stands above the line.
    pub name: &'static str,
}

/// The colour by its place, as CSS; they can be told apart on dark and on light ground.
#[must_use]
pub fn colour(index: usize) -> String {
    colours::css(colours::by_place(index))
}

impl Series {
    /// The colour of this line, the `index`th of its chart, as CSS.
    #[must_use]
    pub fn colour(&self, index: usize) -> String {
        colours::css(colours::of(&self.name, index))
    }
}

impl Chart {
    /// Draws the chart.
    ///
    /// # Errors
    /// What the drawing library says; it has no reason to with finite points.
    pub fn svg(&self) -> Result<String, String> {
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            let (x, y) = (self.x_range(), self.y_range());
            match (self.x_log, self.y_log) {
                (true, true) => self.draw(&root, Decades(x), Decades(y))?,
                (true, false) => self.draw(&root, Decades(x), y)?,
                (false, true) => self.draw(&root, x, Decades(y))?,
                (false, false) => self.draw(&root, x, y)?,
            }
            root.present().map_err(|error| error.to_string())?;
        }
        Ok(text.replace("#000000", "currentColor"))
    }

    fn draw<X, Y>(&self, root: &DrawingArea<SVGBackend, Shift>, x: X, y: Y) -> Result<(), String>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_top(if self.marks.is_empty() { 8 } else { 26 })
            .margin_right(24)
            .x_label_area_size(46)
            .y_label_area_size(66)
            .build_cartesian_2d(x, y)
            .map_err(|error| error.to_string())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .axis_style(BLACK.mix(0.35))
            .label_style(("sans-serif", 15, &BLACK.mix(0.75)))
            .axis_desc_style(("sans-serif", 15, &BLACK.mix(0.75)))
            .x_labels(7)
            .y_labels(6)
            .x_desc(self.x_label)
            .y_desc(self.y_label)
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| (self.y_text)(*value))
            .draw()
            .map_err(|error| error.to_string())?;
        let (low, high) = (self.y_range().start, self.y_range().end);
        for mark in &self.marks {
            let ends = [(mark.at, low), (mark.at, high)];
            let line = DashedLineSeries::new(ends, 5, 4, BLACK.mix(0.5).stroke_width(1));
            chart.draw_series(line).map_err(|error| error.to_string())?;
            let above = chart.plotting_area().map_coordinate(&(mark.at, high)).0;
            let grey = BLACK.mix(0.75);
            let style = ("sans-serif", 13, &grey).into_text_style(root);
            let style = style.pos(Pos::new(HPos::Center, VPos::Top));
            root.draw_text(mark.name, &style, (above, 8)).map_err(|error| error.to_string())?;
        }
        for (index, series) in self.series.iter().enumerate() {
            let colour = colours::of(&series.name, index);
            // A line of one point could not be seen.
            let drawn = match series.points[..] {
                [point] => chart.draw_series([Circle::new(point, 4, colour.filled())]).map(drop),
                _ => {
                    let line = LineSeries::new(series.points.iter().copied(), colour.stroke_width(2));
                    chart.draw_series(line).map(drop)
                }
            };
            drawn.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.series.iter().flat_map(|series| &series.points)
    }

    fn highest(&self) -> f64 {
        self.points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max)
    }

    /// From zero, or a little below the lowest point, to a little above the highest.
    fn y_range(&self) -> Range<f64> {
        let top = self.y_max.unwrap_or_else(|| 1.08 * self.highest());
        let lowest = self.points().map(|point| point.1).fold(top, f64::min).max(f64::MIN_POSITIVE);
        if self.y_log { lowest * 0.8..top * 1.2 } else { 0.0..top }
    }

    /// From the leftmost point or mark to the rightmost, never empty.
    fn x_range(&self) -> Range<f64> {
        let all = || self.points().map(|point| point.0).chain(self.marks.iter().map(|mark| mark.at));
        let low = all().fold(f64::INFINITY, f64::min);
        let high = all().fold(f64::NEG_INFINITY, f64::max);
        match (self.x_log, low.is_finite()) {
            (_, false) => 1.0..10.0,
            (true, _) => low * 0.9..high * 1.1,
            (false, _) => low..high.max(low + 1.0),
        }
    }
}

/// A number without needless digits: `1500` is `1.5 k`.
#[must_use]
pub fn short(value: f64) -> String {
    let plain = |value: f64| {
        let text = format!("{value:.2}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if value.abs() >= 1e6 {
        format!("{} M", plain(value / 1e6))
    } else if value.abs() >= 1e3 {
        format!("{} k", plain(value / 1e3))
    } else {
        plain(value)
    }
}

/// A logarithmic axis with marks at 1, 2 and 5 of each decade; the library's own marks every digit or none.
#[derive(Clone)]
struct Decades(Range<f64>);

impl From<Range<f64>> for Decades {
    fn from(range: Range<f64>) -> Self {
        Self(range)
    }
}

impl Ranged for Decades {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value / self.0.start).ln() / (self.0.end / self.0.start).ln();
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let first = self.0.start.log10().floor() as i32;
        let last = self.0.end.log10().ceil() as i32;
        let marks = |digits: &[f64]| -> Vec<f64> {
            (first..=last)
                .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)))
                .filter(|mark| self.0.contains(mark))
                .collect()
        };
        let fine = marks(&[1.0, 2.0, 5.0]);
        if fine.len() <= hint.max_num_points() { fine } else { marks(&[1.0]) }
    }

    fn range(&self) -> Range<f64> {
        self.0.clone()
    }
}

const SIZE: (u32, u32) = (580, 310);

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        Chart {
            x_label: "pull (µs)",
            y_label: "share",
            x_log: true,
            y_text: short,
            y_max: Some(1.0),
            y_log: false,
            marks: Vec::new(),
            series: vec![Series { name: "a".to_owned(), points }],
        }
    }

    #[test]
    fn a_chart_has_its_labels_marks_and_line() {
        let svg = chart(vec![(40.0, 0.0), (400.0, 0.5), (4000.0, 1.0)]).svg().expect("finite points");
        for part in ["<svg", "pull (µs)", "100", "1 k", &colour(0).to_uppercase()] {
            assert!(svg.contains(part), "{part} is missing from {svg}");
        }
        assert!(!svg.contains("#000000"), "black letters cannot be read on a dark page");
    }

    #[test]
    fn a_chart_without_points_is_still_a_chart() {
        assert!(chart(Vec::new()).svg().expect("nothing to draw").contains("</svg>"));
        let one = Chart { x_log: false, ..chart(vec![(3.0, 0.0)]) };
        assert!(one.svg().expect("one point").contains("<circle"), "a line of it could not be seen");
    }

    #[test]
    fn a_marked_place_is_a_broken_line_with_its_name_wherever_it_is() {
        let plain = chart(vec![(40.0, 0.1), (4000.0, 1.0)]);
        let mark = |at, name| Mark { at, name };
        let marked = Chart { marks: vec![mark(400.0, "M")], y_log: true, ..plain.clone() };
        let lines = |chart: &Chart| chart.svg().expect("finite points").matches("<polyline").count();
        let without = lines(&Chart { y_log: true, ..plain });
        assert!(lines(&marked) > without + 5, "one line a dash");
        let beyond = Chart { marks: vec![mark(400.0, "M"), mark(9000.0, "all of it")], ..marked };
        assert!(beyond.x_range().contains(&9000.0) && lines(&beyond) > without + 10, "right of all points");
        assert!(beyond.svg().is_ok_and(|svg| svg.contains("all of it")), "and named");
    }

    #[test]
    fn marks_are_one_two_and_five_of_each_decade() {
        assert_eq!(Decades(30.0..1200.0).key_points(10), [50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(Decades(1.0..1e6).key_points(8).len(), 6);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.25, 2.0, 1500.0, 2e6].map(short), ["0.25", "2", "1.5 k", "2 M"]);
    }
}
