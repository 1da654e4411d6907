//! The job's secret: whoever shows it may join.

use std::fmt;

use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

pub(crate) const SECRET_BYTES: usize = 32;

/// Random bytes that only the members of one job know. Neither its `Debug` nor any error shows them.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Secret([u8; SECRET_BYTES]);

impl Secret {
    pub(crate) fn random() -> rustix::io::Result<Self> {
        random_bytes().map(Self)
    }

    /// A secret that was made of other secrets.
    pub(in crate::job) fn of(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// Compares in constant time: how long a wrong guess takes tells nothing about the secret.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// For ciphers that take it as their key, and for keys that are made of it.
    pub(crate) fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    pub(crate) fn to_hex(&self) -> String {
        to_hex(&self.0)
    }

    /// The secret written as exactly 64 hexadecimal digits, or `None`.
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        from_hex(text).map(Self)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// `N` bytes from the kernel's random source.
pub(crate) fn random_bytes<const N: usize>() -> rustix::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Exactly `2 * N` hexadecimal digits, or `None`.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_goes_there_and_back() {
        let secret = Secret::random().expect("the kernel has random bytes");
        let back = Secret::from_hex(&secret.to_hex()).expect("written by to_hex");
        assert!(secret.matches(&back));
        assert!(!secret.matches(&Secret::random().expect("as above")));
    }

    #[test]
    fn anything_but_64_digits_is_refused() {
        let good = "ab".repeat(SECRET_BYTES);
        assert!(Secret::from_hex(&good).is_some());
        for bad in ["", "ab", &good[1..], &format!("{good}0"), &good.replacen('a', "g", 1), &"é".repeat(32)]
        {
            assert!(Secret::from_hex(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn debug_hides_the_bytes() {
        let secret = Secret([0xab; SECRET_BYTES]);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
