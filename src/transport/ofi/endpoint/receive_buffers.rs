//! The buffers that wait for messages: all are there, and lent, before an endpoint counts as open. One that
//! receives nothing would neither make progress nor say why.

use std::time::{Duration, Instant};

use fabric::{Errno, Error};

use super::{Begin, NetEndpoint};
use crate::base::limits::RECEIVES;
use crate::transport::ofi::buffers::{Buffer, Purpose, Size};
use crate::transport::ofi::endpoint::Kept;

/// How long the provider may refuse the first buffers. A program that opens an endpoint may do so twice
/// within a second.
const LENT_WITHIN: Duration = Duration::from_millis(400);

/// How long it is not asked again after it has refused one.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

impl NetEndpoint {
    /// Makes the buffers that the endpoint needs, and lends the provider those that are to wait for messages.
    ///
    /// # Errors
    /// One of them cannot be had, as where less memory may be locked than the provider pins; or the provider
    /// does not take it.
    pub(in crate::transport::ofi) fn equip(mut self) -> Result<NetEndpoint, Error> {
        while self.idle.len() < RECEIVES {
            while !self.buffers.has(Size::Frame) {
                self.make(Size::Frame)?;
            }
            self.idle.extend(self.buffers.take(Size::Frame));
        }
        // Where buffers are pinned, those that suffice as a rule are now: later what the engine registers is
        // all that comes.
        if self.description.mr_mode.local {
            self.make(Size::Frame)?;
            self.make(Size::Small)?;
        }
        let begun = Instant::now();
        self.listen();
        while self.lacks_receives() {
            if begun.elapsed() > LENT_WITHIN {
                return Err(Error::Call { call: "fi_recv", errno: Errno::ENOMEM });
            }
            std::thread::sleep(REFUSED_PAUSE);
            self.listen();
        }
        Ok(self)
    }

    /// Whether [`NetEndpoint::take`] would have a buffer for a message.
    pub(in crate::transport::ofi) fn has_frame(&mut self) -> bool {
        self.buffers.has(Size::Frame) || self.make(Size::Frame).is_ok()
    }

    /// Whether buffers that are to wait for messages do not: the provider refused them.
    pub(in crate::transport::ofi) fn lacks_receives(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Lends the buffers that are to wait for messages, as far as the provider takes them.
    pub(in crate::transport::ofi) fn listen(&mut self) {
        while let Some(buffer) = self.idle.pop() {
            let lent = self.lend((buffer, Size::Frame.bytes()), Purpose::Receive, Begin::Receive);
            if let Err(Kept { buffer, .. }) = lent {
                self.idle_until = Some(Instant::now() + REFUSED_PAUSE);
                return self.idle.push(buffer);
            }
        }
    }

    /// Does that again, unless the provider has refused one a moment ago.
    pub(in crate::transport::ofi) fn listen_again(&mut self, now: Instant) {
        if self.lacks_receives() && self.idle_until.is_none_or(|until| now >= until) {
            self.listen();
        }
    }

    /// Takes back a buffer to be lent for messages again.
    pub(in crate::transport::ofi) fn received(&mut self, buffer: Buffer) {
        self.idle.push(buffer);
        self.listen();
    }
}
