//! The buffer in which handlers of `gam_request` find its bytes.

use std::cell::Cell;

/// Zeros on both sides of the bytes. Programs look at what lies before, and end a text behind.
const SLACK: usize = 64;

thread_local! {
    /// The buffer of this thread, while no handler has it.
    static FREE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes of a message that the program may write, until the handler returns.
pub(super) struct SystemBuffer(Vec<u8>);

impl SystemBuffer {
    pub(super) fn of(bytes: &[u8]) -> SystemBuffer {
        // At the program's end such variables may be gone.
        let mut buffer = FREE.try_with(Cell::take).unwrap_or_default();
        buffer.clear();
        buffer.resize(SLACK, 0);
        buffer.extend_from_slice(bytes);
        buffer.resize(bytes.len() + 2 * SLACK, 0);
        SystemBuffer(buffer)
    }

    /// Where the bytes begin.
    pub(super) fn start(&mut self) -> *mut u8 {
        self.0[SLACK..].as_mut_ptr()
    }
}

impl Drop for SystemBuffer {
    fn drop(&mut self) {
        let _ = FREE.try_with(|free| free.set(std::mem::take(&mut self.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_lie_around_the_bytes_whatever_was_written_there_before() {
        for bytes in [&[7; 100][..], &[1, 2, 3], &[]] {
            let mut buffer = SystemBuffer::of(bytes);
            let before = [&[0; SLACK][..], bytes, &[0; SLACK]].concat();
            assert_eq!(buffer.0, before);
            buffer.0.fill(9);
        }
    }
}
