//! Lowering in the background: a thread that always takes the newest version of a file. The search
//! for an older version is stopped, and its answer is dropped.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use lsp_types::Uri;
use shard_check::Diagnostic;
use shard_cost::{Hardware, PlanPrice};
use shard_driver::host::defects;
use shard_driver::pipeline::Compiled;
use shard_driver::{CompileOptions, Keeper, Purpose, compile_source};
use shard_grammar::SourceFile;
use shard_ir::{Picoseconds, Plan};
use shard_search::Stop;

use crate::input::read_named;

/// What lowering one version of a file gave.
pub(crate) struct Lowered {
    pub(crate) uri: Uri,
    pub(crate) version: i32,
    pub(crate) file: SourceFile,
    /// The plans of the layers that no other layer calls, with their prices.
    pub(crate) plans: Vec<(Plan, PlanPrice)>,
    /// How long a step of each of them takes.
    pub(crate) steps: Vec<StepTime>,
    /// Everything that the checker and lowering say.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// How long a step of a layer takes.
pub(crate) struct StepTime {
    pub(crate) layer: String,
    pub(crate) phase: Option<String>,
    pub(crate) repeat: u64,
    /// The time of one layer.
    pub(crate) of_layer: Picoseconds,
    /// The time of all layers of the stack.
    pub(crate) of_stack: Picoseconds,
}

/// One version of a file that is to be lowered.
struct Job {
    uri: Uri,
    version: i32,
    file: SourceFile,
    /// Ends the search for its plans.
    stop: Stop,
}

/// The newest version of each file that waits, and what is being lowered.
#[derive(Default)]
struct Waiting {
    jobs: BTreeMap<Uri, Job>,
    running: Option<(Uri, Stop)>,
    closed: bool,
}

impl Waiting {
    /// Ends what is being lowered, where it is of that file.
    fn stop(&self, uri: &Uri) {
        if let Some((_, stop)) = self.running.as_ref().filter(|(running, _)| running == uri) {
            stop.ask();
        }
    }
}

/// The jobs that the server hands to the thread.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// There is a new job, or the queue is closed.
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a job, which runs from now on; `None` where the queue is closed.
    fn next(&self) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            if waiting.closed {
                return None;
            }
            if let Some((uri, job)) = waiting.jobs.pop_first() {
                waiting.running = Some((uri, job.stop.clone()));
                return Some(job);
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The thread, as the server sees it.
#[derive(Clone, Default)]
pub(crate) struct Background {
    queue: Arc<Queue>,
}

impl Background {
    /// Starts the thread, which calls `done` after each version that is still wanted by then.
    pub(crate) fn start(done: impl Fn(Lowered) + Send + 'static) -> Background {
        let background = Background::default();
        let queue = Arc::clone(&background.queue);
        std::thread::spawn(move || {
            while let Some(job) = queue.next() {
                let stop = job.stop.clone();
                // A defect of a pass must not end the session: the next version may be fine again.
                let lowered = catch_unwind(AssertUnwindSafe(|| lower(job)));
                queue.lock().running = None;
                if let (Ok(lowered), false) = (lowered, stop.is_asked()) {
                    done(lowered);
                }
            }
        });
        background
    }

    /// Asks for a version to be lowered, in place of any older one.
    pub(crate) fn lower(&self, uri: Uri, version: i32, file: SourceFile) {
        let mut waiting = self.queue.lock();
        waiting.stop(&uri);
        let job = Job { uri: uri.clone(), version, file, stop: Stop::default() };
        waiting.jobs.insert(uri, job);
        drop(waiting);
        self.queue.changed.notify_one();
    }

    /// Drops the job of a file that is closed, or has errors.
    pub(crate) fn forget(&self, uri: &Uri) {
        let mut waiting = self.queue.lock();
        waiting.stop(uri);
        waiting.jobs.remove(uri);
    }

    /// Ends the thread and its search.
    pub(crate) fn close(&self) {
        let mut waiting = self.queue.lock();
        waiting.closed = true;
        waiting.running.iter().for_each(|(_, stop)| stop.ask());
        drop(waiting);
        self.queue.changed.notify_one();
    }
}

fn lower(Job { uri, version, file, stop }: Job) -> Lowered {
    let mut host = Keeper { stop, reader: Some(read_named), ..Keeper::default() };
    let compiled = compile_source(&file, &CompileOptions::default(), Purpose::Check, &mut host);
    let found = compiled.map_or_else(|_| Vec::new(), |found| found.compiled);
    let step = |(hardware, layer): &(Hardware, Compiled)| {
        let (plan, of_layer) = (&layer.schedule.plan, layer.price.totals.serial_time);
        StepTime {
            layer: plan.name.clone(),
            phase: plan.phase.clone(),
            repeat: plan.repeat,
            of_layer,
            of_stack: hardware.stack_time(of_layer, plan),
        }
    };
    let steps = found.iter().map(step).collect();
    let plans = found.into_iter().map(|(_, layer)| (layer.schedule.plan, layer.price)).collect();
    let mut diagnostics = host.of(&file);
    diagnostics.extend(defects());
    Lowered { uri, version, file, plans, steps, diagnostics }
}
