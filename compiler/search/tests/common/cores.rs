//! Much of one kind, on all cores.

use std::sync::Mutex;

/// What a function makes of each number, in their order; each core takes a number as soon as it is
/// done with one.
pub(crate) fn on_all_cores<R: Send>(
    numbers: impl IntoIterator<Item = u64, IntoIter: Send>,
    act: impl Fn(u64) -> R + Sync,
) -> Vec<R> {
    let (numbers, made) = (Mutex::new(numbers.into_iter()), Mutex::new(Vec::new()));
    let next = || numbers.lock().expect("numbers come without fail").next();
    let work = || {
        while let Some(number) = next() {
            let result = act(number);
            made.lock().expect("no thread failed").push((number, result));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut made = made.into_inner().expect("no thread failed");
    made.sort_by_key(|(number, _)| *number);
    made.into_iter().map(|(_, result)| result).collect()
}
