//! Calls that go on after a stop.

use std::io::{ErrorKind, Result};

/// A socket with a timeout ends a call early where the process was stopped and goes on (signal(7)).
pub fn patient<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
