//! Numbers that an attacker cannot guess.

use std::fs::File;
use std::io::{self, Read};

/// Returns 64 bits from the kernel's generator (random(4)).
pub fn unguessable() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
