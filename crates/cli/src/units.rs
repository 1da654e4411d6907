//! Quantities as users write them.

/// Reads a number of bytes: digits, then nothing, `K`, `M`, `G` or `T` (powers of 1024, in either case), then perhaps
/// `iB` or `B`.
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
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift)).ok_or_else(bad)
}

/// The same for sizes of memory.
///
/// # Errors
/// What is wrong with the text, in words.
pub fn parse_size(text: &str) -> Result<usize, String> {
    usize::try_from(parse_bytes(text)?).map_err(|_| format!("{text} is more than this machine can address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_may_have_a_unit() {
        let values = ["12", "12B", "3K", "3KiB", "2m", "1GiB", "5T"];
        let values = values.map(|text| parse_bytes(text).expect("a number"));
        assert_eq!(values, [12, 12, 3072, 3072, 2 << 20, 1 << 30, 5 << 40]);
        assert_eq!(parse_size("64K"), Ok(65_536));
        for bad in ["", "K", "1X", "-1", "1.5G", "99999999999G"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
