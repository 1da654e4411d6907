//! The colours of lines. A name that occurs in several figures has one colour in all of them, and in all
//! reports.

use plotters::style::RGBColor;

/// Lines that are drawn together, and in other figures without each other: each has the colour of its place
/// here.
const TOGETHER: [&[&str]; 3] = [
    &[
        "hardware",
        "pin-everything",
        "bounce",
        "rendezvous-unpin",
        "rendezvous-no-unpin",
        "pin-down",
        "firehose",
    ],
    &["fifo", "lru", "sieve"],
    &[
        "even, 1 active",
        "leases, 1 active",
        "even, 8 active",
        "leases, 8 active",
        "even, 64 active",
        "leases, 64 active",
    ],
];

/// The colour of a line of that name, which is the `index`th of its figure: names of no other figure go by
/// their place.
pub(super) fn of(name: &str, index: usize) -> RGBColor {
    let known = TOGETHER.iter().find_map(|names| names.iter().position(|known| *known == name));
    by_place(known.unwrap_or(index))
}

/// The colour by its place; they can be told apart on dark and on light ground.
pub(super) fn by_place(index: usize) -> RGBColor {
    const COLOURS: [RGBColor; 8] = [
        RGBColor(0x3b, 0x82, 0xf6),
        RGBColor(0xf0, 0x8c, 0x00),
        RGBColor(0x10, 0xb9, 0x81),
        RGBColor(0xec, 0x48, 0x99),
        RGBColor(0x8b, 0x5c, 0xf6),
        RGBColor(0x06, 0xb6, 0xd4),
        RGBColor(0xef, 0x44, 0x44),
        RGBColor(0x84, 0xa3, 0x16),
    ];
    COLOURS[index % COLOURS.len()]
}

/// A colour as CSS.
pub(super) fn css(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_name_has_its_colour_at_every_place_and_its_companions_have_others() {
        assert_eq!(of("leases, 8 active", 0), of("leases, 8 active", 5));
        assert_eq!((of("unheard of", 0), of("unheard of", 3)), (by_place(0), by_place(3)));
        for names in TOGETHER {
            let mut colours: Vec<String> = names.iter().map(|name| css(of(name, 0))).collect();
            colours.sort_unstable();
            colours.dedup();
            assert_eq!(colours.len(), names.len(), "{names:?}");
        }
    }
}
