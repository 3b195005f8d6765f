//! The file with a trunk's key.

use anyhow::{Context, bail, ensure};
use sheaf_netio::random;
use sheaf_trunk::Key;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;

/// Bits of a file's mode that give rights to others than its owner.
const OTHERS: u32 = 0o077;
/// Bits of a file's mode that are rights; the others are its type.
const RIGHTS: u32 = 0o7777;
/// Most bytes of a file that are read: a key has 64, and another file must not fill the memory.
const LONGEST: u64 = 4096;

/// Reads the key in `path`, which nobody but its owner may read.
pub fn load(path: &Path) -> anyhow::Result<Key> {
    let shown = path.display();
    let file = File::open(path).with_context(|| {
        format!("cannot open key {shown}; make it by sheaf trunk key > {shown}")
    })?;
    let about = file.metadata().with_context(|| format!("cannot look at key {shown}"))?;
    ensure!(about.is_file(), "key {shown} is not a file; give a file");
    let mode = about.mode() & RIGHTS;
    if mode & OTHERS != 0 {
        bail!("others can read key {shown} (mode {mode:04o}); run chmod 600 {shown}");
    }
    let mut text = Zeroizing::new(String::new());
    let read = file.take(LONGEST).read_to_string(&mut text);
    read.with_context(|| format!("cannot read key {shown}"))?;
    Key::parse(&text).with_context(|| format!("key {shown} cannot be used"))
}

/// Makes a new random key.
pub fn make() -> anyhow::Result<Key> {
    Ok(Key::new(random::unguessable().context("the kernel gives no random numbers")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_read_from_a_file_of_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trunk.key");
        let key = make().unwrap();
        write(&path, format!("{}\n", key.to_text().as_str())).unwrap();
        for (mode, is_read) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(load(&path).is_ok(), is_read, "{mode:o}");
        }
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("mode 0604") && error.contains("chmod 600"), "{error}");
        assert_ne!(make().unwrap(), key);
    }

    #[test]
    fn a_file_that_is_no_key_is_refused_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trunk.key");
        let said = |path: &Path| format!("{:#}", load(path).unwrap_err());
        assert!(said(&path).contains("make it by sheaf trunk key"));
        write(&path, "password").unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(said(&path).contains("64 hexadecimal digits"));
        assert!(said(folder.path()).contains("give a file"));
    }
}
