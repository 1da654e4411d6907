//! Where ranks mostly go: a few stretches of memory at a time, as programs do.
//!
//! There they find what they need held, and others take it from them: most of what can go wrong is a race
//! between the use of a right and its end. How much they keep to such places, and for how long, is different
//! in every storm.

use super::draw::Dice;
use super::shadow::{Region, Shadow};

/// Places at a time.
const SPOTS: usize = 2;

/// Once in how many operations a rank goes anywhere, and once in how many one of the places becomes another.
const STRAYS: [u64; 4] = [3, 8, 16, 32];
const STAYS: [u64; 4] = [20, 100, 600, 4_000];

/// The heap among the shadow's regions.
pub(super) const HEAP: usize = 2;

/// Stretches of one region, one of each writer's; and the one of them that is mostly read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) region: Region,
    /// The stretch of the rank that is so many before the owner.
    pub(super) group: u32,
    pub(super) writer: u32,
    /// Whether others go there, too.
    pub(super) usual: bool,
}

/// Where ranks mostly go now.
#[derive(Debug)]
pub(super) struct Locality {
    spots: [Spot; SPOTS],
    strays: u64,
    stays: u64,
}

impl Locality {
    pub(super) fn new(dice: &mut Dice, shadow: &Shadow) -> Locality {
        Locality {
            spots: [(); SPOTS].map(|()| anywhere(dice, shadow, true)),
            strays: dice.pick(&STRAYS),
            stays: dice.pick(&STAYS),
        }
    }

    /// Where the next operation goes.
    pub(super) fn next(&mut self, dice: &mut Dice, shadow: &Shadow) -> Spot {
        if dice.once_in(self.strays) {
            return anywhere(dice, shadow, false);
        }
        let at = dice.below(SPOTS as u64) as usize;
        if dice.once_in(self.stays) {
            self.spots[at] = anywhere(dice, shadow, true);
        }
        self.spots[at]
    }
}

fn anywhere(dice: &mut Dice, shadow: &Shadow, usual: bool) -> Spot {
    let region = shadow.regions[dice.pick(&[0, 0, 0, 1, 1, HEAP])];
    let group = dice.below(u64::from(region.units / shadow.writers)) as u32;
    // Mostly what the neighbours write, and the owner itself hardly ever.
    let writer = behind(dice, shadow.writers);
    Spot { region, group, writer, usual }
}

/// How many ranks behind an owner somebody is that writes to it, of so many that do: mostly one or two.
pub(super) fn behind(dice: &mut Dice, writers: u32) -> u32 {
    let others = u64::from(writers) - 1;
    match dice.below(32) {
        0 => 0,
        1..26 => 1 + dice.below(others.min(2)) as u32,
        _ => 1 + dice.below(others) as u32,
    }
}
