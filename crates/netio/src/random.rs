//! Bytes that an attacker cannot guess.

use std::fs::File;
use std::io::{self, Read};

/// Returns bytes from the kernel's generator (random(4)).
pub fn unguessable<const LEN: usize>() -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
