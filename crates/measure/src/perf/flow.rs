//! The part of a case that floods and streams of transfers alone have.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use standpipe::limits::{FRAME_BYTES, FRAME_HEAD_BYTES, FRAME_MESSAGE_BYTES};

/// The operation that moves a stream's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Moves {
    /// Puts that are not waited for, and then a quiet
    Put,
    /// Gets; over ofi many at a time
    Get,
    /// Requests with a payload
    Medium,
}

impl Moves {
    /// Its name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Moves::Put => "put",
            Moves::Get => "get",
            Moves::Medium => "medium",
        }
    }
}

/// The side that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Ways {
    /// One of the two processes
    One,
    /// Both at once
    Both,
}

/// How a flood or a stream flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// The operation that moves the bytes; of a flood messages.
    pub moves: Moves,
    /// The side that sends.
    pub ways: Ways,
    /// Threads that send.
    pub threads: usize,
    /// Requests that may be unacknowledged.
    pub window: Option<u64>,
    /// Whether every request is answered.
    pub reply: bool,
    /// Whether the handler copies the payload out.
    pub copies: bool,
    /// Bytes of a frame of the limit over a network; without it, as many as ours has.
    pub frame_bytes: Option<usize>,
}

impl Flow {
    /// Messages that the limit has in a frame, and the frame's bytes. A message of ours has `size` bytes of
    /// payload.
    pub fn frame(&self, size: usize) -> (u32, usize) {
        let message = FRAME_MESSAGE_BYTES + size.next_multiple_of(8);
        let frame = self.frame_bytes.unwrap_or(FRAME_BYTES).max(FRAME_HEAD_BYTES + message);
        let messages = (frame - FRAME_HEAD_BYTES) / message;
        (u32::try_from(messages).unwrap_or(u32::MAX), FRAME_HEAD_BYTES + messages * message)
    }

    /// The rest of a case in a few words, of a stream or else of a flood.
    pub fn words(&self, is_stream: bool, size: &str) -> Vec<String> {
        let mut words = vec![];
        if is_stream {
            words.push(self.moves.name().to_owned());
        }
        words.push(size.to_owned());
        if is_stream {
            words.push(if self.ways == Ways::Both { "both ways" } else { "one way" }.to_owned());
        }
        if self.threads > 1 {
            words.push(format!("by {} threads", self.threads));
        }
        words.extend(self.window.map(|window| format!("window {window}")));
        words.extend(self.reply.then(|| "answered".to_owned()));
        words.extend(self.copies.then(|| "copied out".to_owned()));
        words.extend(self.frame_bytes.map(|bytes| format!("beside frames of {bytes} B")));
        words
    }
}
