//! The files of the OpenWrt package under the shell of OpenWrt, which is busybox's, with
//! `openwrt/stub.sh` in the place of procd, netifd and UCI. Needs root and busybox.

use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/openwrt/files")
}

/// A router with its file of UCI.
struct Router {
    directory: TempDir,
}

impl Router {
    fn new(uci: &str) -> Router {
        let router = Router { directory: TempDir::new().unwrap() };
        router.configure(uci);
        router
    }

    fn configure(&self, uci: &str) {
        fs::write(self.directory.path().join("sheaf"), uci).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("sheaf.toml")
    }

    /// A shell that has read the stubs and `name` and runs `script`.
    fn shell(&self, name: &str, script: &str) -> Command {
        let stub = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openwrt/stub.sh");
        let script = format!(". {}; . {}; {script}", stub.display(), files().join(name).display());
        let mut shell = Command::new("busybox");
        shell.args(["ash", "-c", &script]);
        shell.env("CONFIG", self.directory.path()).env("SHEAF", SHEAF).env("FILE", self.file());
        shell.env("INCLUDE_ONLY", "1").env("process", "").env("JSON", "");
        shell
    }

    /// Runs the init script as procd does.
    fn init(&self, function: &str) -> Output {
        run(&mut self.shell("sheaf.init", function))
    }
}

fn run(shell: &mut Command) -> Output {
    shell.output().expect("busybox runs; scripts/setup --tests installs it")
}

fn printed(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.is_empty(), "{said}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn sections_of_uci_become_those_of_the_file_and_the_service_starts_with_it() {
    let router = Router::new(
        "config global\n\
         \toption level 'quiet'\n\
         config aggregate 'mesh'\n\
         \toption dev 'wlan0'\n\
         \tlist peer '10.0.0.2'\n\
         \tlist peer '10.0.0.3'\n\
         \toption match 'proto udp length 256'\n\
         \toption inflight '2'\n\
         config split\n\
         \toption enabled '0'\n\
         \toption dev 'wlan1'\n\
         \tlist peer 'any'\n\
         config emulate\n\
         \toption enabled '1'\n\
         \toption dev 'eth1'\n\
         \toption both 'true'\n\
         \toption pcap '/tmp/a \"b\" \\\\c.pcapng'\n",
    );
    let started = printed(&router.init("start_service"));
    let file = router.file();
    let command = format!("procd command {SHEAF} run -c {}\n", file.display());
    assert!(started.starts_with(&command), "{started}");
    assert!(started.contains("procd env STATE_DIRECTORY=/etc/sheaf\n"), "{started}");
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        "[global]\n\
         level = \"quiet\"\n\
         [[aggregate]]\n\
         dev = \"wlan0\"\n\
         peer = [\"10.0.0.2\", \"10.0.0.3\"]\n\
         match = \"proto udp length 256\"\n\
         inflight = \"2\"\n\
         [[emulate]]\n\
         dev = \"eth1\"\n\
         both = true\n\
         pcap = \"/tmp/a \\\"b\\\" \\\\\\\\c.pcapng\"\n"
    );
    let check = Command::new(SHEAF).arg("check").arg(&file).output().unwrap();
    let sections = printed(&check);
    for section in ["aggregate wlan0: dev wlan0 peer 10.0.0.2 peer 10.0.0.3 ", "emulate eth1: "] {
        assert!(sections.lines().any(|line| line.starts_with(section)), "{sections}");
    }
}

#[test]
fn the_file_that_is_installed_can_be_loaded_as_it_is_and_with_all_switched_on() {
    let installed = fs::read_to_string(files().join("sheaf.config")).unwrap();
    let router = Router::new(&installed);
    printed(&router.init("start_service"));
    assert_eq!(fs::read_to_string(router.file()).unwrap(), "", "nothing runs as installed");
    router.configure(&installed.replace("enabled '0'", "enabled '1'"));
    printed(&router.init("start_service"));
    let check = Command::new(SHEAF).arg("check").arg(router.file()).output().unwrap();
    assert_eq!(printed(&check).lines().count(), installed.matches("config ").count());
}

#[test]
fn a_fault_starts_nothing_is_told_and_leaves_the_file_that_runs() {
    let good = "config window\n\toption dev 'eth0'\n\toption capacity '20mbit'\n";
    let router = Router::new(good);
    printed(&router.init("start_service"));
    let before = fs::read_to_string(router.file()).unwrap();
    router.configure(&good.replace("capacity", "capcity"));
    for function in ["start_service", "reload_service"] {
        let output = router.init(function);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{function}");
        assert!(said.contains(":3: unknown keyword \"capcity\""), "{said}");
    }
    assert_eq!(fs::read_to_string(router.file()).unwrap(), before);
    // A section that Sheaf does not have is left out, and named.
    router.configure(&format!("{good}config windw\n\toption dev 'eth0'\n"));
    let output = router.init("start_service");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("unknown section windw"), "{said}");
    assert_eq!(fs::read_to_string(router.file()).unwrap(), before);
}

#[test]
fn a_trunk_is_an_interface_of_netifd_until_it_is_taken_down() {
    let router = Router::new("");
    let host = Namespace::new().unwrap();
    host.run(|| ip::run("link set lo up")).unwrap();
    let options = "path 127.0.0.1:7500 127.0.0.1:7501\n\
                   path 127.0.0.1:7502 127.0.0.1:7503\n\
                   plain 1\n\
                   scheduler redundant\n\
                   copies match dscp ef\n\
                   ipaddr 10.99.0.1/24\n\
                   ip6addr fd99::1/64\n\
                   gateway 10.99.0.2\n";
    let script = "proto_sheaf_setup wan; proto_sheaf_teardown wan; wait";
    let mut shell = router.shell("sheaf.sh", script);
    shell.env("JSON", options);
    host.enter(&mut shell);
    let command = format!(
        "run wan {SHEAF} trunk sheaf-wan path 127.0.0.1:7500 127.0.0.1:7501 path 127.0.0.1:7502 \
         127.0.0.1:7503 copies match dscp ef plain scheduler redundant"
    );
    assert_eq!(
        printed(&run(&mut shell)).lines().collect::<Vec<_>>(),
        [
            "export STATE_DIRECTORY=/etc/sheaf",
            command.as_str(),
            "interface sheaf-wan 1",
            "address 10.99.0.1 24",
            "address6 fd99::1 64",
            "route 0.0.0.0 0 10.99.0.2",
            "up wan",
            "kill wan",
        ]
    );
    let gone = host.run(|| Ok(ip::index("sheaf-wan").is_err())).unwrap();
    assert!(gone, "its interface goes with the process");
}

#[test]
fn netifd_is_told_every_option_that_a_trunk_takes_from_it() {
    let told = printed(&run(&mut Router::new("").shell("sheaf.sh", "proto_sheaf_init_config")));
    let taken: Vec<_> = told.lines().filter_map(|line| line.strip_prefix("takes ")).collect();
    for option in [
        "path:",
        "link:",
        "key",
        "plain",
        "copies:",
        "loose:",
        "scheduler",
        "mtu",
        "ipaddr:",
        "gateway",
    ] {
        assert!(taken.iter().any(|one| one.starts_with(option)), "{option} of {taken:?}");
    }
}
