//! Work on all cores, with results that do not depend on the number of cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Multiplications, or elements copied, below which no thread is started.
const WORTH_A_THREAD: usize = 1 << 18;

/// How many cores the machine has.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// What `make` gives for each number below `count`, in their order; of several errors the first.
/// `work` is how many multiplications, or copies of elements, all of them take together.
///
/// One core makes what belongs to one number, so that the results are the same on any number of
/// cores.
pub(crate) fn map<T: Send, E: Send>(
    count: usize,
    work: usize,
    make: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let threads = if work < WORTH_A_THREAD { 1 } else { cores().min(count) };
    if threads <= 1 {
        return (0..count).map(make).collect();
    }
    let next = AtomicUsize::new(0);
    let work_on = || {
        let mut made = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return made;
            }
            made.push((at, make(at)));
        }
    };
    let mut made: Vec<(usize, Result<T, E>)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work_on)).collect();
        let mut made = work_on();
        for other in others {
            // A panic in another thread becomes one in this thread.
            made.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        made
    });
    made.sort_unstable_by_key(|(at, _)| *at);
    made.into_iter().map(|(_, made)| made).collect()
}

/// How many elements a core works on at a time.
const AT_A_TIME: usize = 1 << 16;

/// What `work` gives for each part of some elements, which it may change, in their order; of
/// several errors the first. Where the parts begin does not depend on how many cores there are.
pub(crate) fn in_parts<T: Send, E: Send>(
    data: &mut [f64],
    work: impl Fn(&mut [f64]) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let elements = data.len();
    let parts: Vec<Mutex<&mut [f64]>> = data.chunks_mut(AT_A_TIME).map(Mutex::new).collect();
    map(parts.len(), elements, |at| {
        work(&mut parts[at].lock().unwrap_or_else(PoisonError::into_inner))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_the_first_error_is_the_one() {
        let squares = map::<_, ()>(100, usize::MAX, |n| Ok(n * n)).unwrap();
        assert!(squares.iter().enumerate().all(|(n, square)| *square == n * n));
        assert_eq!(map::<(), _>(100, usize::MAX, |n| if n > 6 { Err(n) } else { Ok(()) }), Err(7));
        assert_eq!(map::<usize, ()>(0, usize::MAX, Ok), Ok(vec![]));
    }
}
