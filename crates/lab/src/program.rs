//! The program `sheaf` itself, at work on a host of the testbed.

use crate::experiment::Tools;
use anyhow::{Context, bail, ensure};
use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use sheaf_netio::netns::Namespace;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Most bytes of an error message that are repeated.
const MESSAGE_LEN: u64 = 4096;

/// The processors' time that a service gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// As every process.
    Ordinary,
    /// Before all ordinary processes, so that others' work on the machine is not measured.
    RealTime,
}

/// A service of `sheaf` inside a namespace. It ends with this value, or with the lab.
#[derive(Debug)]
pub struct Service {
    child: Child,
    /// The command line, for errors.
    line: String,
}

impl Tools {
    /// Runs `sheaf` with `words` inside `host`, and returns the output.
    ///
    /// # Errors
    /// Fails with the command's own message.
    pub fn run(&self, host: &Namespace, words: &[&str]) -> anyhow::Result<Vec<u8>> {
        let mut command = Command::new(&self.sheaf);
        command.args(words);
        host.enter(&mut command);
        let output = command.output().with_context(|| self.unstartable())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "sheaf {}: {}", words.join(" "), said.trim());
        Ok(output.stdout)
    }

    /// Runs `sheaf` with `words` inside `host`, and returns the report that it prints as JSON.
    ///
    /// # Errors
    /// Fails when the command does, or when the report is of another version.
    pub fn report<T: DeserializeOwned>(
        &self,
        host: &Namespace,
        words: &[&str],
    ) -> anyhow::Result<T> {
        let json = self.run(host, words)?;
        let other = || format!("sheaf {} prints another report than expected", words.join(" "));
        serde_json::from_slice(&json).with_context(other)
    }

    /// Starts a service of `sheaf` inside `host` with `input`, and returns when it is at work.
    ///
    /// # Errors
    /// Fails with the service's own message when it ends before.
    pub fn start(
        &self,
        host: &Namespace,
        words: &[String],
        input: &str,
        schedule: Schedule,
    ) -> anyhow::Result<Service> {
        let mut command = Command::new(&self.sheaf);
        command.args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C in a terminal reaches a whole process group. A service that ended before the lab
        // would be taken for one that failed.
        command.process_group(0);
        host.enter(&mut command);
        let prepare = move || {
            if schedule == Schedule::RealTime {
                crate::realtime::prioritise()?;
            }
            Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?)
        };
        // SAFETY: the closure makes two system calls and allocates nothing.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn().with_context(|| self.unstartable())?;
        let mut service = Service { child, line: format!("sheaf {}", words.join(" ")) };
        let mut stdin = service.child.stdin.take().context("its input is a pipe")?;
        stdin.write_all(input.as_bytes())?;
        drop(stdin);
        // Its first line says that everything is set up.
        let stdout = service.child.stdout.as_mut().context("its output is a pipe")?;
        let mut first = String::new();
        BufReader::new(stdout).read_line(&mut first)?;
        match first.is_empty() {
            true => Err(service.failure()),
            false => Ok(service),
        }
    }

    fn unstartable(&self) -> String {
        format!("cannot start {}; build it", self.sheaf.display())
    }
}

impl Service {
    /// Checks that the service still runs.
    ///
    /// # Errors
    /// Fails with the service's own message when it has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(_) => bail!(self.failure()),
        }
    }

    /// The last message of a service that ends or has ended.
    fn failure(&mut self) -> anyhow::Error {
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            // Its status alone is what remains when it cannot be read.
            let _ = stderr.take(MESSAGE_LEN).read_to_string(&mut said);
        }
        let status = self.child.wait().map_or("an unknown status".into(), |one| one.to_string());
        anyhow::anyhow!("{} ended with {status}: {}", self.line, said.trim().replace('\n', "; "))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Both fail when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
