//! Quantities as users write them.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// Reads a number of bytes: digits, then nothing, `K`, `M`, `G` or `T` (powers of 1024, in either case), then
/// perhaps `iB` or `B`.
///
/// # Errors
/// What is wrong with the text, in words.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("`{text}` is not a number of bytes such as 65536, 64K, 256M, 1G or 1T");
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(bad()),
    };
    if number.is_empty() {
        return Err(bad());
    }
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("`{text}` is more than 64 bits can count"))
}

/// Reads a time in seconds, which may have a fraction.
///
/// # Errors
/// What is wrong with the text, in words.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| "it must not be negative, nor beyond all clocks".to_owned())
}

/// The same for sizes of memory.
///
/// # Errors
/// What is wrong with the text, in words.
pub fn parse_size(text: &str) -> Result<usize, String> {
    usize::try_from(parse_bytes(text)?).map_err(|_| format!("{text} is more than this machine can address"))
}

/// Reads a whole number that is `least` or more.
pub fn at_least<N: Number>(least: N) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static {
    move |text| match whole(text)? {
        number if number < least => Err(format!("it must be at least {least}")),
        number => Ok(number),
    }
}

/// Reads a whole number from `least` to `most`.
pub fn between<N: Number>(
    least: N,
    most: N,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static {
    move |text| match whole(text)? {
        number if number < least || number > most => Err(format!("it must be {least} to {most}")),
        number => Ok(number),
    }
}

/// A whole number without sign.
pub trait Number: Copy + Display + FromStr + PartialOrd + Send + Sync + 'static {}

impl Number for u32 {}
impl Number for u64 {}
impl Number for usize {}

fn whole<N: Number>(text: &str) -> Result<N, String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) => Ok(number),
        Err(_) if all_digits && digits.len() < text.len() => Err("it must not be negative".to_owned()),
        Err(_) if all_digits => Err("it is too large".to_owned()),
        Err(_) => Err("it is not a whole number".to_owned()),
    }
}

/// A time as people read it.
#[must_use]
pub fn nanos(ns: f64) -> String {
    match ns {
        _ if ns < 100.0 => format!("{ns:.2} ns"),
        _ if ns < 10_000.0 => format!("{ns:.0} ns"),
        _ if ns < 1_000_000.0 => format!("{:.1} µs", ns / 1e3),
        _ => format!("{:.2} ms", ns / 1e6),
    }
}

/// A number of bytes with a binary unit, three digits or so: `1.50 GiB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, value) {
        (0, _) => format!("{count} B"),
        (_, 100.0..) => format!("{value:.0} {}", UNITS[unit]),
        (_, 10.0..) => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.2} {}", UNITS[unit]),
    }
}

/// A number of things, of which one is called `one`: `1 request`, `2 requests`.
#[must_use]
pub fn counted(count: u64, one: &str) -> String {
    let ending = match one {
        _ if count == 1 => "",
        _ if one.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {one}{ending}", grouped(count))
}

/// A number with a comma between groups of three digits: `19,686`.
#[must_use]
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time given in microseconds, in the unit that suits it: `278 µs`, `40.4 ms`.
#[must_use]
pub fn micros(us: f64) -> String {
    match us {
        ..10.0 => format!("{us:.1} µs"),
        10.0..1e3 => format!("{us:.0} µs"),
        1e3..1e6 => format!("{:.1} ms", us / 1e3),
        _ => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_a_fraction_but_not_be_negative() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for bad in ["-1", "soon", "1e300", "NaN"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_out_of_bounds_are_refused_in_words() {
        assert_eq!((at_least(1_u64)("1"), between(2_u32, 8)("8")), (Ok(1), Ok(8)));
        let refused = |text| between(2_u32, 8)(text).expect_err("out of bounds");
        let said = ["1", "9", "-3", "99999999999", "many", "", "-"].map(refused);
        assert_eq!(said[..2], ["it must be 2 to 8"; 2]);
        assert_eq!(said[2..4], ["it must not be negative", "it is too large"]);
        assert_eq!(said[4..], ["it is not a whole number"; 3]);
        assert_eq!(at_least(1_usize)("0"), Err("it must be at least 1".to_owned()));
    }

    #[test]
    fn bytes_may_have_a_unit() {
        let values = ["12", "12B", "3K", "3KiB", "2m", "1GiB", "5T"];
        let values = values.map(|text| parse_bytes(text).expect("a number"));
        assert_eq!(values, [12, 12, 3072, 3072, 2 << 20, 1 << 30, 5 << 40]);
        assert_eq!(parse_size("64K"), Ok(65_536));
        for bad in ["", "K", "1X", "-1", "1.5G", "99999999999G"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_bytes("16777216T"), Err("`16777216T` is more than 64 bits can count".to_owned()));
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!((grouped(0).as_str(), grouped(999).as_str()), ("0", "999"));
        assert_eq!((bytes(1023).as_str(), bytes(1536).as_str()), ("1023 B", "1.50 KiB"));
        assert_eq!([2.25, 278.4, 40_381.0, 2e6].map(micros), ["2.2 µs", "278 µs", "40.4 ms", "2.0 s"]);
        assert_eq!(
            [0, 1, 2].map(|count| counted(count, "process")),
            ["0 processes", "1 process", "2 processes"]
        );
        assert_eq!(counted(1000, "request"), "1,000 requests");
        assert_eq!((bytes(20 << 20).as_str(), bytes(300 << 30).as_str()), ("20.0 MiB", "300 GiB"));
    }
}
