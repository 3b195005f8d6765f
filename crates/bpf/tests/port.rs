//! Two trunks on one UDP port: the program and `wire` agree on tags. Needs root.

use nix::libc;
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use sheaf_bpf::{Port, Slot};
use sheaf_netio::batch::Inbox;
use sheaf_netio::carrier::Carrier;
use sheaf_netio::ip;
use sheaf_netio::poller::Poller;
use sheaf_wire::trunk::sealed::{self, INITIATION_LEN};
use std::net::{SocketAddr, UdpSocket};

/// Initiations that each trunk is sent.
const INITIATIONS: usize = 1000;

/// Gives this thread a network and a BPF file system of its own.
fn isolate() {
    let mount = |from: &std::ffi::CStr, to: &std::ffi::CStr, kind: &std::ffi::CStr, flags| {
        let none = std::ptr::null();
        // SAFETY: all are strings that end with a zero, and no data belong to them.
        let result = unsafe { libc::mount(from.as_ptr(), to.as_ptr(), kind.as_ptr(), flags, none) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    };
    // SAFETY: the call takes flags only.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET) }, 0);
    mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE);
    mount(c"bpf", c"/sys/fs/bpf", c"bpf", 0);
    ip::run("link set lo up").unwrap();
}

/// A trunk of the port.
fn join(local: SocketAddr, slot: &Slot, tags: [u64; 2]) -> (Port, Carrier) {
    let mut port = Port::open(local, None, slot, tags).unwrap();
    let carrier = Carrier::udp_prepared(local, None, |socket| port.prepare(socket)).unwrap();
    port.take(&carrier).unwrap();
    (port, carrier)
}

#[test]
fn each_trunk_of_a_port_gets_what_is_for_its_slot_or_has_its_tag() {
    std::thread::spawn(|| {
        isolate();
        let local: SocketAddr = "127.0.0.1:7431".parse().unwrap();
        let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
        let slots = [Slot::claim().unwrap(), Slot::claim().unwrap()];
        assert_eq!([slots[0].number(), slots[1].number()], [0, 1]);
        let tags = [0; 2].map(|_| [rng.next_u64(), rng.next_u64()]);
        let trunks = [0, 1].map(|one: usize| join(local, &slots[one], tags[one]));
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (mut inbox, mut sent) = (Inbox::new(), Vec::new());
        let mut arrives = |one: usize, sent: &[u8]| {
            from.send_to(sent, local).unwrap();
            let mut poller = Poller::default();
            poller.add(&trunks[one].1);
            poller.wait(None).unwrap();
            let mut got = Vec::new();
            inbox.receive(&trunks[one].1, |_, frame, _| got.extend_from_slice(frame)).unwrap();
            assert_eq!(got, sent);
        };
        for _ in 0..INITIATIONS {
            for one in [0, 1] {
                let mut message = [0; INITIATION_LEN - 4];
                rng.fill_bytes(&mut message);
                sealed::initiation(sealed::tag(&tags[one], &message), &message, &mut sent);
                arrives(one, &sent);
                let index = sealed::index_in(slots[one].number(), rng.next_u32());
                let mut sealed = sealed::header(index, 0).to_vec();
                sealed.extend([0; 60]);
                arrives(one, &sealed);
            }
        }
        drop((trunks, slots));
        let left = std::fs::read_dir("/sys/fs/bpf/sheaf").unwrap().count();
        assert_eq!(left, 0, "the last trunk leaves nothing behind");
    })
    .join()
    .unwrap();
}
