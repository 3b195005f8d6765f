//! `sheaf run` at work: does what the [`Supervisor`] says, with processes, signals, netlink, the
//! control socket and the service manager.

use super::config::{self, Config, Faults, Format, Global, Level};
use super::journal::{self, Journal};
use super::section::Key;
use super::supervisor::{Action, Fate, Interfaces, SIGN_LIMIT, State, Supervisor};
use anyhow::{Context, bail};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, setsockopt, sockopt::PassCred,
};
use nix::sys::stat::fstat;
use nix::unistd::Pid;
use sd_notify::NotifyState;
use serde_json::{Value, json};
use sheaf_daemon::control::{self, Server};
use sheaf_daemon::{Request, ServiceName, run_directory};
use sheaf_netio::child::{self, Child};
use sheaf_netio::clock;
use sheaf_netio::monitor::{self, Monitor};
use sheaf_netio::poller::Poller;
use sheaf_stage::{Duration, Instant};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::io::{self, IoSliceMut, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Time that a service has to take over words. Half of what the client of a reload waits for.
const CHANGE_DEADLINE: Duration = Duration::from_secs(2);
/// The service manager is told that the start is over after this time at the latest: a section that
/// cannot start must not keep the machine from booting.
const START_DEADLINE: Duration = Duration::from_secs(10);
/// Longest message to the notification socket, in bytes. `READY=1` has seven.
const NOTICE: usize = 4096;
/// Bytes that are read of a process's output in one turn, so that none starves another.
const OUTPUT: usize = 64 << 10;

/// Runs the sections of `file` until SIGINT or SIGTERM.
pub fn run(file: &Path) -> anyhow::Result<()> {
    let file = file
        .canonicalize()
        .with_context(|| format!("cannot read {}; name the file with -c FILE", file.display()))?;
    enter_directory(&file)?;
    let config = config::read(&file)?;
    let signals = Signals::open()?;
    let journal = Journal::new(config.global);
    let control = match Server::bind(&ServiceName::supervisor(), &[]) {
        Ok(server) => Some(server),
        Err(control::Error::Taken(_)) => {
            bail!("another `sheaf run` runs here; use `sheaf reload`, or stop it first")
        }
        Err(error) => {
            journal.warn(&format!("goes on without a control socket: {error}"));
            None
        }
    };
    let monitor = Monitor::open().context("cannot watch interfaces")?;
    let notices = Notices::open().inspect_err(|error| {
        journal.warn(&format!("cannot hear when services are at work: {error}"));
    });
    let started = clock::now();
    let mut driver = Driver {
        supervisor: Supervisor::new(interfaces()?),
        program: std::env::current_exe().context("cannot find the program itself")?,
        file,
        global: config.global,
        journal,
        processes: BTreeMap::new(),
        restarts: BTreeMap::new(),
        refusals: BTreeMap::new(),
        notices: notices.ok(),
        control,
        started,
        announced: false,
    };
    driver.load(config, started);
    driver.serve(&signals, &monitor)
}

/// Relative paths in the file start from its directory.
pub fn enter_directory(file: &Path) -> anyhow::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("/"));
    std::env::set_current_dir(directory)
        .with_context(|| format!("cannot enter {}", directory.display()))
}

fn interfaces() -> io::Result<Interfaces> {
    let all = monitor::interfaces()?.into_iter();
    Ok(all.map(|(name, interface)| (name, interface.index)).collect())
}

struct Process {
    child: Child,
    output: PipeReader,
    /// The last line, as long as it is not complete.
    partial: Vec<u8>,
    /// Its output has ended.
    silent: bool,
}

struct Driver {
    supervisor: Supervisor,
    program: PathBuf,
    file: PathBuf,
    global: Global,
    journal: Journal,
    processes: BTreeMap<Key, Process>,
    /// Restarts of the process of each section.
    restarts: BTreeMap<Key, u64>,
    /// Reasons of services that did not take over the words of the last reload.
    refusals: BTreeMap<Key, String>,
    /// Goes before the control socket, which removes the directory of both.
    notices: Option<Notices>,
    control: Option<Server>,
    started: Instant,
    /// The service manager was told that the start is over.
    announced: bool,
}

impl Driver {
    fn serve(&mut self, signals: &Signals, monitor: &Monitor) -> anyhow::Result<()> {
        // Half of what the service manager allows, as it recommends (sd_watchdog_enabled(3)).
        let watchdog = sd_notify::watchdog_enabled().map(|period| period / 2);
        let mut next_sign = self.started;
        loop {
            let now = clock::now();
            self.announce(now);
            if let Some(period) = watchdog
                && next_sign <= now
            {
                notify(&[NotifyState::Watchdog]);
                next_sign = now + period;
            }
            let deadlines = [
                self.supervisor.next_deadline(),
                self.control.as_ref().and_then(Server::next_deadline),
                watchdog.map(|_| next_sign),
                (!self.announced).then_some(self.started + START_DEADLINE),
            ];
            let deadline = deadlines.into_iter().flatten().min();
            let news = self.wait(signals, monitor, deadline)?;
            let now = clock::now();
            if signals.take(SIGTERM) || signals.take(SIGINT) {
                notify(&[NotifyState::Stopping]);
                let actions = self.supervisor.stop(now);
                self.perform(actions, now);
            }
            if signals.take(SIGHUP)
                && let Err(faults) = self.reload(now)
            {
                self.journal.warn(&format!("reload changes nothing: {faults}"));
            }
            if news {
                monitor.drain();
                let actions = self.supervisor.news(interfaces()?, now);
                self.perform(actions, now);
            }
            self.hear();
            self.read_outputs();
            self.reap();
            let now = clock::now();
            let actions = self.supervisor.on_deadline(now);
            self.perform(actions, now);
            self.respond();
            if self.supervisor.has_stopped() && self.processes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Waits until something happens; returns whether there is news of interfaces.
    fn wait(
        &self,
        signals: &Signals,
        monitor: &Monitor,
        deadline: Option<Instant>,
    ) -> io::Result<bool> {
        let mut poller = Poller::default();
        let news = poller.add(monitor);
        for (_, pipe) in &signals.pipes {
            poller.add(pipe);
        }
        if let Some(server) = &self.control {
            poller.add(server);
        }
        if let Some(notices) = &self.notices {
            poller.add(&notices.socket);
        }
        for process in self.processes.values() {
            poller.add(&process.child);
            if !process.silent {
                poller.add(&process.output);
            }
        }
        poller.wait(deadline.map(|at| at.saturating_since(clock::now())))?;
        Ok(poller.readable(news))
    }

    /// Tells the service manager that the start is over, once.
    fn announce(&mut self, now: Instant) {
        let over = self.supervisor.is_settled() || now >= self.started + START_DEADLINE;
        if over && !self.announced {
            self.announced = true;
            self.journal.say(&format!("runs {}", self.file.display()));
            notify(&[NotifyState::Ready]);
        }
    }

    /// Reads the file again. Where it has faults, nothing changes.
    fn reload(&mut self, now: Instant) -> Result<Vec<String>, Faults> {
        let config = config::read(&self.file)?;
        if let Ok(moment) = NotifyState::monotonic_usec_now() {
            notify(&[NotifyState::Reloading, moment]);
        }
        let lines = self.load(config, now);
        notify(&[NotifyState::Ready]);
        Ok(lines)
    }

    /// Takes over `config`; returns a line for each section that changed.
    fn load(&mut self, config: Config, now: Instant) -> Vec<String> {
        self.global = config.global;
        self.journal = Journal::new(config.global);
        self.refusals.clear();
        let (actions, fates) = self.supervisor.load(config.sections, now);
        for (key, state) in self.supervisor.states() {
            if let State::Waiting(missing) = state {
                self.journal.say(&format!("{key}: waits for {}", missing.join(", ")));
            }
        }
        let live: Vec<Key> = actions.iter().filter_map(changed_live).collect();
        self.perform(actions, now);
        let mut lines = Vec::new();
        for (key, fate) in fates {
            lines.push(match (fate, self.refusals.get(&key)) {
                (Fate::Added, _) => format!("{key}: added"),
                (Fate::Removed, _) => format!("{key}: removed"),
                (Fate::Changed, Some(why)) => format!("{key}: restarted ({why})"),
                (Fate::Changed, None) if live.contains(&key) => format!("{key}: changed"),
                (Fate::Changed, None) => format!("{key}: restarted"),
            });
        }
        if self.announced && lines.is_empty() {
            self.journal.say("reload: no section changed");
        }
        if self.announced {
            lines.iter().for_each(|line| self.journal.say(&format!("reload: {line}")));
        }
        lines
    }

    fn perform(&mut self, actions: Vec<Action>, now: Instant) {
        let (changes, others): (Vec<_>, Vec<_>) =
            actions.into_iter().partition(|action| matches!(action, Action::Change(..)));
        for action in others {
            match action {
                Action::Start(key, words) => self.start(&key, &words, now),
                Action::Terminate(key) => self.signal(&key, Signal::SIGTERM),
                Action::Kill(key) => {
                    self.journal.warn(&format!("{key}: does not respond; is killed"));
                    self.signal(&key, Signal::SIGKILL);
                }
                Action::Change(..) => {}
            }
        }
        self.change(changes);
    }

    /// Has services take over words, all at the same time: one that hangs delays no other.
    fn change(&mut self, changes: Vec<Action>) {
        let results: Vec<_> = std::thread::scope(|scope| {
            let ask = |action| match action {
                Action::Change(key, words) => {
                    Some((key.clone(), scope.spawn(move || ask_to_change(&key, words))))
                }
                _ => None,
            };
            let asked: Vec<_> = changes.into_iter().filter_map(ask).collect();
            asked.into_iter().map(|(key, thread)| (key, thread.join())).collect()
        });
        for (key, result) in results {
            let result = result.unwrap_or_else(|_| Err("the request failed".to_owned()));
            let taken = result.is_ok();
            if let Err(why) = result {
                self.refusals.insert(key.clone(), why);
            }
            let now = clock::now();
            let actions = self.supervisor.changed(&key, taken, now);
            self.perform(actions, now);
        }
    }

    fn start(&mut self, key: &Key, words: &[String], now: Instant) {
        match self.spawn(key, words) {
            Ok(process) => {
                *self.restarts.entry(key.clone()).or_default() += 1;
                self.processes.insert(key.clone(), process);
                // Without a sign of work there is nothing to wait for.
                if self.notices.is_none() && !key.kind.is_done_once(words) {
                    self.supervisor.ready(key);
                }
            }
            Err(error) => {
                self.journal.warn(&format!("{key}: cannot start: {error}"));
                let actions = self.supervisor.ended(key, false, now);
                self.perform(actions, now);
            }
        }
    }

    fn spawn(&self, key: &Key, words: &[String]) -> io::Result<Process> {
        let (output, input) = io::pipe()?;
        fcntl(&output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut command = Command::new(&self.program);
        match self.global.level {
            Level::Quiet => drop(command.arg("--quiet")),
            Level::Normal => {}
            Level::Verbose => drop(command.arg("--verbose")),
        }
        if self.global.log == Format::Json {
            command.args(["--log", "json"]);
        }
        command.arg(key.kind.name()).args(words);
        // A group of its own: Ctrl-C reaches the supervisor alone, which ends the others in order.
        command.process_group(0);
        // The process writes priorities in front of its lines, as to the journal (systemd.exec(5)).
        let pipe = fstat(&input)?;
        command.env("JOURNAL_STREAM", format!("{}:{}", pipe.st_dev, pipe.st_ino));
        command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
        // Those of this process are not for its children: they report to it.
        command.env_remove("WATCHDOG_PID");
        match &self.notices {
            Some(notices) => command
                .env("NOTIFY_SOCKET", &notices.path)
                .env("WATCHDOG_USEC", SIGN_LIMIT.as_micros().to_string()),
            None => command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC"),
        };
        child::end_with_parent(&mut command, Signal::SIGTERM);
        let child = Child::spawn(&mut command)?;
        Ok(Process { child, output, partial: Vec::new(), silent: false })
    }

    /// Signals the whole group: a service may have children of its own.
    fn signal(&self, key: &Key, signal: Signal) {
        if let Some(process) = self.processes.get(key) {
            // It may have ended already, which is what is asked for.
            let _ = killpg(Pid::from_raw(process.child.id() as i32), signal);
        }
    }

    /// Hears which services are at work, and alive.
    fn hear(&mut self) {
        let Some(notices) = &self.notices else { return };
        while let Some(notice) = notices.next() {
            let by = self.processes.iter().find(|(_, one)| one.child.id() == notice.process);
            let Some((key, _)) = by else { continue };
            if notice.ready {
                self.journal.say(&format!("{key}: at work"));
                self.supervisor.ready(key);
            }
            if notice.alive {
                self.supervisor.alive(key, clock::now());
            }
        }
    }

    fn read_outputs(&mut self) {
        for (key, process) in &mut self.processes {
            if !process.silent {
                process.read(key, self.journal);
            }
        }
    }

    /// Takes leave of processes that have ended.
    fn reap(&mut self) {
        let mut poller = Poller::default();
        let watched: Vec<(Key, usize)> = self
            .processes
            .iter()
            .map(|(key, process)| (key.clone(), poller.add(&process.child)))
            .collect();
        if watched.is_empty() || poller.wait(Some(Duration::ZERO)).is_err() {
            return;
        }
        for (key, index) in watched {
            if !poller.readable(index) {
                continue;
            }
            let Some(mut process) = self.processes.remove(&key) else { continue };
            process.read(&key, self.journal);
            process.say_partial(&key, self.journal);
            let status = process.child.wait();
            let success = status.as_ref().is_ok_and(|status| status.success());
            let now = clock::now();
            let actions = self.supervisor.ended(&key, success, now);
            let state = self.supervisor.states().find(|(one, _)| **one == key);
            match (state, status) {
                (Some((_, State::Pausing(until))), Ok(status)) => {
                    let pause = until.saturating_since(now).as_secs_f64();
                    self.journal
                        .warn(&format!("{key}: ended ({status}); starts again in {pause:.1} s"));
                }
                (Some((_, State::Applied)), _) => self.journal.say(&format!("{key}: at work")),
                (Some((_, State::Waiting(missing))), _) => {
                    self.journal.say(&format!("{key}: waits for {}", missing.join(", ")));
                }
                _ => {}
            }
            self.perform(actions, now);
        }
    }

    fn respond(&mut self) {
        let Some(mut server) = self.control.take() else { return };
        server.turn(clock::now());
        while let Some((ticket, request)) = server.next_request() {
            let response = self.response(request);
            server.respond(ticket, response, clock::now());
        }
        self.control = Some(server);
    }

    fn response(&mut self, request: Request) -> Result<Value, String> {
        let now = clock::now();
        match request {
            Request::Report {} | Request::Watch { .. } => Ok(self.report(now)),
            Request::Reload {} => match self.reload(now) {
                Ok(lines) => Ok(json!({ "changes": lines })),
                Err(faults) => {
                    let lines: Vec<_> = faults.to_string().lines().map(str::to_owned).collect();
                    Ok(json!({ "faults": lines }))
                }
            },
            Request::Stop {} => {
                let actions = self.supervisor.stop(now);
                self.perform(actions, now);
                Ok(Value::Null)
            }
            Request::Change { .. } => {
                Err("sheaf run has no words to change; name a section".to_owned())
            }
        }
    }

    fn report(&self, now: Instant) -> Value {
        let section = |(key, state): (&Key, State)| {
            let starts = self.restarts.get(key).copied().unwrap_or(0);
            let mut section = json!({
                "section": key.to_string(),
                "kind": key.kind.name(),
                "name": key.name,
                "state": name(&state),
                "at_work": matches!(state, State::Running(_) | State::Applied),
                "restarts": starts.saturating_sub(1),
                "pid": self.processes.get(key).map(|process| process.child.id()),
            });
            match state {
                State::Waiting(missing) => section["waits_for"] = missing.into(),
                State::Running(since) => {
                    section["seconds"] = now.saturating_since(since).as_secs_f64().into();
                }
                _ => {}
            }
            section
        };
        let sections: Vec<_> = self.supervisor.states().map(section).collect();
        json!({
            "file": self.file.display().to_string(),
            "seconds": now.saturating_since(self.started).as_secs_f64(),
            "sections": sections,
        })
    }
}

/// The word of a state in reports.
fn name(state: &State) -> &'static str {
    match state {
        State::Waiting(_) => "waiting",
        State::Pausing(_) => "pausing",
        State::Starting => "starting",
        State::Running(_) => "running",
        State::Applied => "applied",
        State::Ending => "ending",
    }
}

fn changed_live(action: &Action) -> Option<Key> {
    match action {
        Action::Change(key, _) => Some(key.clone()),
        _ => None,
    }
}

fn ask_to_change(key: &Key, words: Vec<String>) -> Result<(), String> {
    let service = key.service().ok_or("it has no control socket")?;
    let directory = std::env::current_dir().unwrap_or_default();
    let request = Request::Change { words, directory };
    let response = control::ask_within(&service, &request, CHANGE_DEADLINE);
    response.map(drop).map_err(|error| error.to_string())
}

fn notify(states: &[NotifyState<'_>]) {
    // Without a service manager nobody needs to know.
    let _ = sd_notify::notify(states);
}

impl Process {
    /// Passes on what it said, up to [`OUTPUT`] bytes.
    fn read(&mut self, key: &Key, journal: Journal) {
        let (mut piece, mut taken) = ([0; 4096], 0);
        while taken < OUTPUT {
            match self.output.read(&mut piece) {
                Ok(0) => {
                    self.silent = true;
                    return;
                }
                Ok(len) => {
                    taken += len;
                    self.partial.extend_from_slice(&piece[..len]);
                    journal::take_lines(&mut self.partial, |line| journal.pass_on(key, line));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Passes on a last line that has no end.
    fn say_partial(&mut self, key: &Key, journal: Journal) {
        if !self.partial.is_empty() {
            journal.pass_on(key, &std::mem::take(&mut self.partial));
        }
    }
}

/// Signals as readable descriptors. Handlers, not a blocked mask: a mask would be inherited by the
/// processes of the sections.
struct Signals {
    pipes: Vec<(i32, UnixStream)>,
}

impl Signals {
    fn open() -> anyhow::Result<Signals> {
        let mut pipes = Vec::new();
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, writer)?;
            pipes.push((signal, reader));
        }
        Ok(Signals { pipes })
    }

    /// Whether `signal` came since the last call.
    fn take(&self, signal: i32) -> bool {
        let mut bytes = [0; 64];
        let mut pipes = self.pipes.iter().filter(|(one, _)| *one == signal);
        pipes.any(|(_, pipe)| (&mut &*pipe).read(&mut bytes).is_ok_and(|len| len > 0))
    }
}

/// The socket on which services say that they are at work, as to a service manager
/// (sd_notify(3)).
struct Notices {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Notices {
    fn open() -> io::Result<Notices> {
        let reserved = run_directory::reserve()?;
        let path = reserved.path.join("notify");
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixDatagram::bind(&path)?;
        setsockopt(&socket, PassCred, &true)?;
        socket.set_nonblocking(true)?;
        Ok(Notices { socket, path })
    }

    /// The next notice. The kernel vouches for the number of its process.
    fn next(&self) -> Option<Notice> {
        loop {
            let mut bytes = [0; NOTICE];
            let mut space = nix::cmsg_space!(nix::sys::socket::UnixCredentials);
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let flags = MsgFlags::MSG_DONTWAIT;
            let fd = self.socket.as_fd().as_raw_fd();
            let message = recvmsg::<UnixAddr>(fd, &mut parts, Some(&mut space), flags).ok()?;
            let by = message.cmsgs().ok()?.find_map(|part| match part {
                ControlMessageOwned::ScmCredentials(credentials) => Some(credentials.pid()),
                _ => None,
            });
            let len = message.bytes;
            let says =
                |line: &[u8]| bytes[..len].split(|byte| *byte == b'\n').any(|one| one == line);
            if let Some(process) = by {
                let (ready, alive) = (says(b"READY=1"), says(b"WATCHDOG=1"));
                return Some(Notice { process: process as u32, ready, alive });
            }
        }
    }
}

/// Notice of a process about itself.
struct Notice {
    process: u32,
    ready: bool,
    alive: bool,
}

impl Drop for Notices {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
