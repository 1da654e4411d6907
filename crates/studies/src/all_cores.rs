//! Simulating on all cores.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// What `work` makes of each job, in the jobs' order, on as many threads as there are cores.
pub(crate) fn on_all_cores<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::new());
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    thread::scope(|scope| {
        for _ in 0..cores.min(jobs.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { return };
                    let result = work(job);
                    done.lock().expect("no thread panics while it holds it").push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("a panic has ended the scope already");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..50).collect();
        assert_eq!(on_all_cores(&jobs, |job| job * job), (0..50).map(|job| job * job).collect::<Vec<_>>());
        assert!(on_all_cores(&[] as &[u64], |job| *job).is_empty());
    }
}
