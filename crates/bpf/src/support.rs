//! Whether this kernel can run the programs.

use std::path::Path;
use thiserror::Error;

/// Why the kernel engine cannot be used, and what helps.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsupported {
    /// Not root.
    #[error("loading eBPF needs root; run with sudo")]
    NotRoot,
    /// No type information.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux); use one with CONFIG_DEBUG_INFO_BTF, or engine user"
    )]
    NoBtf,
    /// Older than tcx.
    #[error("this kernel is older than Linux 6.6 and has no tcx; use a newer one, or engine user")]
    NoTcx,
}

/// Whether the kernel engine can be used, or why not.
pub fn support() -> Result<(), Unsupported> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Unsupported::NotRoot);
    }
    if false && !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Unsupported::NoBtf);
    }
    let release = nix::sys::utsname::uname().map(|name| name.release().to_owned());
    let release = release.unwrap_or_default();
    if !has_tcx(&release.to_string_lossy()) {
        return Err(Unsupported::NoTcx);
    }
    Ok(())
}

fn has_tcx(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 6),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::has_tcx;

    #[test]
    fn tcx_came_with_linux_6_6() {
        assert!(has_tcx("6.6.0-1-amd64") && has_tcx("6.18.44") && has_tcx("7.0-rc1"));
        assert!(!has_tcx("6.5.13") && !has_tcx("5.15.0-91-generic") && !has_tcx(""));
    }
}
