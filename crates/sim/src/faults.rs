//! What goes wrong, decided by a seed.

use std::fmt;
use std::str::FromStr;

use engine::Nanos;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// Kinds of fault, and how often each happens: a chance for what accompanies an event, a number per
/// millisecond of virtual time in the whole cluster for what comes by itself. All zero: nothing goes wrong.
///
/// As text, kinds with or without a number of their own: `delay,unmap=0.5`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Chance that a message or a one-sided operation takes a hundred times as long on the wire.
    pub delay: f64,
    /// Chance that a message or a one-sided operation takes up to ten times as long on the wire, so that it
    /// is overtaken by others; never by later messages of the same pair and lane.
    pub reorder: f64,
    /// Chance that a registration fails, as if no more could be pinned.
    pub register_fail: f64,
    /// Chance that a registration or a deregistration is not over at once.
    pub register_slow: f64,
    /// How often some rank's limit of pinned bytes changes: mostly it shrinks, sometimes it is whole again.
    pub shrink: f64,
    /// How often some pages of some rank's private memory are unmapped, and mapped again at once or later.
    pub unmap: f64,
    /// How often a rank ends without a word.
    pub stop: f64,
    /// How often a rank stops polling: half of the time for ever.
    pub mute: f64,
    /// How often a rank ends without a word and is another process's soon after; one that has ended already,
    /// likewise.
    pub restart: f64,
    /// Chance that a one-sided put or atomic that is given up on its way takes up to three hundred times as
    /// long as anything on the wire, and writes only then.
    pub late: f64,
}

/// A fault's name, where its number stands, and the number that it has without one.
type Kind = (&'static str, fn(&mut Faults) -> &mut f64, f64);

const KINDS: [Kind; 10] = [
    ("delay", |faults| &mut faults.delay, 0.02),
    ("reorder", |faults| &mut faults.reorder, 0.5),
    ("register-fail", |faults| &mut faults.register_fail, 0.1),
    ("register-slow", |faults| &mut faults.register_slow, 0.3),
    ("shrink", |faults| &mut faults.shrink, 1.0),
    ("unmap", |faults| &mut faults.unmap, 2.0),
    ("stop", |faults| &mut faults.stop, 0.02),
    ("mute", |faults| &mut faults.mute, 0.1),
    ("restart", |faults| &mut faults.restart, 0.1),
    ("late", |faults| &mut faults.late, 0.5),
];

/// Why a text names no faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultsError {
    /// There is no such kind.
    #[error("no fault is named {0:?}; there are {names}", names = names())]
    Unknown(String),
    /// What follows the kind is no number of 0 or more (for chances: and 1 or less).
    #[error("{0:?} is no frequency")]
    Frequency(String),
}

fn names() -> String {
    KINDS.map(|(name, ..)| name).join(", ")
}

impl Faults {
    /// Every kind at its usual frequency.
    pub fn all() -> Faults {
        let mut faults = Faults::default();
        for (_, field, usual) in KINDS {
            *field(&mut faults) = usual;
        }
        faults
    }

    fn chances(&self) -> [f64; 5] {
        [self.delay, self.reorder, self.register_fail, self.register_slow, self.late]
    }
}

impl FromStr for Faults {
    type Err = FaultsError;

    fn from_str(text: &str) -> Result<Faults, FaultsError> {
        let mut faults = Faults::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, number) = word.split_once('=').map_or((word, None), |(name, n)| (name, Some(n)));
            let kind = KINDS.iter().find(|(known, ..)| *known == name);
            let (_, field, usual) = kind.ok_or_else(|| FaultsError::Unknown(name.into()))?;
            let frequency = || FaultsError::Frequency(word.into());
            let number = match number {
                Some(number) => number.parse().map_err(|_| frequency())?,
                None => *usual,
            };
            *field(&mut faults) = number;
            if !(0.0..=1000.0).contains(&number) || faults.chances().iter().any(|chance| *chance > 1.0) {
                return Err(frequency());
            }
        }
        Ok(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut faults = *self;
        let mut between = "";
        for (name, field, usual) in KINDS {
            let number = *field(&mut faults);
            if number == usual {
                write!(f, "{between}{name}")?;
            } else if number != 0.0 {
                write!(f, "{between}{name}={number}")?;
            } else {
                continue;
            }
            between = ",";
        }
        Ok(())
    }
}

/// A fault that comes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incident {
    Shrink,
    Unmap,
    Stop,
    Mute,
    Restart,
}

/// Faults with the dice that decide them.
#[derive(Debug)]
pub(crate) struct Weather {
    faults: Faults,
    dice: Xoshiro256PlusPlus,
    next: Nanos,
}

/// Latencies by which what was given up is late, at most.
const LATE_LATENCIES: u64 = 300;

/// Nanoseconds of the unit that frequencies count in.
const MILLISECOND: f64 = 1e6;

impl Weather {
    pub(crate) fn new(faults: Faults, seed: u64) -> Weather {
        let mut weather = Weather { faults, dice: Xoshiro256PlusPlus::seed_from_u64(seed), next: 0 };
        weather.plan_from(0);
        weather
    }

    /// Nothing goes wrong any more.
    pub(crate) fn calm(&mut self) {
        (self.faults, self.next) = (Faults::default(), Nanos::MAX);
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.dice.random_range(0..bound)
    }

    /// Whether something of this chance happens. What cannot happen rolls no dice.
    fn happens(&mut self, chance: f64) -> bool {
        chance > 0.0 && self.dice.random_bool(chance)
    }

    /// What a message or an operation takes longer on a wire of this latency.
    #[inline]
    pub(crate) fn delay(&mut self, latency: Nanos) -> Nanos {
        if self.faults.reorder + self.faults.delay > 0.0 { self.roll_delay(latency) } else { 0 }
    }

    #[inline(never)]
    fn roll_delay(&mut self, latency: Nanos) -> Nanos {
        let mut delay = 0;
        if self.happens(self.faults.reorder) {
            delay += self.below(10 * latency + 1);
        }
        if self.happens(self.faults.delay) {
            delay += 100 * latency;
        }
        delay
    }

    /// What an operation that is given up takes longer still, on a wire of this latency.
    pub(crate) fn lateness(&mut self, latency: Nanos) -> Nanos {
        if self.happens(self.faults.late) { 1 + self.below(LATE_LATENCIES * latency) } else { 0 }
    }

    /// Whether a registration fails.
    pub(crate) fn registering_fails(&mut self) -> bool {
        self.happens(self.faults.register_fail)
    }

    /// How much later a registration is there, or a deregistration over, on a wire of this latency; `None`:
    /// at once.
    pub(crate) fn registering_lasts(&mut self, latency: Nanos) -> Option<Nanos> {
        self.happens(self.faults.register_slow).then(|| self.below(20 * latency + 1))
    }

    /// The incident that is due by `now`, if one is.
    pub(crate) fn incident(&mut self, now: Nanos) -> Option<Incident> {
        if now < self.next {
            return None;
        }
        let kinds = [
            (Incident::Shrink, self.faults.shrink),
            (Incident::Unmap, self.faults.unmap),
            (Incident::Stop, self.faults.stop),
            (Incident::Mute, self.faults.mute),
            (Incident::Restart, self.faults.restart),
        ];
        let mut pick = self.dice.random_range(0.0..self.rate());
        self.plan_from(now);
        let hit = kinds.into_iter().find(|(_, rate)| {
            pick -= rate;
            pick < 0.0
        });
        hit.map(|(incident, _)| incident)
    }

    fn rate(&self) -> f64 {
        let Faults { shrink, unmap, stop, mute, restart, .. } = self.faults;
        shrink + unmap + stop + mute + restart
    }

    /// Decides when the next incident comes.
    fn plan_from(&mut self, now: Nanos) {
        self.next = match self.rate() {
            0.0 => Nanos::MAX,
            rate => now + 1 + (self.dice.random_range(0.0..2.0) * MILLISECOND / rate) as Nanos,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_survive_their_text() {
        for text in ["", "delay", "delay=0.5,unmap", "register-fail=1,mute=3.25"] {
            let faults: Faults = text.parse().expect("a good text");
            assert_eq!(faults.to_string(), text);
        }
        let all = Faults::all().to_string();
        assert_eq!(all, "delay,reorder,register-fail,register-slow,shrink,unmap,stop,mute,restart,late");
        assert_eq!(all.parse(), Ok(Faults::all()));
        assert_eq!(
            " delay , unmap ".parse::<Faults>().map(|faults| faults.to_string()),
            Ok("delay,unmap".into())
        );
    }

    #[test]
    fn what_is_no_fault_is_refused() {
        assert_eq!("delai".parse::<Faults>(), Err(FaultsError::Unknown("delai".into())));
        for word in ["delay=2", "late=1.5", "unmap=-1", "stop=x", "mute=NaN", "shrink=inf"] {
            assert_eq!(word.parse::<Faults>(), Err(FaultsError::Frequency(word.into())));
        }
    }

    #[test]
    fn incidents_come_as_often_as_they_should() {
        let faults: Faults = "unmap=3,stop=1".parse().expect("two kinds");
        let mut weather = Weather::new(faults, 5);
        let mut counts = [0; 2];
        for now in (0..1000 * MILLISECOND as Nanos).step_by(1000) {
            match weather.incident(now) {
                Some(Incident::Unmap) => counts[0] += 1,
                Some(Incident::Stop) => counts[1] += 1,
                other => assert_eq!(other, None),
            }
        }
        assert!((2700..3300).contains(&counts[0]) && (850..1150).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn in_good_weather_nothing_happens() {
        let mut weather = Weather::new(Faults::default(), 5);
        assert_eq!((weather.delay(1000), weather.lateness(1000)), (0, 0));
        assert!(!weather.registering_fails());
        assert_eq!(weather.registering_lasts(1000), None);
        assert_eq!(weather.incident(Nanos::MAX - 1), None);
    }
}
