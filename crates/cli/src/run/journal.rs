//! The log of `sheaf run`: its own lines, and those of its sections with their names in front.

use super::config::{Format, Global, Level};
use super::section::Key;

/// Longest line that is passed on, in bytes; what is longer is cut into several.
const LONGEST: usize = 8 << 10;

/// Form of a line of the log.
#[derive(Clone, Copy, Debug)]
pub struct Journal {
    global: Global,
    /// The journal of systemd reads it, and priorities in front of the lines (sd-daemon(3)).
    has_priorities: bool,
}

impl Journal {
    /// The standard error, as the file wants it written.
    pub fn new(global: Global) -> Journal {
        Journal { global, has_priorities: crate::log::is_journal() }
    }

    /// Writes what happened, unless only warnings are wanted.
    pub fn say(self, message: &str) {
        if self.global.level != Level::Quiet {
            write(&self.line("info", "<6>", message));
        }
    }

    /// Writes what somebody should look at.
    pub fn warn(self, message: &str) {
        write(&self.line("warn", "<4>", message));
    }

    fn line(self, level: &str, priority: &str, message: &str) -> String {
        match self.global.log {
            Format::Json => serde_json::json!({ "level": level, "message": message }).to_string(),
            Format::Text if self.has_priorities => format!("{priority}{message}"),
            Format::Text => format!("sheaf: {message}"),
        }
    }

    /// Passes on a line of a section.
    pub fn pass_on(self, key: &Key, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        write(&prefixed(key, line.trim_end(), self.has_priorities));
    }
}

/// Puts the section's name in front, behind the priority of a line, or into the object of a JSON
/// log.
fn prefixed(key: &Key, line: &str, has_priorities: bool) -> String {
    let line = sheaf_daemon::control::escape(line);
    if let Some(object) = line.strip_prefix('{')
        && line.ends_with('}')
    {
        let comma = if object == "}" { "" } else { "," };
        let name = serde_json::Value::from(key.to_string());
        return format!("{{\"section\":{name}{comma}{object}");
    }
    let (priority, text) = match line.as_bytes() {
        [b'<', b'0'..=b'7', b'>', ..] => line.split_at(3),
        // A panic, or what a library writes.
        _ => ("<5>", line.as_str()),
    };
    let priority = if has_priorities { priority } else { "" };
    format!("{priority}{key}: {text}")
}

/// Writes a line to the standard error. A log that is full or closed, or that nobody empties, stops
/// nothing.
fn write(line: &str) {
    sheaf_daemon::offer(std::io::stderr(), format!("{line}\n").as_bytes());
}

/// Hands each complete line in `bytes` to `each`, and each piece of one that is too long; leaves
/// the rest.
pub fn take_lines(bytes: &mut Vec<u8>, mut each: impl FnMut(&[u8])) {
    let mut rest = &bytes[..];
    loop {
        let end = rest.iter().position(|byte| *byte == b'\n');
        match end {
            Some(end) if end <= LONGEST => {
                each(&rest[..end]);
                rest = &rest[end + 1..];
            }
            _ if rest.len() >= LONGEST => {
                each(&rest[..LONGEST]);
                rest = &rest[LONGEST..];
            }
            _ => break,
        }
    }
    let left = rest.len();
    bytes.drain(..bytes.len() - left);
}

#[cfg(test)]
mod tests {
    use super::super::section::Kind;
    use super::*;

    fn key() -> Key {
        Key { kind: Kind::Aggregate, name: "wlan0".to_owned() }
    }

    #[test]
    fn a_line_has_the_section_behind_the_priority_or_in_the_object() {
        for (line, expected) in [
            ("at work", "<5>aggregate wlan0: at work"),
            ("<4>late", "<4>aggregate wlan0: late"),
            ("<x>", "<5>aggregate wlan0: <x>"),
            ("{}", "{\"section\":\"aggregate wlan0\"}"),
            ("{\"a\":1}", "{\"section\":\"aggregate wlan0\",\"a\":1}"),
            ("\u{1b}[2J", "<5>aggregate wlan0: \\u{1b}[2J"),
        ] {
            assert_eq!(prefixed(&key(), line, true), expected);
        }
        assert_eq!(prefixed(&key(), "<4>late", false), "aggregate wlan0: late");
    }

    #[test]
    fn lines_of_the_supervisor_have_the_form_that_the_file_wants() {
        let journal =
            |log| Journal { global: Global { log, ..Global::default() }, has_priorities: true };
        assert_eq!(journal(Format::Text).line("warn", "<4>", "late"), "<4>late");
        let object = journal(Format::Json).line("info", "<6>", "a \"b\"");
        assert_eq!(object, r#"{"level":"info","message":"a \"b\""}"#);
    }

    #[test]
    fn lines_are_taken_whole_and_endless_ones_in_pieces() {
        let mut bytes = b"one\ntwo\nthr".to_vec();
        let mut lines = Vec::new();
        take_lines(&mut bytes, |line| lines.push(line.to_vec()));
        assert_eq!(
            (lines, bytes.as_slice()),
            (vec![b"one".to_vec(), b"two".to_vec()], &b"thr"[..])
        );
        let mut bytes = vec![b'x'; 2 * LONGEST + 5];
        let mut lengths = Vec::new();
        take_lines(&mut bytes, |line| lengths.push(line.len()));
        assert_eq!((lengths, bytes.len()), (vec![LONGEST; 2], 5));
    }
}
