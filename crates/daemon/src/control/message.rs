//! Requests, responses, and the names of services.

use super::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Kinds of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `sheaf aggregate`.
    Aggregate,
    /// `sheaf emulate`.
    Emulate,
    /// `sheaf run`, the supervisor.
    Run,
    /// `sheaf split`.
    Split,
    /// `sheaf trunk`.
    Trunk,
    /// `sheaf window`.
    Window,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] =
        [Kind::Aggregate, Kind::Emulate, Kind::Run, Kind::Split, Kind::Trunk, Kind::Window];

    /// Name of the command, and first part of the socket's name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Aggregate => "aggregate",
            Kind::Emulate => "emulate",
            Kind::Run => "run",
            Kind::Split => "split",
            Kind::Trunk => "trunk",
            Kind::Window => "window",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(word: &str) -> Result<Kind, ()> {
        Kind::ALL.into_iter().find(|kind| kind.name() == word).ok_or(())
    }
}

/// Name of a service: its kind and its interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    kind: Kind,
    name: String,
}

impl ServiceName {
    /// Longest name of an interface in bytes (IFNAMSIZ without its final zero), and of a
    /// supervisor.
    const LONGEST: usize = 15;

    /// The service of this kind on interface `name`; an error where no interface can have the
    /// name, which becomes part of a path.
    pub fn new(kind: Kind, name: &str) -> Result<ServiceName, Error> {
        let valid = !name.is_empty()
            && name.len() <= Self::LONGEST
            && !name.starts_with('.')
            && !name.contains(|c: char| c == '/' || c.is_control() || c.is_whitespace());
        if valid {
            Ok(ServiceName { kind, name: name.to_owned() })
        } else {
            Err(Error::Name(name.to_owned()))
        }
    }

    /// The supervisor of this namespace.
    pub fn supervisor() -> ServiceName {
        ServiceName { kind: Kind::Run, name: "sheaf".to_owned() }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// File name of its socket or its lock.
    pub(super) fn file(&self, ending: &str) -> String {
        format!("{}-{}.{ending}", self.kind, self.name)
    }

    /// The service whose socket has this file name.
    pub(super) fn of_socket(file: &str) -> Option<ServiceName> {
        let (kind, name) = file.strip_suffix(".sock")?.split_once('-')?;
        ServiceName::new(kind.parse().ok()?, name).ok()
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Request to a service: one line of JSON, e.g. `{"report":{}}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Its report.
    Report {},
    /// Its report now and once a period.
    Watch {
        /// The period in milliseconds.
        every_ms: u64,
    },
    /// Words of its command line that are to hold from now on.
    Change {
        /// The words.
        words: Vec<String>,
        /// Directory that relative paths among them start from.
        #[serde(default)]
        directory: PathBuf,
    },
    /// To read its file again; only a supervisor has one.
    Reload {},
    /// To end, as after SIGTERM.
    Stop {},
}

/// Response: `{"ok":VALUE}` or `{"error":"one line"}`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Response {
    Ok(Value),
    Error(String),
}

/// Returns `text` with its control characters written as escapes (`\u{1b}`), so that a terminal
/// does not obey them.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => escaped.extend(character.escape_unicode()),
            false => escaped.push(character),
        }
    }
    escaped
}

/// Escapes all strings in `value`, the keys of objects too.
pub(super) fn escape_all(value: &mut Value) {
    match value {
        Value::String(text) if text.chars().any(char::is_control) => *text = escape(text),
        Value::Array(values) => values.iter_mut().for_each(escape_all),
        Value::Object(map) => {
            map.values_mut().for_each(escape_all);
            if map.keys().any(|key| key.chars().any(char::is_control)) {
                let old = std::mem::take(map);
                *map = old
                    .into_iter()
                    .map(|(key, value)| (escape(&key), value))
                    .collect::<Map<_, _>>();
            }
        }
        _ => {}
    }
}
