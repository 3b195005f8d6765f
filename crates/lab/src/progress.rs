//! Progress of a run: the points that are done and the time left, on a terminal or in a log.

use crate::measured::SweepPoint;
use indicatif::{ProgressBar, ProgressStyle};
use sheaf_netio::clock;
use sheaf_stage::Instant;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Time between two lines where no bar can be drawn: often enough to see that the run lives, seldom
/// enough for the log of a job that takes hours.
pub const LINE_PERIOD: Duration = Duration::from_secs(10);

/// The form in which progress is shown, on the standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Display {
    /// Nothing is shown.
    #[default]
    None,
    /// A bar that is drawn over, for terminals.
    Bar,
    /// A line in every such period, for logs.
    Lines(Duration),
}

/// Progress of one run, shared by its workers and by whoever interrupts it.
#[derive(Debug)]
pub struct Progress {
    display: Display,
    bar: ProgressBar,
    counts: Mutex<Counts>,
    /// Signalled when the run ends.
    ended: Condvar,
}

/// Points of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Points that the run has.
    pub all: usize,
    /// Points that are done, with those that an earlier run had kept.
    pub done: usize,
    /// Points that an earlier run had kept.
    pub found: usize,
    /// The testbed's seconds of all points but those found.
    seconds: f64,
    /// The testbed's seconds of the points measured by this run.
    measured: f64,
    is_over: bool,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new(Display::None)
    }
}

impl Progress {
    /// Progress of a run that has not begun.
    pub fn new(display: Display) -> Progress {
        let (bar, counts, ended) = (ProgressBar::hidden(), Mutex::default(), Condvar::new());
        Progress { display, bar, counts, ended }
    }

    /// The points of the run.
    pub fn counts(&self) -> Counts {
        self.lock().clone()
    }

    /// Runs `last`, and no point is written meanwhile: a process that ends inside it leaves no
    /// half-written file.
    pub fn interrupt<R>(&self, last: impl FnOnce(&Counts) -> R) -> R {
        let counts = self.lock();
        self.bar.finish_and_clear();
        last(&counts)
    }

    /// Begins a run of `sweep_points`.
    pub(crate) fn begin(&self, sweep_points: &[SweepPoint]) {
        let seconds = sweep_points.iter().map(|sweep_point| sweep_point.seconds).sum();
        *self.lock() = Counts { all: sweep_points.len(), seconds, ..Counts::default() };
        if self.display == Display::Bar {
            let style = ProgressStyle::with_template("{bar:40} {percent} %, {eta} left {msg}")
                .expect("the template is valid");
            self.bar.set_style(style);
            // Long points count for more than short ones.
            self.bar.set_length(sweep_points.iter().map(millis).sum());
            self.bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
    }

    /// Names the point that is being measured, where points are measured one at a time.
    pub(crate) fn measuring(&self, sweep_point: &SweepPoint) {
        self.bar.set_message(sweep_point.to_string());
        self.bar.tick();
    }

    /// Counts a point that an earlier run had kept.
    pub(crate) fn found(&self, sweep_point: &SweepPoint) {
        let mut counts = self.lock();
        counts.done += 1;
        counts.found += 1;
        counts.seconds -= sweep_point.seconds;
        self.bar.inc(millis(sweep_point));
    }

    /// Writes a point that was measured, and counts it.
    pub(crate) fn keep(
        &self,
        sweep_point: &SweepPoint,
        write: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut counts = self.lock();
        write()?;
        counts.done += 1;
        counts.measured += sweep_point.seconds;
        self.bar.inc(millis(sweep_point));
        Ok(())
    }

    /// Ends the run.
    pub(crate) fn end(&self) {
        let mut counts = self.lock();
        counts.is_over = true;
        self.ended.notify_all();
        self.bar.finish_and_clear();
        if self.display != Display::None && counts.found > 0 {
            let Counts { found, all, .. } = *counts;
            log(&format!("{found} of {all} points were kept before; --again measures anew"));
        }
    }

    /// Logs a line in every period until the run ends, where lines are what is shown.
    pub(crate) fn log_lines(&self) {
        if let Display::Lines(period) = self.display {
            self.lines(period, clock::now, |line| log(&line));
        }
    }

    fn lines(&self, period: Duration, now: impl Fn() -> Instant, mut log: impl FnMut(String)) {
        let started = now();
        let mut counts = self.lock();
        loop {
            let waited = self.ended.wait_timeout_while(counts, period, |counts| !counts.is_over);
            counts = waited.expect("no worker panics while it counts").0;
            if counts.is_over {
                return;
            }
            log(counts.line((now() - started).as_secs_f64()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no worker panics while it counts")
    }
}

impl Counts {
    /// The progress in words, `elapsed` seconds after the run began.
    fn line(&self, elapsed: f64) -> String {
        let Counts { all, done, .. } = self;
        let left = self.seconds - self.measured;
        match self.measured > 0.0 {
            // The points left take as long for each of their seconds as those measured did.
            true => {
                let left = (elapsed * left / self.measured).ceil();
                format!("{done} of {all} points, about {left} s left")
            }
            false => format!("{done} of {all} points"),
        }
    }
}

/// Writes a line to the standard error. A log that takes no more does not end the run.
fn log(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn millis(sweep_point: &SweepPoint) -> u64 {
    (sweep_point.seconds * 1e3) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn sweep_point(seconds: f64) -> SweepPoint {
        SweepPoint::new("s", "t", 1.0, seconds)
    }

    #[test]
    fn the_time_left_is_that_of_the_points_that_must_be_measured() {
        let progress = Progress::default();
        let sweep_points =
            [sweep_point(10.0), sweep_point(20.0), sweep_point(60.0), sweep_point(90.0)];
        progress.begin(&sweep_points);
        assert_eq!(progress.counts().line(5.0), "0 of 4 points");
        progress.found(&sweep_points[3]);
        progress.keep(&sweep_points[0], || Ok(())).unwrap();
        // 10 of 90 seconds took 5.
        assert_eq!(progress.counts().line(5.0), "2 of 4 points, about 40 s left");
    }

    #[test]
    fn a_point_that_could_not_be_written_is_not_counted() {
        let progress = Progress::default();
        progress.begin(&[sweep_point(1.0)]);
        progress.keep(&sweep_point(1.0), || anyhow::bail!("the disk is full")).unwrap_err();
        assert_eq!(progress.counts().done, 0);
    }

    #[test]
    fn lines_come_in_every_period_until_the_run_ends() {
        let progress = Progress::default();
        progress.begin(&[sweep_point(1.0)]);
        let (to, lines) = channel();
        std::thread::scope(|scope| {
            let log = |line| to.send(line).unwrap();
            let progress = &progress;
            scope.spawn(move || progress.lines(Duration::from_millis(1), || Instant::ZERO, log));
            for _ in 0..3 {
                assert_eq!(lines.recv().unwrap(), "0 of 1 points");
            }
            progress.end();
        });
    }
}
