//! The additions of `-v`: the reasons of the kernel's verifier, on standard error.

use std::sync::atomic::{AtomicBool, Ordering};

static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Switches the reasons on for this process.
pub fn switch_on() {
    VERBOSE.store(true, Ordering::Relaxed);
}

/// Prints what the verifier had against a program, if that is behind `error` and was asked for.
/// Other errors have nothing to add.
pub fn print_reasons(error: &anyhow::Error) {
    if !VERBOSE.load(Ordering::Relaxed) {
        return;
    }
    let cause = error.chain().find_map(|cause| cause.downcast_ref::<sheaf_bpf::Error>());
    if let Some(log) = cause.and_then(sheaf_bpf::Error::log) {
        crate::output::warn(log.trim_end());
    }
}
