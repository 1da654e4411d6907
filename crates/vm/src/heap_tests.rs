use super::*;
use proptest::prelude::*;

#[test]
fn blocks_are_granules_at_the_lowest_best_place() {
    let mut heap = HeapAllocator::new(1 << 20);
    assert_eq!(heap.alloc(1, 1), Ok(0));
    assert_eq!(heap.alloc(65, 8), Ok(64));
    assert_eq!(heap.alloc(0, 1), Ok(192));
    assert_eq!(heap.alloc(64, 4096), Ok(4096));
    assert_eq!(heap.alloc(64, 1), Ok(256), "the hole before the aligned block");
    assert_eq!((heap.used_bytes(), heap.blocks(), heap.high_water()), (64 * 6, 5, 4160));
    assert_eq!((heap.block_bytes(64), heap.block_bytes(128)), (Some(128), None));
    assert_eq!(heap.free(64), Ok(None));
    assert_eq!(heap.alloc(100, 1), Ok(64), "the smallest range that fits");
}

#[test]
fn what_is_full_says_how_full() {
    let mut heap = HeapAllocator::new(4096 + 63);
    assert_eq!(heap.alloc(4097, 1), Err(HeapFull { wanted: 4097, align: 1, free: 4096, largest: 4096 }));
    for i in 0..64 {
        assert_eq!(heap.alloc(64, 64), Ok(i * 64));
    }
    assert_eq!(heap.free(64), Ok(None));
    assert_eq!(heap.free(192), Ok(None));
    assert_eq!(heap.alloc(128, 1), Err(HeapFull { wanted: 128, align: 1, free: 128, largest: 64 }));
    for (len, align) in [(u64::MAX, 1), (1, 1 << 63), (1, 3), (1, 0)] {
        assert!(heap.alloc(len, align).is_err());
    }
    assert!(HeapAllocator::new(63).alloc(1, 1).is_err());
}

#[test]
fn only_what_is_in_use_can_be_freed() {
    let mut heap = HeapAllocator::new(1 << 16);
    let block = heap.alloc(200, 1).unwrap();
    assert_eq!(heap.free(block + 64), Err(BadFree { offset: block + 64 }));
    assert!(heap.free(block).is_ok());
    assert_eq!(heap.free(block), Err(BadFree { offset: block }));
    assert_eq!(heap.free(u64::MAX), Err(BadFree { offset: u64::MAX }));
    assert_eq!(heap.free_bytes(), 1 << 16);
}

#[test]
fn a_page_is_punched_with_its_last_block() {
    let mut heap = HeapAllocator::new(1 << 20);
    let small = heap.alloc(64, 1).unwrap();
    let large = heap.alloc(3 * PAGE_BYTES, 1).unwrap();
    let other = heap.alloc(64, 1).unwrap();
    assert_eq!((small, large, other), (0, 64, 64 + 3 * PAGE_BYTES));
    assert_eq!(heap.free(large), Ok(Some(PageRun { offset: PAGE_BYTES, len: 2 * PAGE_BYTES })));
    assert_eq!(heap.free(small), Ok(Some(PageRun { offset: 0, len: PAGE_BYTES })));
    assert_eq!(heap.free(other), Ok(Some(PageRun { offset: 3 * PAGE_BYTES, len: PAGE_BYTES })));
    assert!(heap.shared_pages.is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "maps a segment")]
fn memory_use_returns_to_nothing() {
    let segment = crate::Segment::create("heap-test", 1 << 24).unwrap();
    let mut heap = HeapAllocator::new(segment.len());
    let blocks: Vec<u64> = (0..300).map(|i| heap.alloc(i * 97 + 1, 1 << (i % 13)).unwrap()).collect();
    for block in &blocks {
        let bytes = vec![1; heap.block_bytes(*block).unwrap() as usize];
        segment.memory().copy_in(*block, &bytes).unwrap();
    }
    assert!(segment.resident_bytes().unwrap() >= heap.used_bytes());
    for block in blocks.iter().step_by(2).chain(blocks.iter().skip(1).step_by(2)) {
        if let Some(run) = heap.free(*block).unwrap() {
            segment.punch(run.offset, run.len).unwrap();
        }
    }
    assert_eq!(segment.resident_bytes(), Ok(0));
}

/// The plain model: who owns each granule.
struct Model {
    granules: Vec<Option<u64>>,
}

const GRANULES_A_PAGE: usize = (PAGE_BYTES / GRANULE_BYTES) as usize;

impl Model {
    fn range(offset: u64, len: u64) -> std::ops::Range<usize> {
        (offset / GRANULE_BYTES) as usize..(offset + len).div_ceil(GRANULE_BYTES) as usize
    }

    /// Whether there is a place for a block, by trying each.
    fn has_room(&self, len: u64, align: u64) -> bool {
        let granules = len.max(1).div_ceil(GRANULE_BYTES) as usize;
        let step = (align.max(GRANULE_BYTES) / GRANULE_BYTES) as usize;
        let last = self.granules.len().saturating_sub(granules);
        granules <= self.granules.len()
            && (0..=last).step_by(step).any(|at| self.granules[at..at + granules].iter().all(Option::is_none))
    }

    fn page_in_use(&self, page: usize) -> bool {
        let end = ((page + 1) * GRANULES_A_PAGE).min(self.granules.len());
        self.granules[page * GRANULES_A_PAGE..end].iter().any(Option::is_some)
    }

    fn pages(&self) -> Vec<bool> {
        (0..self.granules.len().div_ceil(GRANULES_A_PAGE)).map(|page| self.page_in_use(page)).collect()
    }
}

fn check(heap: &HeapAllocator, model: &Model) {
    let used = model.granules.iter().flatten().count() as u64 * GRANULE_BYTES;
    assert_eq!(heap.used_bytes(), used);
    assert_eq!(heap.free.values().sum::<u64>(), heap.size - used, "every byte is used or free");
    let by_len: BTreeSet<_> = heap.free.iter().map(|(offset, len)| (*len, *offset)).collect();
    assert_eq!(by_len, heap.free_by_len);
    let mut end = None;
    for (offset, len) in &heap.free {
        assert_ne!(end, Some(*offset), "adjacent ranges are one");
        assert!(model.granules[Model::range(*offset, *len)].iter().all(Option::is_none));
        end = Some(offset + len);
    }
    for (start, end) in [(0, heap.size), (heap.size / 3, heap.size / 2), (heap.size / 2, 0)] {
        let whole = start.div_ceil(PAGE_BYTES)..end / PAGE_BYTES;
        let empty: Vec<u64> = whole.filter(|page| !model.page_in_use(*page as usize)).collect();
        let pages = |run: PageRun| run.offset / PAGE_BYTES..(run.offset + run.len) / PAGE_BYTES;
        let told: Vec<u64> = heap.empty_pages(start, end).into_iter().flat_map(pages).collect();
        assert_eq!(told, empty, "the empty pages from {start} to {end}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(u64, u32),
    Free(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![0..300_u64, 0..20_000_u64, (0..6_u64).prop_map(|pages| pages * PAGE_BYTES)];
    let align = prop_oneof![3 => 0..7_u32, 1 => 7..15_u32];
    prop_oneof![
        3 => (len, align).prop_map(|(len, align)| Step::Alloc(len, align)),
        2 => any::<prop::sample::Index>().prop_map(Step::Free),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 128 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_behaves_like_a_map_of_granules(
        granules in 1..if cfg!(miri) { 150 } else { 800_u64 }, steps in prop::collection::vec(step(), 1..if cfg!(miri) { 20 } else { 150 })
    ) {
        let mut heap = HeapAllocator::new(granules * GRANULE_BYTES + 17);
        let mut model = Model { granules: vec![None; granules as usize] };
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Alloc(len, align) => {
                    let align = 1 << align;
                    let Ok(offset) = heap.alloc(len, align) else {
                        prop_assert!(!model.has_room(len, align));
                        continue;
                    };
                    prop_assert_eq!(offset % align.max(GRANULE_BYTES), 0);
                    let len = len.max(1);
                    prop_assert!(offset + len <= heap.high_water());
                    for owner in &mut model.granules[Model::range(offset, len)] {
                        prop_assert_eq!(owner.replace(offset), None, "two blocks overlap");
                    }
                    blocks.push((offset, len));
                }
                Step::Free(index) if !blocks.is_empty() => {
                    let (offset, len) = blocks.swap_remove(index.index(blocks.len()));
                    let before = model.pages();
                    model.granules[Model::range(offset, len)].fill(None);
                    let after = model.pages();
                    let run = heap.free(offset).expect("in use");
                    let pages = run.map_or(0..0, |run| {
                        (run.offset / PAGE_BYTES) as usize..((run.offset + run.len) / PAGE_BYTES) as usize
                    });
                    for page in 0..before.len() {
                        prop_assert_eq!(pages.contains(&page), before[page] && !after[page], "page {}", page);
                    }
                }
                Step::Free(_) => {}
            }
            check(&heap, &model);
        }
        for (offset, _) in blocks {
            heap.free(offset).expect("in use");
        }
        prop_assert_eq!((heap.used_bytes(), heap.free.len(), heap.shared_pages.len()), (0, 1, 0));
    }
}
