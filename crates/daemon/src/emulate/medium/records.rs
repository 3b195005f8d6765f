//! Records of a medium at work: how late frames are handed over, the capture, the report.

use super::air::Done;
use super::settings::Settings;
use crate::emulate::capture::Capture;
use crate::emulate::pcapng::LinkType;
use crate::emulate::settings::Run;
use crate::emulate::status::{LatenessMeter, StationStatus, Status};
use sheaf_netio::clock;
use sheaf_stage::{Duration, Instant};

/// A frame that is handed over so late was late for reasons of the machine: several times what an
/// idle one takes to wake up, and less than full device queues last at most rates.
const BEHIND: Duration = Duration::from_millis(10);

/// The records.
pub struct Records {
    /// Names of the stations.
    pub stations: Vec<String>,
    /// Time at which the stations began their paths.
    pub started: Instant,
    capture: Option<Capture>,
    lateness: LatenessMeter,
    behind: u64,
    place: String,
    seed: u64,
}

impl Records {
    /// Begins the capture, of frames of kind `link`. The stations begin their paths now.
    ///
    /// # Errors
    /// Fails where the capture cannot be written.
    pub fn new(settings: &Settings, run: &Run, link: LinkType) -> anyhow::Result<Records> {
        let stations: Vec<_> = settings.stations.iter().map(|one| one.name.clone()).collect();
        let capture = match &run.pcap {
            None => None,
            Some(file) => {
                let names: Vec<_> = stations.iter().map(String::as_str).collect();
                Some(Capture::create(file, &names, link)?)
            }
        };
        let (phy, count) = (settings.channel.phy.name(), stations.len());
        Ok(Records {
            stations,
            started: clock::now(),
            capture,
            lateness: LatenessMeter::new()?,
            behind: 0,
            place: format!("medium {} of {count} stations ({phy})", settings.name),
            seed: settings.seed,
        })
    }

    /// The medium, for people.
    pub fn title(&self) -> String {
        format!("emulating {}", self.place)
    }

    /// Takes note of a frame that was just handed over.
    pub fn take_note<T>(&mut self, done: &Done<T>) {
        let late = clock::now().saturating_since(done.ended);
        self.lateness.record(late);
        if late > BEHIND {
            if self.behind == 0 {
                tracing::warn!(
                    "{} fell behind by {:.1} ms; let the machine do less beside it, or give \
                     --fifo 50",
                    self.place,
                    late.as_secs_f64() * 1e3
                );
            }
            self.behind += 1;
        }
        self.write(done);
    }

    /// Writes a frame that was done with to the capture.
    pub fn write<T>(&self, done: &Done<T>) {
        if let Some(capture) = &self.capture {
            let comment = comment(done, &self.stations);
            capture.transmitted(done.frame.from.0, done.ended, &done.frame.payload.bytes, comment);
        }
    }

    /// The report, with those of the stations and the time during which something was on the air.
    pub fn status(
        &self,
        stations: Vec<(String, StationStatus)>,
        busy: Duration,
        now: Instant,
    ) -> Status {
        Status {
            place: self.title(),
            seed: self.seed,
            seconds: now.saturating_since(self.started).as_secs_f64(),
            stations: stations.into_iter().collect(),
            busy_ms: busy.as_secs_f64() * 1e3,
            behind: self.behind,
            uncaptured: self.capture.as_ref().map_or(0, Capture::missed),
            lateness: self.lateness.report(),
            ..Status::default()
        }
    }

    /// Ends the capture.
    pub fn end(self) -> anyhow::Result<()> {
        self.capture.map_or(Ok(()), Capture::end)
    }
}

/// Comment of a frame in a capture; `names` are those of the stations.
fn comment<T>(done: &Done<T>, names: &[String]) -> String {
    let took = done.ended.saturating_since(done.started).as_secs_f64() * 1e3;
    let fate = match done.result {
        Ok(()) => {
            let heard = done.receivers.iter().filter_map(|radio| names.get(radio.0 as usize));
            let heard: Vec<_> = heard.map(String::as_str).collect();
            format!("received by {}", heard.join(", "))
        }
        Err(reason) => format!("lost: {}", reason.name()),
    };
    format!("{fate}, {} retries ({took:.3} ms)", done.retries)
}
