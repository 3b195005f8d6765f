//! Runs one service with its signals, its control socket and its watchdog.
//!
//! Signals and control add two descriptors to those of the service, and nothing to a turn in which
//! neither is readable. SIGINT, SIGTERM and the request `stop` end the service; SIGHUP, which a
//! terminal sends when it closes, does not. Where systemd started the process, it hears when the
//! service is ready, and that its loop still turns.

use crate::control::{self, Request, Server, ServiceName, Ticket};
use crate::service::{Next, Service, Stop};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use sd_notify::NotifyState;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, memory};
use sheaf_stage::{Duration, Instant};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Reads the words of a change; relative paths among them start from the directory. It runs on a
/// thread of its own, because it may read files, and no packet is to wait for them.
pub type Parse<C> = Arc<dyn Fn(&[String], &Path) -> anyhow::Result<Parsed<C>> + Send + Sync>;

/// A change that was read.
pub struct Parsed<C> {
    /// Its text.
    pub change: C,
    /// Called once the service has made the change.
    pub accepted: Box<dyn FnOnce() + Send>,
}

impl<C> Parsed<C> {
    /// A change of which nobody else needs to know.
    pub fn new(change: C) -> Parsed<C> {
        Parsed { change, accepted: Box::new(|| ()) }
    }
}

/// Set-up that comes before the service's own: signals are blocked and its name is taken.
#[derive(Debug)]
pub struct Reactor {
    name: ServiceName,
    signals: SignalFd,
    control: Option<Server>,
    watchdog: Option<Watchdog>,
}

/// Tells systemd that the loop turns, twice in the time after which it would kill the process.
#[derive(Clone, Copy, Debug)]
struct Watchdog {
    period: Duration,
    next: Instant,
}

/// Numbers of the reactor's own descriptors in the poller; those of the service follow.
#[derive(Clone, Copy, Debug)]
struct Own {
    signals: usize,
    parsed: usize,
    control: Option<usize>,
}

/// Changes that are read on a thread of their own, one at a time.
struct Changes<C> {
    parse: Parse<C>,
    sender: Sender<(Ticket, anyhow::Result<Parsed<C>>)>,
    parsed: Receiver<(Ticket, anyhow::Result<Parsed<C>>)>,
    wake: Arc<EventFd>,
    busy: bool,
}

impl Reactor {
    /// Blocks the signals of this thread and of those that it will start, and takes the control
    /// socket of service `name`, which also goes by the `aliases`. An error where the service runs
    /// already; without permission to make the socket, the service runs without one.
    pub fn new(name: ServiceName, aliases: &[ServiceName]) -> anyhow::Result<Reactor> {
        let mut blocked = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            blocked.add(signal);
        }
        blocked.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&blocked, flags)?;
        let control = match Server::bind(&name, aliases) {
            Ok(server) => Some(server),
            Err(error @ control::Error::Io { .. }) => {
                tracing::warn!("{error}; {name} cannot be shown, changed or stopped by command");
                None
            }
            Err(error) => return Err(error.into()),
        };
        let watchdog = sd_notify::watchdog_enabled()
            .map(|limit| Watchdog { period: limit / 2, next: clock::now() });
        Ok(Reactor { name, signals, control, watchdog })
    }

    /// Runs `service` until it ends or is stopped.
    pub fn run<S: Service>(
        &mut self,
        service: &mut S,
        parse: Parse<S::Change>,
    ) -> anyhow::Result<()> {
        let mut changes = Changes::new(parse)?;
        // What reading configuration and loading programs took is not needed again.
        memory::give_back();
        notify(&[NotifyState::Ready]);
        let result = self.serve(service, &mut changes);
        notify(&[NotifyState::Stopping]);
        result
    }

    fn serve<S: Service>(
        &mut self,
        service: &mut S,
        changes: &mut Changes<S::Change>,
    ) -> anyhow::Result<()> {
        loop {
            let mut poller = Poller::default();
            let own = Own {
                signals: poller.add(&self.signals),
                parsed: poller.add(&*changes.wake),
                control: self.control.as_ref().map(|server| poller.add(server)),
            };
            service.interest(&mut poller);
            let mut deadline = self.next_deadline();
            loop {
                let until = match service.turn(clock::now(), &mut poller)? {
                    Next::Wait(until) => until,
                    Next::Refresh => break,
                    Next::End => return Ok(()),
                };
                service.wait(&mut poller, until.min(deadline))?;
                let asked = poller.readable(own.signals)
                    || poller.readable(own.parsed)
                    || own.control.is_some_and(|number| poller.readable(number));
                // The clock is read again only where somebody waits for it.
                let due = deadline != Instant::MAX && clock::now() >= deadline;
                if !asked && !due {
                    continue;
                }
                if poller.readable(own.signals) && self.take_signals(service) {
                    return Ok(());
                }
                if self.take_requests(service, changes) {
                    return Ok(());
                }
                deadline = self.next_deadline();
            }
        }
    }

    /// Time at which control or watchdog need a turn of their own.
    fn next_deadline(&self) -> Instant {
        let control = self.control.as_ref().and_then(Server::next_deadline);
        let watchdog = self.watchdog.map(|watchdog| watchdog.next);
        control.into_iter().chain(watchdog).min().unwrap_or(Instant::MAX)
    }

    /// Obeys the signals that arrived; returns whether the service ends.
    fn take_signals<S: Service>(&mut self, service: &mut S) -> bool {
        let mut ends = false;
        while let Ok(Some(signal)) = self.signals.read_signal() {
            match Signal::try_from(signal.ssi_signo as i32) {
                Ok(Signal::SIGINT) => ends |= service.stop(Stop::Interrupt),
                Ok(Signal::SIGTERM) => ends |= service.stop(Stop::Terminate),
                _ => tracing::info!("{}: SIGHUP changes nothing; goes on", self.name),
            }
        }
        ends
    }

    /// Serves the control socket and the watchdog; returns whether the service ends.
    fn take_requests<S: Service>(
        &mut self,
        service: &mut S,
        changes: &mut Changes<S::Change>,
    ) -> bool {
        let now = clock::now();
        if let Some(watchdog) = &mut self.watchdog
            && now >= watchdog.next
        {
            watchdog.next = now + watchdog.period;
            notify(&[NotifyState::Watchdog]);
        }
        let Some(server) = &mut self.control else { return false };
        while let Some((ticket, change)) = changes.take() {
            let done = change.and_then(|Parsed { change, accepted }| {
                service.change(change, now)?;
                accepted();
                Ok(())
            });
            match &done {
                Ok(()) => tracing::info!("{}: changed", self.name),
                Err(error) => tracing::info!("{}: a change is refused: {error:#}", self.name),
            }
            server.respond(ticket, words(done.map(|()| serde_json::json!({}))), now);
        }
        server.turn(now);
        while let Some((ticket, request)) = server.next_request() {
            let response = match request {
                Request::Report {} | Request::Watch { .. } => words(service.report(now)),
                Request::Change { words, directory } => {
                    match changes.begin(ticket, words, directory) {
                        Ok(()) => continue,
                        Err(busy) => Err(busy),
                    }
                }
                Request::Reload {} => Err(format!("{} has no file to read again", self.name)),
                Request::Stop {} => {
                    tracing::info!("{}: stopped by request", self.name);
                    server.respond(ticket, Ok(serde_json::json!({})), now);
                    if service.stop(Stop::Terminate) {
                        return true;
                    }
                    continue;
                }
            };
            server.respond(ticket, response, now);
        }
        false
    }
}

impl<C: Send + 'static> Changes<C> {
    fn new(parse: Parse<C>) -> anyhow::Result<Changes<C>> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let (sender, parsed) = channel();
        Ok(Changes { parse, sender, parsed, wake: Arc::new(wake), busy: false })
    }

    /// Begins to read `words`; an error where another change is still being read.
    fn begin(
        &mut self,
        ticket: Ticket,
        words: Vec<String>,
        directory: PathBuf,
    ) -> Result<(), String> {
        if self.busy {
            return Err("another change is being read; try again".to_owned());
        }
        let (parse, sender, wake) = (self.parse.clone(), self.sender.clone(), self.wake.clone());
        let read = move || {
            let _ = sender.send((ticket, parse(&words, &directory)));
            let _ = wake.write(1);
        };
        let thread = std::thread::Builder::new().name("change".to_owned()).spawn(read);
        self.busy = thread.is_ok();
        thread.map(drop).map_err(|error| format!("cannot read the change: {error}"))
    }

    /// The change that has been read.
    fn take(&mut self) -> Option<(Ticket, anyhow::Result<Parsed<C>>)> {
        if self.busy {
            let _ = self.wake.read();
        }
        let taken = self.parsed.try_recv().ok();
        self.busy &= taken.is_none();
        taken
    }
}

/// A result with its error as one line of words.
fn words<T>(result: anyhow::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{error:#}"))
}

fn notify(states: &[NotifyState<'_>]) {
    // A service manager that is gone is no reason to stop.
    let _ = sd_notify::notify(states);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Kind, ask};
    use anyhow::ensure;
    use nix::sys::signal::raise;
    use serde_json::{Value, json};
    use std::os::unix::net::UnixDatagram;

    /// Adds up the bytes that it receives, from a socket that can be closed and opened.
    struct Sum {
        socket: UnixDatagram,
        number: usize,
        sum: u64,
        factor: u64,
        refreshed: u32,
        stops: Vec<Stop>,
    }

    impl Service for Sum {
        type Change = u64;

        fn interest(&mut self, poller: &mut Poller) {
            self.number = poller.add(&self.socket);
            self.refreshed += 1;
        }

        fn turn(&mut self, _now: Instant, poller: &mut Poller) -> anyhow::Result<Next> {
            if poller.readable(self.number) {
                let mut bytes = [0; 16];
                let len = self.socket.recv(&mut bytes)?;
                self.sum += bytes[..len].iter().map(|byte| u64::from(*byte)).sum::<u64>();
                match &bytes[..len] {
                    b"refresh" => return Ok(Next::Refresh),
                    b"end" => return Ok(Next::End),
                    b"hangup" => raise(Signal::SIGHUP)?,
                    b"interrupt" => raise(Signal::SIGINT)?,
                    _ => {}
                }
            }
            Ok(Next::Wait(Instant::MAX))
        }

        fn report(&mut self, _now: Instant) -> anyhow::Result<Value> {
            Ok(json!({"sum": self.sum, "factor": self.factor}))
        }

        fn change(&mut self, factor: u64, _now: Instant) -> anyhow::Result<()> {
            ensure!(factor > 0, "factor is zero; give another");
            self.factor = factor;
            Ok(())
        }

        fn stop(&mut self, cause: Stop) -> bool {
            self.stops.push(cause);
            true
        }
    }

    fn parse() -> Parse<u64> {
        Arc::new(|words, _| match words {
            [word, value] if word == "factor" => Ok(Parsed::new(value.parse()?)),
            _ => anyhow::bail!("write factor N"),
        })
    }

    /// Runs the service on a thread of its own; `client` has its name and a socket to it. Returns
    /// the service after its end.
    fn run(name: &str, client: impl FnOnce(&ServiceName, &UnixDatagram)) -> Sum {
        // The run directory is that of this test's process alone.
        let name = format!("{name}{}", std::process::id() % 10_000);
        let name = ServiceName::new(Kind::Window, &name).unwrap();
        let (socket, peer) = UnixDatagram::pair().unwrap();
        std::thread::scope(|scope| {
            let (ready, begun) = channel();
            let own = name.clone();
            let service = scope.spawn(move || {
                let mut reactor = Reactor::new(own, &[]).unwrap();
                ready.send(()).unwrap();
                let (number, sum, factor, refreshed) = (0, 0, 1, 0);
                let mut sum = Sum { socket, number, sum, factor, refreshed, stops: Vec::new() };
                reactor.run(&mut sum, parse()).unwrap();
                sum
            });
            begun.recv().unwrap();
            client(&name, &peer);
            service.join().unwrap()
        })
    }

    fn change(name: &ServiceName, words: &str) -> Result<Value, control::Error> {
        let words = words.split(' ').map(str::to_owned).collect();
        ask(name, &Request::Change { words, directory: PathBuf::new() })
    }

    #[test]
    fn a_service_is_shown_changed_and_stopped_by_request() {
        let service = run("asked", |name, peer| {
            peer.send(&[3, 4]).unwrap();
            let shown = ask(name, &Request::Report {}).unwrap();
            assert_eq!(shown["factor"], 1);
            change(name, "factor 5").unwrap();
            for (words, refusal) in
                [("speed 5", "write factor N"), ("factor 0", "factor is zero; give another")]
            {
                assert_eq!(change(name, words).unwrap_err().to_string(), refusal);
            }
            assert_eq!(ask(name, &Request::Report {}).unwrap()["factor"], 5);
            assert!(ask(name, &Request::Reload {}).is_err());
            ask(name, &Request::Stop {}).unwrap();
        });
        assert_eq!((service.sum, service.stops), (7, vec![Stop::Terminate]));
    }

    #[test]
    fn a_hangup_ends_nothing_and_ctrl_c_does() {
        let service = run("signals", |name, peer| {
            peer.send(b"hangup").unwrap();
            // The report comes after the signal: it goes on.
            ask(name, &Request::Report {}).unwrap();
            peer.send(b"interrupt").unwrap();
        });
        assert_eq!(service.stops, [Stop::Interrupt]);
    }

    #[test]
    fn descriptors_are_asked_for_again_after_a_refresh_and_a_service_may_end_by_itself() {
        let service = run("refresh", |_, peer| {
            peer.send(b"refresh").unwrap();
            peer.send(b"end").unwrap();
        });
        assert_eq!((service.refreshed, service.stops), (2, vec![]));
    }
}
