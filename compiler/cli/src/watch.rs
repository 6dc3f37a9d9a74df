//! Watches a command at work: how long each pass takes, how far a search is, and when its time is
//! up. Only this module and the count of points of a sweep look at a clock: without `--time-limit`
//! no result depends on one.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shard_driver::{Pass, Share};
use shard_report::printable::escaped_name;
use shard_report::scale;
use shard_search::Stop;

use crate::args::{SearchArgs, When};

/// Searches that take longer are shown.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often what is shown on a terminal is renewed.
const TICK: Duration = Duration::from_millis(200);
/// How often a line is printed where standard error is no terminal.
const LINE: Duration = Duration::from_secs(5);

/// The watch over one command.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    timings: bool,
    /// When the time limit of the command ends.
    until: Option<Instant>,
    /// How many searches, each about as long as the next one, come after it.
    to_come: u32,
    /// What ends the searches, where somebody else does.
    given: Option<Stop>,
    is_running: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<WatchState>,
    changed: Condvar,
}

#[derive(Default)]
struct WatchState {
    /// The pass that is going on.
    pass: Option<Watched>,
    /// The time that each pass has taken, in the order in which they came first.
    taken: Vec<(&'static str, Duration)>,
    shows: bool,
    /// Standard error is a terminal, so that a line can be written over.
    is_terminal: bool,
    /// When something of this pass was shown last.
    shown: Option<Instant>,
    closed: bool,
}

struct Watched {
    what: String,
    /// How far the execution of a layer is.
    run: Option<Arc<shard_runtime::Progress>>,
    stop: Stop,
    since: Instant,
    until: Option<Instant>,
}

impl Watch {
    /// The watch over a command line; `for_people`: diagnostics are text.
    pub(crate) fn new(args: &SearchArgs, for_people: bool) -> Watch {
        let is_terminal =
            std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|v| v != "dumb");
        let shows = match args.progress {
            When::Auto => is_terminal && for_people,
            When::Always => true,
            When::Never => false,
        };
        let mut watch = Watch::over(None);
        *watch.shared.lock() = WatchState { shows, is_terminal, ..WatchState::default() };
        watch.until = args.time_limit.map(|limit| Instant::now() + limit);
        watch.timings = args.timings;
        watch
    }

    /// The watch over searches that `given` ends, if anything, and that are not shown.
    pub(crate) fn over(given: Option<Stop>) -> Watch {
        Watch {
            shared: Arc::default(),
            timings: false,
            until: None,
            to_come: 0,
            given,
            is_running: false,
        }
    }

    /// Whether progress is shown.
    pub(crate) fn shows(&self) -> bool {
        self.shared.lock().shows
    }

    /// States how many searches come after the next that will take about as long.
    pub(crate) fn searches_to_come(&mut self, count: usize) {
        self.to_come = u32::try_from(count).unwrap_or(u32::MAX - 1);
    }

    /// Begins a pass, which ends when the returned value is dropped. It may take its share of the
    /// time that is left. `what` is shown where it takes long.
    pub(crate) fn begin(&mut self, pass: &'static str, what: String, share: Share) -> RunningPass {
        let stop = self.given.clone().unwrap_or_default();
        let now = Instant::now();
        let part = share.part as f64;
        let whole = share.whole.max(1) as f64 * f64::from(self.to_come + 1);
        let until = self.until.filter(|_| share.part > 0);
        let until = until.map(|until| {
            now + until.saturating_duration_since(now).mul_f64((part / whole).min(1.0))
        });
        let mut state = self.shared.lock();
        if !self.is_running && (until.is_some() || state.shows) {
            self.is_running = true;
            watch(&self.shared, state.shows);
        }
        state.pass = Some(Watched { what, run: None, stop: stop.clone(), since: now, until });
        state.shown = None;
        self.shared.changed.notify_one();
        RunningPass { shared: Arc::clone(&self.shared), pass, since: now, stop }
    }

    /// Begins the execution of a layer, which `progress` is told of.
    pub(crate) fn begin_run(
        &mut self,
        layer: &str,
        progress: Arc<shard_runtime::Progress>,
    ) -> RunningPass {
        let running = self.begin("run", format!("`{layer}`"), Share::NONE);
        self.shared.lock().pass.iter_mut().for_each(|pass| pass.run = Some(Arc::clone(&progress)));
        running
    }

    /// Clears what is shown of the pass before something is printed, and shows nothing more of it.
    pub(crate) fn quiet(&self) {
        let mut state = self.shared.lock();
        state.clear();
        state.pass.iter_mut().for_each(|pass| pass.what.clear());
    }

    /// The time of each pass, a line each, where that was asked for.
    pub(crate) fn timings(&self) -> String {
        let state = self.shared.lock();
        let line = |(pass, taken): &(&str, Duration)| {
            format!("{pass} {:.1} ms\n", taken.as_secs_f64() * 1e3)
        };
        state.taken.iter().filter(|_| self.timings).map(line).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

/// A pass that is going on.
pub(crate) struct RunningPass {
    shared: Arc<Shared>,
    pass: &'static str,
    since: Instant,
    stop: Stop,
}

impl RunningPass {
    /// What ends its searches.
    pub(crate) fn stop(&self) -> Stop {
        self.stop.clone()
    }
}

impl Pass for RunningPass {
    fn stop(&self) -> Stop {
        self.stop()
    }
}

impl Drop for RunningPass {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.clear();
        state.pass = None;
        let taken = self.since.elapsed();
        match state.taken.iter_mut().find(|(pass, _)| *pass == self.pass) {
            Some((_, all)) => *all += taken,
            None => state.taken.push((self.pass, taken)),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchState {
    /// What is being searched or run, for how long, and what is known; worded as ended where the
    /// command was interrupted.
    fn words(&self, is_over: bool) -> Option<String> {
        let pass = self.pass.as_ref().filter(|pass| !pass.what.is_empty())?;
        let seconds = pass.since.elapsed().as_secs();
        if let Some(run) = &pass.run {
            let verb = if is_over { "ran" } else { "running" };
            let (what, percent) = (escaped_name(&pass.what), run.percent());
            return Some(format!("{verb} {what} for {seconds} s: {percent} %"));
        }
        let verb = if is_over { "searched" } else { "searching" };
        let (bound, best) = pass.stop.so_far();
        let bound = bound
            .map_or("no bound yet".to_string(), |bound| format!("bound {}", scale::time(bound)));
        let best = best
            .map_or("no plan yet".to_string(), |best| format!("best plan {}", scale::time(best)));
        Some(format!("{verb} {} for {seconds} s: {bound}, {best}", escaped_name(&pass.what)))
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() && self.is_terminal {
            write("\r\u{1b}[K");
        }
    }

    /// Shows how far a long search is, where it is time to; returns when to look again.
    fn tick(&mut self) -> Duration {
        let Some(pass) = &self.pass else { return TICK };
        let now = Instant::now();
        if pass.until.is_some_and(|until| until <= now) {
            pass.stop.time_is_up();
        }
        let next = if self.is_terminal { TICK } else { LINE };
        let due = self.shown.map_or(pass.since + PATIENCE, |shown| shown + next);
        if self.shows
            && now >= due
            && let Some(words) = self.words(false)
        {
            if self.is_terminal {
                write(&format!("\r\u{1b}[K{}", cut(&words)))
            } else {
                write(&format!("{words}\n"))
            }
            self.shown = Some(now);
        }
        let pass_ends = self.pass.as_ref().and_then(|pass| pass.until).filter(|until| *until > now);
        pass_ends.map_or(TICK, |until| (until - now).min(TICK))
    }
}

/// Watches the passes until the command ends.
fn watch(shared: &Arc<Shared>, shows: bool) {
    let watched = Arc::clone(shared);
    std::thread::spawn(move || {
        let mut state = watched.lock();
        while !state.closed {
            let wait = state.tick();
            state =
                watched.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    });
    if shows {
        let watched = Arc::clone(shared);
        // Where no handler can be set, an interrupted command ends without a word.
        let _ = ctrlc::set_handler(move || {
            let mut state = watched.lock();
            state.clear();
            let was = state.words(true).map_or(String::new(), |words| format!(": {words}"));
            write(&format!("interrupted{was}\n"));
            // The status by which a shell tells an interrupted command.
            std::process::exit(130);
        });
    }
}

/// The part of a line that fits into the columns of the terminal.
fn cut(line: &str) -> String {
    let columns = terminal_size::terminal_size_of(std::io::stderr())
        .map_or(80, |(width, _)| usize::from(width.0));
    line.chars().take(columns.saturating_sub(1)).collect()
}

fn write(text: &str) {
    // Nobody is left to be told that standard error is closed.
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
