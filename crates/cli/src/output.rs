//! Printing that survives a closed pipe and a full disk.
//!
//! `println!` and `eprintln!` panic when the stream refuses a write, so the program does not use
//! them. A command whose output is its purpose uses [`print`](fn@print) and ends when nobody reads
//! it. A service uses [`sheaf_daemon::say`] and its log, because traffic must not stop with an
//! output.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// The standard output refused a write.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to the standard output: {0}; send it elsewhere or make room")]
pub struct OutputError(#[from] io::Error);

impl OutputError {
    /// Whether the reader closed its end of the pipe, as `head` does once it has its lines.
    pub fn is_closed(&self) -> bool {
        self.0.kind() == ErrorKind::BrokenPipe
    }
}

/// Prints `text` to the standard output, which has it all when this returns.
///
/// # Errors
/// When the standard output is closed or full.
pub fn print(text: impl Display) -> Result<(), OutputError> {
    Ok(write_to(&mut io::stdout().lock(), text)?)
}

/// Prints a line to the standard output.
///
/// # Errors
/// When the standard output is closed or full.
pub fn print_line(line: impl Display) -> Result<(), OutputError> {
    print(format_args!("{line}\n"))
}

/// Prints a line to the standard error, as far as that takes it.
pub fn warn(line: impl Display) {
    // There is no third stream on which to complain about this one.
    let _ = write_to(&mut io::stderr().lock(), format_args!("{line}\n"));
}

fn write_to(to: &mut impl Write, text: impl Display) -> io::Result<()> {
    // In one piece: lines of several processes that share a log stay whole.
    to.write_all(text.to_string().as_bytes())?;
    // Rust ignores errors of the last flush at the end of the process.
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_told_from_a_full_disk() {
        assert!(OutputError(ErrorKind::BrokenPipe.into()).is_closed());
        assert!(!OutputError(ErrorKind::StorageFull.into()).is_closed());
    }
}
