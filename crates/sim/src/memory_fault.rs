//! What faults that come by themselves do to memory and limits.

use engine::{Nanos, Rank};

use crate::faults::Incident;
use crate::nic::Unmapped;
use crate::process::Health;
use crate::queue::Event;
use crate::space::Access;
use crate::trace::Action;
use crate::world::World;

/// Pages, at most, that a fault unmaps at once.
const UNMAP_PAGES_MAX: u64 = 16;

impl World {
    /// The fault that comes before the next event, if one does. With no event to come, none does.
    pub(crate) fn incident(&mut self) -> Option<Incident> {
        let next = self.queue.next_at()?;
        let incident = self.weather.incident(next)?;
        self.now = next;
        self.trace.note(Action::Befall, next, 0, 0);
        self.trace.word(match incident {
            Incident::Shrink => 0,
            Incident::Unmap => 1,
            Incident::Stop => 2,
            Incident::Mute => 3,
            Incident::Restart => 4,
        });
        Some(incident)
    }

    /// Unmaps the pages that `len` bytes from `offset` on touch.
    pub(crate) fn unmap(&mut self, rank: Rank, offset: u64, len: u64) {
        self.changes += 1;
        let (now, change) = (self.now, self.changes);
        let process = self.process_mut(rank);
        let page_bytes = process.space.page_bytes();
        process.space.unmap(offset, len);
        process.heard.note(rank, change);
        let end = (offset + len).next_multiple_of(page_bytes);
        process.nic.unmapped(offset - offset % page_bytes, end, Unmapped { since: now, change });
    }

    /// Unmaps some pages of `rank`, and plans for them to be there again, at once or by `later`. Returns
    /// where they are, and their bytes.
    pub(crate) fn unmap_some(&mut self, rank: Rank, later: Nanos) -> Option<(u64, u64)> {
        let process = self.process(rank);
        let (ranges, page_bytes) = (process.space.ranges() as u64, process.space.page_bytes());
        if ranges == 0 || matches!(process.health, Health::Dead(_)) {
            return None;
        }
        let range = self.weather.below(ranges) as usize;
        let part = self.process(rank).space.nth(range).filter(|part| part.access == Access::Full)?;
        let (start, all) = (part.start, (part.end - part.start) / page_bytes);
        let first = self.weather.below(all);
        let pages = 1 + self.weather.below(UNMAP_PAGES_MAX.min(all - first));
        let offset = start + first * page_bytes;
        self.unmap(rank, offset, pages * page_bytes);
        let at = if self.weather.below(2) == 0 { self.now } else { later };
        self.queue.push(at, Event::Remap { rank, offset, pages: pages as u32 });
        Some((offset, pages * page_bytes))
    }

    /// Maps those of the pages that are not mapped. Returns the bytes of all of them.
    pub(crate) fn map_holes(&mut self, rank: Rank, offset: u64, pages: u32) -> u64 {
        let space = &mut self.process_mut(rank).space;
        let (page_bytes, len) = (space.page_bytes(), u64::from(pages) * space.page_bytes());
        for page in (offset..offset + len).step_by(page_bytes as usize) {
            if space.part(page).is_none() {
                space.map_at(page, page_bytes, Access::Full);
            }
        }
        len
    }

    /// Changes how much `rank` may pin: mostly to something about what it has pinned, sometimes to all that
    /// it could at first.
    pub(crate) fn shrink(&mut self, rank: Rank) {
        let (whole, page_bytes) = (self.costs.pinnable_bytes, self.costs.page_bytes);
        let about = 2 * self.process(rank).nic.pinned() + page_bytes;
        let limit = if self.weather.below(4) == 0 { whole } else { self.weather.below(about).min(whole) };
        self.process_mut(rank).nic.set_limit(limit);
    }
}
