//! Many links in one process: their interfaces, their file, and the memory that they take.

use sheaf_netio::ip;
use std::io::{self, Write};

/// Makes the interfaces of `count` links in this namespace, `aNUMBER` and `bNUMBER` with their
/// other ends `paNUMBER` and `pbNUMBER`, and writes the links to `file`. The first have `options`
/// of their own.
pub fn links(file: &mut impl Write, count: usize, options: &[&str]) -> io::Result<()> {
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
    for number in 0..count {
        for side in ["a", "b"] {
            let dev = format!("{side}{number}");
            ip::run(&format!("link add {dev} type veth peer name p{dev}"))?;
            ip::run(&format!("link set {dev} up"))?;
            ip::run(&format!("link set p{dev} up"))?;
        }
        writeln!(file, "[[link]]\nbetween = [\"a{number}\", \"b{number}\"]")?;
        if let Some(options) = options.get(number) {
            writeln!(file, "options = \"{options}\"")?;
        }
    }
    Ok(())
}

/// Returns the bytes of a process's memory that belong to no file (smaps_rollup in proc(5)). The
/// pages of its program are left out, as their share depends on who else runs it.
pub fn memory(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}
