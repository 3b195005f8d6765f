//! Memory that a process no longer needs.

/// Gives free memory back to the system, as far as the C library does not do that by itself.
///
/// Source: malloc_trim(3). glibc keeps free memory that lies below memory in use; musl does not.
/// Takes a tenth of a millisecond for each megabyte, so it is for quiet moments.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: a bare call that any thread may make at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
