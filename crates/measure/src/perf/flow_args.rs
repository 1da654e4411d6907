//! The options that say how a flood or a stream flows.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use super::case::{Case, Op};
use super::flow::{Flow, Moves, Ways};
use crate::units::{at_least, between, parse_size};

/// Sizes that a stream is measured at unless one is named.
const SIZES: [usize; 5] = [8, 1 << 10, 8 << 10, 64 << 10, 1 << 20];

/// Options of floods and streams.
#[derive(Debug, Default, Args)]
pub(super) struct FlowArgs {
    /// Threads that send a flood (1 to 64)
    #[arg(long, value_name = "N", value_parser = between(1_usize, 64))]
    threads: Option<usize>,
    /// Requests of a flood that may be unacknowledged; without it, as many as the library lets be
    #[arg(long, value_name = "N", value_parser = at_least(1_u64))]
    window: Option<u64>,
    /// Answer every request of a flood
    #[arg(long)]
    reply: bool,
    /// Have the handler of a flood, or of bandwidth by messages, copy the payload out: without it, it does
    /// not look
    #[arg(long)]
    copy: bool,
    /// Bytes of a frame that bare libfabric sends beside a flood, or bandwidth by messages; without it, as
    /// many as ours has
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    frame: Option<usize>,
    /// The operation that moves the bytes of bandwidth; all of them if none is named
    #[arg(long, value_enum)]
    moves: Option<Moves>,
    /// The processes of bandwidth that send; each in turn if none is named
    #[arg(long, value_enum)]
    ways: Option<Ways>,
}

impl FlowArgs {
    /// Whether any is given.
    pub(super) fn is_given(&self) -> bool {
        let FlowArgs { threads, window, reply, copy, frame, moves, ways } = self;
        let counts = threads.is_some() || window.is_some() || *reply;
        counts || *copy || frame.is_some() || moves.is_some() || ways.is_some()
    }

    /// Refuses options that are not for the operation.
    ///
    /// # Errors
    /// Which, in words.
    pub(super) fn fit(&self, op: Op) -> Result<()> {
        let refuse = |given: bool, option: &str, of: &[Op]| {
            if given && !of.contains(&op) {
                let names: Vec<&str> = of.iter().map(|op| op.name()).collect();
                bail!("--{option} does not fit {}: it is for {}", op.name(), names.join(" and "));
            }
            Ok(())
        };
        refuse(self.threads.is_some(), "threads", &[Op::Flood])?;
        refuse(self.window.is_some(), "window", &[Op::Flood])?;
        refuse(self.reply, "reply", &[Op::Flood])?;
        refuse(self.copy, "copy", &[Op::Flood, Op::Bandwidth])?;
        refuse(self.frame.is_some(), "frame", &[Op::Flood, Op::Bandwidth])?;
        refuse(self.moves.is_some(), "moves", &[Op::Bandwidth])?;
        refuse(self.ways.is_some(), "ways", &[Op::Bandwidth])
    }

    /// The cases of a flood or a stream.
    ///
    /// # Errors
    /// In words, the option that cannot be measured.
    pub(super) fn cases(&self, op: Op, size: Option<usize>) -> Result<Vec<Case>> {
        let flood = Flow {
            moves: Moves::Medium,
            ways: Ways::One,
            threads: self.threads.unwrap_or(1),
            window: self.window,
            reply: self.reply,
            copies: self.copy,
            frame_bytes: self.frame,
        };
        if op == Op::Flood {
            return Ok(vec![case(op, size.unwrap_or(0), flood)]);
        }
        let each =
            |given: Option<Moves>| given.map_or_else(|| Moves::value_variants().to_vec(), |it| vec![it]);
        let ways = self.ways.map_or_else(|| Ways::value_variants().to_vec(), |it| vec![it]);
        let sizes = size.map_or_else(|| SIZES.to_vec(), |it| vec![it]);
        let mut cases = Vec::new();
        for moves in each(self.moves) {
            for &ways in &ways {
                for &size in &sizes {
                    let is_medium = moves == Moves::Medium;
                    let too_long = is_medium && size > standpipe::MEDIUM_MAX;
                    if !(too_long && (sizes.len() > 1 || self.moves.is_none())) {
                        let frame_bytes = flood.frame_bytes.filter(|_| is_medium);
                        let flow =
                            Flow { moves, ways, copies: flood.copies && is_medium, frame_bytes, ..flood };
                        cases.push(case(op, size, flow));
                    }
                }
            }
        }
        Ok(cases)
    }
}

fn case(op: Op, size: usize, flow: Flow) -> Case {
    Case { flow: Some(flow), ..Case::of(op, size) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flow: FlowArgs,
    }

    fn args(words: &[&str]) -> FlowArgs {
        let line = [&["perf"], words].concat();
        Line::try_parse_from(line).expect("options").flow
    }

    #[test]
    fn a_flood_has_one_case() {
        let cases = args(&[]).cases(Op::Flood, None).expect("a case");
        let [Case { size: 0, flow: Some(flow), .. }] = cases[..] else { panic!("{cases:?}") };
        assert_eq!((flow.threads, flow.window, flow.reply, flow.copies), (1, None, false, false));
        let given = args(&["--threads", "2", "--window", "64", "--reply", "--copy", "--frame", "4K"]);
        let cases = given.cases(Op::Flood, Some(8)).expect("a case");
        let [Case { size: 8, flow: Some(flow), .. }] = cases[..] else { panic!("{cases:?}") };
        assert_eq!((flow.threads, flow.window, flow.reply, flow.copies), (2, Some(64), true, true));
        assert_eq!(flow.frame(8), (56, 32 + 56 * 72), "as many of 72 bytes as fit");
        assert_eq!(Flow { frame_bytes: None, ..flow }.frame(8), (115, 32 + 115 * 72));
        assert_eq!(flow.frame(8192), (1, 8288), "a frame has at least a message");
        for refused in [["--threads", "0"], ["--threads", "65"], ["--window", "0"]] {
            assert!(Line::try_parse_from([&["perf"], &refused[..]].concat()).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn bandwidth_is_measured_by_everything_in_each_way_at_each_size() {
        let count = |words: &[&str], size| args(words).cases(Op::Bandwidth, size).expect("cases").len();
        let mediums = SIZES.iter().filter(|size| **size <= standpipe::MEDIUM_MAX).count();
        assert_eq!(count(&[], None), 2 * (2 * SIZES.len() + mediums));
        assert_eq!(count(&["--moves", "put", "--ways", "both"], Some(8)), 1);
        assert_eq!(count(&[], Some(1 << 20)), 2 * 2, "messages are not so long");
        let asked = count(&["--moves", "medium", "--ways", "one"], Some(1 << 20));
        assert_eq!(asked, 1, "it is refused later, by its name");
    }

    #[test]
    fn options_fit_their_operations() {
        let all = args(&["--window", "2"]);
        assert!(all.is_given() && all.fit(Op::Flood).is_ok());
        let error = all.fit(Op::Bandwidth).expect_err("no window there");
        assert_eq!(error.to_string(), "--window does not fit bandwidth: it is for flood");
        let error = args(&["--copy"]).fit(Op::Put).expect_err("no handler there");
        assert_eq!(error.to_string(), "--copy does not fit put: it is for flood and bandwidth");
        assert!(!args(&[]).is_given() && args(&[]).fit(Op::Put).is_ok());
    }
}
