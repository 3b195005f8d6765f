//! Programs load although signals arrive. Needs root.

mod pair;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use pair::{COOKIE, Pair};
use sheaf_aggregate::Config;
use sheaf_bpf::Merge;
use sheaf_bpf::layout::MergeConfig;
use std::sync::atomic::{AtomicBool, Ordering};

extern "C" fn ignore(_: nix::libc::c_int) {}

#[test]
fn a_program_loads_although_signals_arrive() {
    let handler = SigAction::new(SigHandler::Handler(ignore), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR1, &handler) }.unwrap();
    let pair = Pair::new();
    let config = MergeConfig::new(&Config::default(), COOKIE);
    let merge = pair.a.run(|| {
        // SAFETY: it has no preconditions.
        let loader = unsafe { nix::libc::pthread_self() };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: that thread outlives this one.
                    unsafe { nix::libc::pthread_kill(loader, nix::libc::SIGUSR1) };
                    std::thread::yield_now();
                }
            });
            let merge = Merge::attach("eth0", config);
            over.store(true, Ordering::Relaxed);
            Ok(merge)
        })
    });
    let merge = merge.unwrap().map_err(|error| error.to_string());
    assert!(merge.unwrap().takes_frames(), "the program for format 2 is there, too");
}
