//! The log of the services: one line on standard error for each change of state.

use clap::ValueEnum;
use nix::libc;
use nix::sys::stat::fstat;
use nix::time::{ClockId, clock_gettime};
use sheaf_daemon::control::escape;
use std::fmt::{self, Debug, Write};
use std::io;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{self as lines, FmtContext};
use tracing_subscriber::registry::LookupSpan;

/// Form of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people: `sheaf: MESSAGE`.
    #[default]
    Text,
    /// For programs: an object with `time`, `level` and `message`.
    Json,
}

/// Begins the log, up to and including `level`.
pub fn begin(level: Level, form: Form) {
    let journal = form == Form::Text && is_journal();
    lines::Subscriber::builder()
        .with_max_level(level)
        .event_format(Format { form, journal })
        .with_writer(|| Stderr)
        .init();
}

/// Standard error without waiting: a service goes on when it is closed or full, or a pipe that
/// nobody reads.
struct Stderr;

impl io::Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        sheaf_daemon::offer(io::stderr(), bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether standard error is the journal's. systemd passes the device and inode of the journal's
/// stream (systemd.exec(5)), which differ from those of a redirected standard error.
pub fn is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(io::stderr()).is_ok_and(|it| named == format!("{}:{}", it.st_dev, it.st_ino))
}

struct Format {
    form: Form,
    /// Whether each line begins with its priority, as the journal reads it (sd-daemon(3)).
    journal: bool,
}

impl<S, N> FormatEvent<S, N> for Format
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = Message(String::new());
        event.record(&mut message);
        let now = clock_gettime(ClockId::CLOCK_REALTIME);
        let seconds = now.map_or(0.0, |now| now.tv_sec() as f64 + now.tv_nsec() as f64 / 1e9);
        let line = self.line(*event.metadata().level(), &message.0, seconds);
        writeln!(writer, "{line}")
    }
}

impl Format {
    fn line(&self, level: Level, message: &str, seconds: f64) -> String {
        match self.form {
            Form::Json => {
                let level = level.as_str().to_lowercase();
                serde_json::json!({"time": seconds, "level": level, "message": message}).to_string()
            }
            Form::Text if self.journal => format!("<{}>{}", priority(level), escape(message)),
            Form::Text => format!("sheaf: {}", escape(message)),
        }
    }
}

/// Priority of syslog(3).
fn priority(level: Level) -> libc::c_int {
    match level {
        Level::ERROR => libc::LOG_ERR,
        Level::WARN => libc::LOG_WARNING,
        Level::INFO => libc::LOG_INFO,
        _ => libc::LOG_DEBUG,
    }
}

/// The message of an event, followed by its other fields.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_form_that_their_reader_understands() {
        let line = |form, journal, level| {
            Format { form, journal }.line(level, "t0: link \"a\" is up\u{1b}", 1.5)
        };
        let text = line(Form::Text, false, Level::INFO);
        assert_eq!(text, "sheaf: t0: link \"a\" is up\\u{1b}");
        let journal = line(Form::Text, true, Level::WARN);
        assert_eq!(journal, "<4>t0: link \"a\" is up\\u{1b}");
        let json: serde_json::Value =
            serde_json::from_str(&line(Form::Json, true, Level::ERROR)).unwrap();
        let expected = serde_json::json!({
            "time": 1.5, "level": "error", "message": "t0: link \"a\" is up\u{1b}"
        });
        assert_eq!(json, expected);
    }
}
