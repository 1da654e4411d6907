use super::*;
use crate::segment::Segment;

const LEN: u64 = 8192;

fn memory() -> SharedMemory {
    Segment::create("shared-test", LEN).expect("a memfd").memory().clone()
}

#[test]
fn values_of_every_size_come_back_aligned_or_not() {
    let memory = memory();
    for offset in [0, 1, 2, 3, 4, 7, 8, 4095] {
        memory.store(offset, 0x1122_3344_5566_7788_u64).unwrap();
        assert_eq!(memory.load::<u64>(offset), Ok(0x1122_3344_5566_7788));
        assert_eq!(memory.load::<u8>(offset), Ok(0x88));
        memory.store(offset, 0xaabb_u16).unwrap();
        memory.store(offset + 2, 0xccdd_eeff_u32).unwrap();
        assert_eq!(memory.load::<[u16; 3]>(offset), Ok([0xaabb, 0xeeff, 0xccdd]));
    }
}

#[test]
fn the_last_byte_is_inside_and_the_next_is_not() {
    let memory = memory();
    assert_eq!(memory.store(LEN - 8, 1_u64), Ok(()));
    assert_eq!(memory.store(LEN - 7, 1_u64), Err(Outside { offset: LEN - 7, len: 8, size: LEN }));
    assert_eq!(memory.load::<u8>(LEN), Err(Outside { offset: LEN, len: 1, size: LEN }));
    assert!(memory.copy_in(LEN - 3, b"abc").is_ok());
    assert!(memory.copy_in(LEN - 2, b"abc").is_err());
    assert!(memory.copy_out(LEN, &mut []).is_ok());
    assert!(memory.copy_out(LEN + 1, &mut []).is_err());
}

#[test]
fn offsets_that_overflow_are_outside() {
    let memory = memory();
    assert!(memory.store(u64::MAX, 1_u64).is_err());
    assert!(memory.load::<u64>(u64::MAX - 7).is_err());
    assert!(memory.copy_within_from(0, &memory, 0, u64::MAX).is_err());
    assert!(memory.words(8, usize::MAX).is_err());
    assert!(memory.words(0, usize::MAX / 8 + 1).is_err());
}

#[test]
#[cfg_attr(miri, ignore = "copies megabytes")]
fn long_copies_come_whole_also_over_themselves() {
    let long = AT_ONCE * 2 + 77;
    let memory = Segment::create("shared-test", 2 * long as u64).expect("a memfd").memory().clone();
    let bytes = |seed: usize| -> Vec<u8> { (0..2 * long).map(|i| (i * 7 + i / 251 + seed) as u8).collect() };
    let mut model = bytes(0);
    let found = || {
        let mut found = vec![0; 2 * long];
        memory.copy_out(0, &mut found).unwrap();
        found
    };
    memory.copy_in(0, &model).unwrap();
    assert!(found() == model);
    for (to, from, len) in
        [(9, 9 + long, long - 9), (long, 0, long), (5, 0, long), (0, 5, long), (3, 3, long)]
    {
        model.copy_within(from..from + len, to);
        memory.copy_within_from(to as u64, &memory, from as u64, len as u64).unwrap();
        assert!(found() == model, "{len} bytes from {from} to {to}");
    }
    memory.copy_in(1, &bytes(1)[..long]).unwrap();
    model[1..=long].copy_from_slice(&bytes(1)[..long]);
    assert!(found() == model);
}

#[test]
#[cfg_attr(miri, ignore = "copies megabytes")]
fn very_long_copies_out_come_whole() {
    let memory = Segment::create("shared-test", OUT_MAX as u64 + 4096).expect("a memfd").memory().clone();
    let model: Vec<u8> = (0..OUT_MAX + 99).map(|i| (i * 7 + i / 251) as u8).collect();
    memory.copy_in(5, &model).unwrap();
    for len in [OUT_MAX, OUT_MAX + 1, OUT_MAX + 99] {
        let mut found = vec![0; len];
        memory.copy_out(5, &mut found).unwrap();
        assert!(found == model[..len], "{len} bytes");
    }
}

#[test]
fn blocks_are_copied_and_nothing_between_them() {
    let memory = memory();
    for block in [1, 7, 8, 16, 31, 32, 64, 100, 128] {
        let blocks = Blocks { block, count: 5, there: 200, here: 130 };
        let from: Vec<u8> = (0..650).map(|i| (i % 251) as u8 + 1).collect();
        let mut model = vec![0_u8; 1000];
        for i in 0..5 {
            model[i * 200..i * 200 + block].copy_from_slice(&from[i * 130..i * 130 + block]);
        }
        memory.copy_in(0, &[0; 1000]).unwrap();
        memory.copy_in_blocks(0, &from, blocks).unwrap();
        let mut found = vec![0; 1000];
        memory.copy_out(0, &mut found).unwrap();
        assert!(found == model, "{block}");
        let mut back = vec![9; 650];
        memory.copy_out_blocks(0, &mut back, blocks).unwrap();
        assert!((0..650).all(|i| back[i] == if i % 130 < block { from[i] } else { 9 }), "{block}");
    }
}

#[test]
fn blocks_outside_are_refused_whole() {
    let memory = memory();
    let blocks = Blocks { block: 8, count: 2, there: LEN - 8, here: 8 };
    assert!(memory.copy_in_blocks(0, &[1; 16], blocks).is_ok());
    assert!(memory.copy_in_blocks(1, &[2; 16], blocks).is_err());
    assert!(memory.copy_in_blocks(0, &[2; 15], blocks).is_err());
    for (count, there, here) in [(2, u64::MAX, 8), (usize::MAX, 8, 8), (2, 8, usize::MAX)] {
        let endless = Blocks { block: 8, count, there, here };
        assert!(memory.copy_in_blocks(0, &[2; 16], endless).is_err());
        assert!(memory.copy_out_blocks(0, &mut [2; 16], endless).is_err());
    }
    assert!(memory.copy_out_blocks(LEN + 9, &mut [], Blocks { count: 0, ..blocks }).is_ok());
    assert_eq!(memory.load::<u64>(LEN - 8), Ok(u64::from_ne_bytes([1; 8])));
    assert_eq!(memory.load::<u64>(8), Ok(0));
}

#[test]
fn atomics_want_alignment() {
    let memory = memory();
    assert!(memory.atomic_u64(LEN - 8).is_ok());
    assert!(memory.atomic_u64(4).is_err());
    assert!(memory.atomic_u32(4).is_ok());
    assert!(memory.atomic_u32(2).is_err());
    assert!(memory.words(4, 1).is_err());
    assert!(memory.words(0, LEN as usize / 8).is_ok());
    assert!(memory.words(8, LEN as usize / 8).is_err());
}

#[test]
fn overlapping_copies_do_not_mix() {
    let memory = memory();
    memory.copy_in(0, b"abcdef").unwrap();
    memory.copy_within_from(2, &memory, 0, 6).unwrap();
    let mut bytes = [0; 8];
    memory.copy_out(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"ababcdef");
}

#[test]
fn words_outlive_the_other_handles() {
    let memory = memory();
    let words = memory.words(64, 4).unwrap();
    memory.store(64, 7_u64).unwrap();
    drop(memory);
    assert_eq!(words.len(), 4);
    assert_eq!(words[0].load(Ordering::Relaxed), 7);
}
