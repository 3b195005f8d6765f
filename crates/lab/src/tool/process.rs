//! A program at work in a namespace: started, read and waited for within a bound.

use crate::link::plan::Point;
use anyhow::{Context, bail, ensure};
use nix::sys::signal::Signal;
use sheaf_netio::child::{Child, end_with_parent, unblock_signals};
use sheaf_netio::clock;
use sheaf_netio::netns::Namespace;
use sheaf_netio::poller::Poller;
use sheaf_stage::{Duration, Instant};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};

/// Longest time that a program takes to begin, and to end once it is asked to or is through.
const BOUND: Duration = Duration::from_secs(20);
/// Bytes of an error message that are read.
const MESSAGE: usize = 4096;
/// Most bytes of output: a minute of MGEN's log at 10,000 packets a second.
const MOST: usize = 256 << 20;

/// A program that runs. It ends with this value, or with the lab.
#[derive(Debug)]
pub struct Running {
    /// The process; `None` once it has been waited for.
    child: Option<Child>,
    stdout: File,
    stderr: File,
    /// Output so far.
    text: Vec<u8>,
    name: String,
}

/// The way in which a program is asked to end.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    /// SIGTERM.
    Terminate,
    /// SIGINT, as by Ctrl-C.
    Interrupt,
}

/// The output of a program that has ended.
#[derive(Debug)]
pub struct Output {
    /// Its standard output.
    pub text: String,
    status: ExitStatus,
    message: String,
    name: String,
}

impl Running {
    /// Starts the program with this command line inside `host`.
    ///
    /// # Errors
    /// Fails with the program's name when it cannot be started.
    pub fn start(host: &Namespace, line: &[String]) -> anyhow::Result<Running> {
        let (name, words) = line.split_first().context("a command line has a program")?;
        let mut command = Command::new(name);
        let ((stdout, output), (stderr, errors)) = (std::io::pipe()?, std::io::pipe()?);
        command.args(words).stdin(Stdio::null()).stdout(output).stderr(errors);
        // Numbers with a point, and messages that parsers expect.
        command.env("LC_ALL", "C");
        // Ctrl-C reaches the lab alone, which ends the program.
        command.process_group(0);
        host.enter(&mut command);
        end_with_parent(&mut command, Signal::SIGKILL);
        // The lab waits for SIGINT and SIGTERM in a place of its own; programs end by them.
        unblock_signals(&mut command);
        let child = Child::spawn(&mut command).with_context(|| format!("cannot start {name}"))?;
        let [stdout, stderr] = [OwnedFd::from(stdout), OwnedFd::from(stderr)].map(File::from);
        Ok(Running { child: Some(child), stdout, stderr, text: Vec::new(), name: name.clone() })
    }

    /// Waits until the program has printed `words`.
    ///
    /// # Errors
    /// Fails with the program's own message when it ends before or takes too long.
    pub fn wait_for(&mut self, words: &str) -> anyhow::Result<()> {
        let until = clock::now() + BOUND;
        while !self.text.windows(words.len()).any(|part| part == words.as_bytes()) {
            if self.read(until)? == 0 {
                let message = self.message();
                bail!("{} ended before it was ready: {message}", self.name);
            }
        }
        Ok(())
    }

    /// Waits for the end of a program that runs for the duration of `point`.
    ///
    /// # Errors
    /// Fails when it does not end.
    pub fn output(mut self, point: &Point) -> anyhow::Result<Output> {
        self.ended(clock::now() + point.duration + point.patience() + BOUND)
    }

    /// Asks the program to end and waits for it.
    ///
    /// # Errors
    /// Fails when it does not end.
    pub fn stop(mut self, how: Stop) -> anyhow::Result<Output> {
        let signal = match how {
            Stop::Terminate => Signal::SIGTERM,
            Stop::Interrupt => Signal::SIGINT,
        };
        if let Some(child) = &self.child {
            // It may have ended by itself, which is what is asked for.
            let _ = child.signal(signal);
        }
        self.ended(clock::now() + BOUND)
    }

    fn ended(&mut self, until: Instant) -> anyhow::Result<Output> {
        while self.read(until)? > 0 {}
        let child = self.child.as_ref().context("it is waited for once")?;
        let mut poller = Poller::default();
        let end = poller.add(child);
        // A signal may end a wait early.
        while !poller.readable(end) {
            self.in_time(until)?;
            poller.wait(Some(until.saturating_since(clock::now())))?;
        }
        let message = self.message();
        let status = self.child.take().context("it is waited for once")?.wait()?;
        let text = String::from_utf8_lossy(&self.text).into_owned();
        Ok(Output { text, status, message, name: self.name.clone() })
    }

    /// Reads the next part of the output. 0 at its end.
    fn read(&mut self, until: Instant) -> anyhow::Result<usize> {
        let mut poller = Poller::default();
        let output = poller.add(&self.stdout);
        while !poller.readable(output) {
            self.in_time(until)?;
            poller.wait(Some(until.saturating_since(clock::now())))?;
        }
        let mut bytes = [0; 4096];
        let count = self.stdout.read(&mut bytes)?;
        self.text.extend_from_slice(&bytes[..count]);
        ensure!(self.text.len() <= MOST, "{} prints over {} MiB", self.name, MOST >> 20);
        Ok(count)
    }

    fn in_time(&self, until: Instant) -> anyhow::Result<()> {
        ensure!(clock::now() < until, "{} does not end or begin in time; it is killed", self.name);
        Ok(())
    }

    /// The beginning of the error message, in one line.
    fn message(&mut self) -> String {
        let mut poller = Poller::default();
        let errors = poller.add(&self.stderr);
        let mut bytes = [0; MESSAGE];
        // The writer may live on in a child of the program.
        let count = match poller.wait(Some(Duration::ZERO)) {
            Ok(()) if poller.readable(errors) => self.stderr.read(&mut bytes).unwrap_or(0),
            _ => 0,
        };
        let message = String::from_utf8_lossy(&bytes[..count]).trim().replace('\n', "; ");
        message.chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // Both fail when it has ended already.
            let _ = child.signal(Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

impl Output {
    /// Reads the output with `parse`. ping's status is 1 without replies, so the text decides.
    ///
    /// # Errors
    /// Adds the program's status and message to the reason of the refusal.
    pub fn read<T>(&self, parse: impl FnOnce(&str) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let Output { text, status, message, name } = self;
        parse(text).with_context(|| format!("{name} ended with {status}: {message:?}"))
    }

    /// Fails with the program's message unless it ended well.
    ///
    /// # Errors
    /// As said.
    pub fn succeeded(&self) -> anyhow::Result<()> {
        let Output { status, message, name, .. } = self;
        ensure!(status.success(), "{name} ended with {status}: {message}");
        Ok(())
    }
}
