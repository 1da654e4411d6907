//! What a command prints on standard output, which may be closed, or full.

use std::fmt::Display;
use std::io::{self, Write};

/// Whether anybody reads what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// As far as is known.
    Listens,
    /// Nobody: whoever has read enough, as `head` does, closes its end, and that is no failure.
    Gone,
}

/// Standard output takes no more.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output")]
pub struct PrintError(#[from] io::Error);

/// Prints some lines.
///
/// # Errors
/// When standard output fails otherwise than by being closed: its disk is full, most likely.
pub fn print(text: impl Display) -> Result<Reader, PrintError> {
    to(&mut io::stdout().lock(), text)
}

fn to(out: &mut impl Write, text: impl Display) -> Result<Reader, PrintError> {
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::Listens),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(PrintError(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Refuses(io::ErrorKind);

    impl Write for Refuses {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure_and_a_full_disk_is_one() {
        let mut lines = Vec::new();
        assert_eq!(to(&mut lines, "two\nlines").expect("room"), Reader::Listens);
        assert_eq!(lines, b"two\nlines\n");
        assert_eq!(to(&mut Refuses(io::ErrorKind::BrokenPipe), 1).expect("no failure"), Reader::Gone);
        assert!(to(&mut Refuses(io::ErrorKind::StorageFull), 1).is_err());
    }
}
