//! What a process has mapped, as the kernel shows it.

use std::ops::Range;

/// A mapping of this process.
#[derive(Clone, Debug)]
pub struct Mapped {
    /// Its addresses.
    pub range: Range<u64>,
    /// As in `/proc/self/maps`: `rw-s`.
    pub rights: String,
    /// Whether a core dump would contain it, if it contains shared memory.
    pub is_dumped: bool,
}

impl Mapped {
    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether it may be read and written.
    pub fn is_open(&self) -> bool {
        self.rights.starts_with("rw")
    }
}

/// The mappings of this process whose file has that word in its name.
///
/// # Panics
/// When `/proc/self/smaps` cannot be read.
pub fn mapped(name: &str) -> Vec<Mapped> {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("/proc is there");
    let mut found: Vec<Mapped> = Vec::new();
    let mut is_one = false;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-') {
            let number = |text| u64::from_str_radix(text, 16).expect("an address");
            is_one = line.contains(name);
            if is_one {
                let rights = words.next().unwrap_or_default().to_owned();
                let range = number(start)..number(end);
                found.push(Mapped { range, rights, is_dumped: true });
            }
            continue;
        }
        let Some(last) = found.last_mut().filter(|_| is_one) else { continue };
        if first == "VmFlags:" {
            last.is_dumped = !words.any(|word| word == "dd");
        }
    }
    found
}
