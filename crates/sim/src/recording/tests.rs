//! Traces there and back, and files that are none.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;

use super::*;

const ARRAY_BYTES: u64 = 1 << 20;

/// The arrays of a rank: one low and one at the very top of the address space.
fn arrays(rank: u32) -> Vec<Array> {
    let addr = 0x7000_0000 + u64::from(rank) * 3 * ARRAY_BYTES;
    let low = Array { name: format!("of {rank}"), addr, len: ARRAY_BYTES };
    vec![low, Array { name: "high".to_owned(), addr: u64::MAX - ARRAY_BYTES, len: ARRAY_BYTES }]
}

fn parameters() -> BTreeMap<String, u64> {
    [("size".to_owned(), 9)].into()
}

/// Writes the ranks' steps to parts in `directory`, and puts them together.
fn write(directory: &Path, ranks: &[Vec<Step>]) -> Result<PathBuf, TraceError> {
    let part = |(rank, steps): (usize, &Vec<Step>)| {
        let file = directory.join(format!("part-{rank}"));
        let mut section = SectionWriter::new(fs::File::create(&file).expect("a file"));
        steps.iter().for_each(|step| section.push(step).expect("room on disk"));
        Part { file, arrays: arrays(rank as u32), steps: section.finish().expect("room on disk") }
    };
    let parts: Vec<Part> = ranks.iter().enumerate().map(part).collect();
    let path = directory.join("trace");
    assemble(&path, "test", parameters(), &parts).map(|_| path)
}

fn read(path: &Path) -> Result<Vec<Vec<Step>>, TraceError> {
    let trace = Trace::open(path)?;
    (0..trace.header().size()).map(|rank| trace.steps(rank).collect()).collect()
}

fn step(action: Action) -> Step {
    Step { compute_ns: 5, action }
}

fn put(peer: u32, remote: u64, local: u64, len: u64) -> Step {
    step(Action::Put(Transfer { peer, remote, local, len }))
}

/// Any step that a rank of a job of `ranks` may do, except for signals and waits.
fn any_step(rank: u32, ranks: u32) -> impl Strategy<Value = Step> {
    let place = || (0_usize..2, 0..ARRAY_BYTES, 1..=ARRAY_BYTES);
    let transfer = (1..ranks, place(), place()).prop_map(move |(by, remote, local)| {
        let peer = (rank + by) % ranks;
        let len = remote.2.min(ARRAY_BYTES - remote.1).min(ARRAY_BYTES - local.1);
        let (there, here) = (&arrays(peer)[remote.0], &arrays(rank)[local.0]);
        Transfer { peer, remote: there.addr + remote.1, local: here.addr + local.1, len }
    });
    let action = prop_oneof![
        4 => transfer.clone().prop_map(Action::Put),
        1 => transfer.prop_map(Action::Get),
    ];
    let compute_ns = prop_oneof![0_u64..2000, any::<u64>()];
    (compute_ns, action).prop_map(|(compute_ns, action)| Step { compute_ns, action })
}

/// The steps of a few ranks, with as many barriers at each and a wait for each signal.
fn any_job() -> impl Strategy<Value = Vec<Vec<Step>>> {
    (2_u32..5, 0_usize..4).prop_flat_map(|(ranks, barriers)| {
        let rank = move |rank: u32| {
            let phase = || prop::collection::vec(any_step(rank, ranks), 0..40);
            prop::collection::vec(phase(), barriers + 1).prop_map(move |phases| {
                let next = step(Action::Signal { peer: (rank + 1) % ranks });
                let before = step(Action::Wait { peer: (rank + ranks - 1) % ranks });
                [vec![next], phases.join(&step(Action::Barrier)), vec![before]].concat()
            })
        };
        (0..ranks).map(rank).collect::<Vec<_>>()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(ranks in any_job()) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = write(directory.path(), &ranks).expect("a good trace");
        let trace = Trace::open(&path).expect("what was written");
        let header = trace.header();
        prop_assert_eq!((header.kernel.as_str(), &header.parameters), ("test", &parameters()));
        for (rank, of) in header.ranks.iter().enumerate() {
            prop_assert_eq!((&of.arrays, of.steps), (&arrays(rank as u32), ranks[rank].len() as u64));
        }
        prop_assert_eq!(read(&path).expect("what was written"), ranks);
    }

    #[test]
    fn a_shorter_or_longer_file_is_an_error(ranks in any_job(), cut in any::<prop::sample::Index>()) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = write(directory.path(), &ranks).expect("a good trace");
        let bytes = fs::read(&path).expect("what was written");
        let length = cut.index(bytes.len());
        fs::write(&path, &bytes[..length]).expect("room on disk");
        match Trace::open(&path).expect_err("it is cut") {
            TraceError::Truncated { offset, missing } => {
                prop_assert_eq!(offset, length as u64);
                prop_assert!(missing > 0 && length as u64 + missing <= bytes.len() as u64);
            }
            other => prop_assert!(false, "{}", other),
        }
        fs::write(&path, [&bytes[..], &[0; 3]].concat()).expect("room on disk");
        let longer = Trace::open(&path).expect_err("it is too long");
        let end = bytes.len() as u64;
        prop_assert!(matches!(longer, TraceError::Trailing { offset, extra: 3 } if offset == end), "{}", longer);
    }

    #[test]
    fn changed_bytes_give_steps_within_the_arrays_or_an_error(
        ranks in any_job(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = write(directory.path(), &ranks).expect("a good trace");
        let mut bytes = fs::read(&path).expect("what was written");
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        fs::write(&path, &bytes).expect("room on disk");
        let Ok(trace) = Trace::open(&path) else { return Ok(()) };
        let header = trace.header();
        for rank in 0..header.size() {
            for step in trace.steps(rank) {
                let Ok(step) = step else { break };
                let (Action::Put(of) | Action::Get(of)) = step.action else { continue };
                let holds = |rank: u32, addr| header.ranks[rank as usize].arrays.iter().any(|a| a.contains(addr, of.len));
                prop_assert!(of.peer != rank && holds(of.peer, of.remote) && holds(rank, of.local), "{:?}", of);
            }
        }
    }
}

#[test]
fn the_longest_step_fits_and_runs_take_few_bytes() {
    let far = |to: u64| Transfer { peer: 1, remote: to, local: to, len: 1 };
    let mut cursor = step::Cursor::default();
    let mut buffer = [0; STEP_BYTES_MAX];
    let longest = Transfer { peer: u32::MAX, remote: 1 << 63, local: 1 << 63, len: u64::MAX };
    let longest = Step { compute_ns: u64::MAX, action: Action::Get(longest) };
    assert_eq!(cursor.encode(&longest, &mut buffer).len(), STEP_BYTES_MAX);
    cursor.encode(&step(Action::Put(far(1000))), &mut buffer);
    assert_eq!(cursor.encode(&step(Action::Put(far(1001))), &mut buffer).len(), 6);
}

#[test]
fn other_files_are_told_apart() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = write(directory.path(), &[vec![], vec![]]).expect("a good trace");
    let good = fs::read(&path).expect("what was written");
    let open = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        fs::write(&path, bytes).expect("room on disk");
        Trace::open(&path).expect_err("it is changed")
    };
    assert!(matches!(open(&|bytes| bytes[0] = b'X'), TraceError::NotATrace));
    assert!(matches!(open(&|bytes| bytes[8] = 2), TraceError::Version { offset: 8, found: 2, expected: 1 }));
    assert!(matches!(open(&|bytes| bytes[13] = 9), TraceError::Header { offset: 10, .. }));
    assert!(matches!(open(&|bytes| bytes[14] = 255), TraceError::Header { offset: 14, .. }));
    assert!(matches!(open(&|bytes| bytes.clear()), TraceError::Truncated { offset: 0, missing: 14 }));
    let missing = Trace::open(&directory.path().join("none")).expect_err("there is none");
    assert!(matches!(&missing, TraceError::Io { offset: 0, .. }) && missing.offset() == 0, "{missing}");
}

#[test]
fn steps_that_make_no_sense_are_refused_where_they_stand() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |steps: Vec<Step>| {
        let error = write(directory.path(), &[steps, vec![]]).expect_err("it makes no sense");
        assert!(!directory.path().join("trace").exists(), "{error}");
        error
    };
    let (theirs, mine) = (arrays(1)[0].addr, arrays(0)[0].addr);
    let good = put(1, theirs, mine, 8);
    let first = refused(vec![put(2, theirs, mine, 8)]).offset();
    let second = refused(vec![good, put(0, mine, mine, 8)]);
    assert!(matches!(second, TraceError::Peer { rank: 0, peer: 0, ranks: 2, .. }), "{second}");
    assert!((10..30).contains(&(second.offset() - first)), "after the first step: {second}");
    for (outside, owner) in [
        (put(1, theirs - 1, mine, 8), 1),
        (put(1, theirs + ARRAY_BYTES - 7, mine, 8), 1),
        (put(1, u64::MAX, mine, 8), 1),
        (put(1, theirs, mine, u64::MAX), 1),
        (put(1, theirs, mine + ARRAY_BYTES, 8), 0),
    ] {
        let error = refused(vec![outside]);
        assert!(matches!(error, TraceError::Outside { rank: 0, owner: of, .. } if of == owner), "{error}");
    }
    let nothing = refused(vec![put(1, theirs, mine, 0)]);
    assert!(matches!(nothing, TraceError::Step { what: "a transfer of nothing", .. }), "{nothing}");
    for unmatched in [Action::Barrier, Action::Signal { peer: 1 }, Action::Wait { peer: 1 }] {
        let error = refused(vec![step(unmatched)]);
        assert!(matches!(error, TraceError::Unmatched { .. }), "{error}");
    }
}

#[test]
fn a_section_has_as_many_steps_as_the_header_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("part");
    let mut section = SectionWriter::new(fs::File::create(&file).expect("a file"));
    (0..3).for_each(|_| section.push(&step(Action::Barrier)).expect("room on disk"));
    section.finish().expect("room on disk");
    let refused = |steps| {
        let part = Part { file: file.clone(), arrays: vec![], steps };
        let error = assemble(&directory.path().join("trace"), "test", parameters(), &[part]);
        error.expect_err("the number is wrong").to_string()
    };
    assert!(refused(2).contains("the section goes on after its last step"), "{}", refused(2));
    assert!(refused(4).contains("the section ends before its last step"), "{}", refused(4));
}
