//! Signs of life: what is sent to peers, and expected of them, though there is nothing to say.
//!
//! Of a connection that is gone the provider says nothing unless something is under way. So all peers that
//! there are links to are sent something twice a second. One whose process has ended is lost by that: its
//! system refuses what comes. One whose whole host is gone, or cannot be reached any more, refuses nothing;
//! it is lost when nothing was heard from it for as long as [`OfiTransport::silence`] allows. Only time in
//! which this process listened counts.

use std::time::{Duration, Instant};

use engine::Rank;

use super::transport::OfiTransport;

/// How often peers are sent something.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// In how many heartbeats a peer has to be heard from that was said to be gone: what it had sent before may
/// come after that.
const DOUBTS: u8 = 4;

/// The shortest time for which an auxiliary endpoint may end no part, though its peer is heard from.
const STALLS_MIN: Duration = Duration::from_secs(2);

/// How long an auxiliary endpoint may end no part while its peer is heard from, which may be silent for so
/// long. Half of that, as the copies are tried by one more auxiliary endpoint.
fn stalls_within(silence: Duration) -> Duration {
    (silence / 2).max(STALLS_MIN)
}

impl OfiTransport {
    /// Does what is to be done at certain times.
    #[inline(never)]
    pub(super) fn look_at_clock(&mut self) {
        let now = Instant::now();
        // The provider may take now what it refused before, and no message may come to remind of it.
        self.endpoint.listen_again(now);
        if now >= self.pulse_at {
            self.pulse_at = now + HEARTBEAT;
            self.close_again();
            self.heartbeat();
        }
    }

    fn heartbeat(&mut self) {
        let listened = std::mem::take(&mut self.listened);
        let (mut quiet, mut silent, mut doubted) = (Vec::new(), Vec::new(), Vec::new());
        let mut evasive = Vec::new();
        for (rank, link) in self.links.iter_mut().filter(|(_, link)| link.peer.is_some()) {
            let (heard, spoken_to) =
                (std::mem::take(&mut link.life.heard), std::mem::take(&mut link.life.spoken_to));
            if heard {
                link.life.silent = Duration::ZERO;
                link.life.doubts = link.life.doubts.saturating_sub(1);
                if listened && link.copying.landing.is_overdue(HEARTBEAT) {
                    evasive.push(rank);
                }
                if listened
                    && link
                        .life
                        .silence_max
                        .is_some_and(|max| self.endpoint_pool.stall(rank, HEARTBEAT) >= stalls_within(max))
                {
                    doubted.push(rank);
                }
            } else if listened {
                link.life.silent += HEARTBEAT;
            }
            if link.life.silence_max.is_some_and(|max| link.life.silent >= max) {
                silent.push(rank);
            } else if !(heard && spoken_to) && link.waiting.unsent.is_empty() {
                quiet.push(rank);
            }
        }
        for rank in silent {
            if !self.gone.has(rank) {
                tracing::warn!(peer = rank, "nothing was heard from the peer for too long");
                // It may hear again one day.
                self.say_bye(rank);
                self.lose(rank);
            }
        }
        for rank in evasive {
            tracing::warn!(
                peer = rank,
                "the peer does not say that what was broken off is over: it is given up"
            );
            self.say_bye(rank);
            self.lose(rank);
        }
        doubted.into_iter().for_each(|rank| self.doubt_aux_endpoint(rank));
        quiet.into_iter().for_each(|rank| self.ping(rank));
    }

    pub(super) fn ping(&mut self, rank: Rank) {
        // Without memory, the next time.
        if !self.gone.has(rank) {
            let _ = self.send_credits(rank);
        }
    }

    /// Finds out whether the peer is there: somebody has lost it, or found a process of its host dead.
    pub(super) fn find_out(&mut self, rank: Rank) {
        if let Ok(link) = self.link(rank) {
            link.life.doubts = DOUBTS;
            self.ping(rank);
        }
    }
}
