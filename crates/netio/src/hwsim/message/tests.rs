use super::*;
use sheaf_fuzz::Fuzzer;

const FAMILY: u16 = 0x21;
const RADIO: [u8; 6] = [0x42, 0, 0, 0, 1, 0];
/// Attributes of a frame in the order in which the driver writes them, on a little-endian machine:
/// the transmitter, four bytes of a frame, no acknowledgement wanted and a status asked for, 2412
/// MHz, two attempts with rate 3 and one with rate 0, both of the band's table, and cookie 258.
#[cfg(target_endian = "little")]
#[rustfmt::skip]
const SENT: &[u8] = &[
    10, 0, 2, 0, 0x42, 0, 0, 0, 1, 0, 0, 0,
    8, 0, 3, 0, 0x80, 0, 0xaa, 0xbb,
    8, 0, 4, 0, 3, 0, 0, 0,
    8, 0, 19, 0, 0x6c, 0x09, 0, 0,
    12, 0, 7, 0, 3, 2, 0, 1, 0xff, 0, 0xff, 0,
    16, 0, 21, 0, 3, 0, 0, 0, 0, 0, 0xff, 0, 0, 0xff, 0, 0,
    12, 0, 8, 0, 2, 1, 0, 0, 0, 0, 0, 0,
];

/// A message of the family with these attributes.
fn message(command: u8, attributes: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes, FAMILY, command, 5, |bytes| bytes.extend(attributes));
    bytes
}

fn address(kind: u16, address: [u8; 6]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, kind, &address);
    bytes
}

#[cfg(target_endian = "little")]
#[test]
fn a_frame_of_the_driver_is_read_as_it_was_written() {
    let expected = Frame {
        radio: RADIO,
        bytes: &[0x80, 0, 0xaa, 0xbb],
        no_ack: true,
        frequency: Some(2412),
        cookie: 258,
        rates: [
            Attempt { index: 3, count: 2 },
            Attempt { index: 0, count: 1 },
            Attempt::NONE,
            Attempt::NONE,
        ],
        is_mcs: false,
    };
    let whole = message(command::FRAME, SENT);
    let read: Vec<_> = Reports::of(FAMILY, &whole).collect();
    assert_eq!(read, [Notice::Frame(expected)]);
    // The flag of an MCS, in the first entry of the flags of rates.
    let mut ht = SENT.to_vec();
    ht[12 + 8 + 8 + 8 + 12 + 4 + 1] = 8;
    let whole = message(command::FRAME, &ht);
    let read = Reports::of(FAMILY, &whole).next();
    assert!(matches!(read, Some(Notice::Frame(Frame { is_mcs: true, .. }))), "{read:?}");
    // Kernels before 4.0 have no frequency, and no flags of rates.
    let old = [&SENT[..28], &SENT[36..48], &SENT[64..]].concat();
    let whole = message(command::FRAME, &old);
    let read = Reports::of(FAMILY, &whole).next();
    assert_eq!(read, Some(Notice::Frame(Frame { frequency: None, ..expected })));
}

#[cfg(target_endian = "little")]
#[test]
fn a_delivery_and_a_status_have_the_bytes_that_the_driver_reads() {
    let mut bytes = Vec::new();
    let delivery =
        Delivery { radio: RADIO, bytes: &[8, 1, 2], rate: 3, signal: -50, frequency: Some(2412) };
    encode_delivery(&mut bytes, FAMILY, 9, &delivery);
    #[rustfmt::skip]
    let expected: &[u8] = &[
        64, 0, 0, 0, 0x21, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0,
        2, 1, 0, 0,
        10, 0, 1, 0, 0x42, 0, 0, 0, 1, 0, 0, 0,
        7, 0, 3, 0, 8, 1, 2, 0,
        8, 0, 5, 0, 3, 0, 0, 0,
        8, 0, 6, 0, 0xce, 0xff, 0xff, 0xff,
        8, 0, 19, 0, 0x6c, 0x09, 0, 0,
    ];
    assert_eq!(bytes, expected);
    let status = TransmitStatus {
        radio: RADIO,
        cookie: 258,
        no_ack: false,
        acked: true,
        rates: [Attempt { index: 3, count: 7 }, Attempt::NONE, Attempt::NONE, Attempt::NONE],
        signal: -50,
    };
    encode_status(&mut bytes, FAMILY, 10, &status);
    #[rustfmt::skip]
    let expected: &[u8] = &[
        72, 0, 0, 0, 0x21, 0, 1, 0, 10, 0, 0, 0, 0, 0, 0, 0,
        3, 1, 0, 0,
        10, 0, 2, 0, 0x42, 0, 0, 0, 1, 0, 0, 0,
        8, 0, 4, 0, 4, 0, 0, 0,
        8, 0, 6, 0, 0xce, 0xff, 0xff, 0xff,
        12, 0, 7, 0, 3, 7, 0xff, 0, 0xff, 0, 0xff, 0,
        12, 0, 8, 0, 2, 1, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(bytes, expected);
}

#[test]
fn addresses_of_interfaces_come_and_go() {
    let both = [address(2, RADIO), address(1, [2; 6])].concat();
    let datagram = [message(7, &both), message(8, &both)].concat();
    let read: Vec<_> = Reports::of(FAMILY, &datagram).collect();
    let (radio, address) = (RADIO, [2; 6]);
    let added = Notice::AddressAdded { radio, address };
    assert_eq!(read, [added, Notice::AddressRemoved { radio, address }]);
}

#[test]
fn a_refusal_has_the_number_of_what_was_refused_and_a_success_is_not_one() {
    let reply = |code: i32, sequence| {
        let mut bytes = Vec::new();
        encode(&mut bytes, libc::NLMSG_ERROR as u16, 0, sequence, |_| {});
        bytes[NETLINK_HEAD..].copy_from_slice(&code.to_ne_bytes());
        bytes
    };
    let datagram = [reply(0, 4), reply(-libc::EINVAL, 77)].concat();
    let read: Vec<_> = Reports::of(FAMILY, &datagram).collect();
    assert_eq!(read, [Notice::Refused { sequence: 77 }]);
}

#[test]
fn messages_of_other_families_and_commands_and_incomplete_ones_are_passed_over() {
    let good = [address(2, RADIO), address(1, [2; 6])].concat();
    let mut strange = message(7, &good);
    strange[4] = 0x22;
    let datagram =
        [strange, message(4, &good), message(7, &address(2, RADIO)), message(7, &good)].concat();
    assert_eq!(Reports::of(FAMILY, &datagram).count(), 1);
    assert_eq!(Reports::of(FAMILY, &datagram[..datagram.len() - 1]).count(), 0, "cut off");
}

#[test]
fn damaged_datagrams_are_read_to_their_end_without_harm() {
    let (mut delivery, mut status) = (Vec::new(), Vec::new());
    let frame =
        Delivery { radio: RADIO, bytes: &[8; 40], rate: 0, signal: -80, frequency: Some(5180) };
    encode_delivery(&mut delivery, FAMILY, 1, &frame);
    let rates = [Attempt { index: 1, count: 1 }; RATES];
    let ended =
        TransmitStatus { radio: RADIO, cookie: 3, no_ack: false, acked: true, rates, signal: 0 };
    encode_status(&mut status, FAMILY, 2, &ended);
    // What is sent has the attributes of what comes, save for the command and one address.
    let both = [address(2, RADIO), address(1, [2; 6])].concat();
    let sent = [&delivery[20..], &status[20..]].concat();
    let corpus = vec![
        [message(2, &sent), message(7, &both)].concat(),
        message(8, &both),
        [delivery, status].concat(),
    ];
    let mut fuzzer = Fuzzer::over(corpus, 20_000);
    let (mut bytes, mut read) = (Vec::new(), 0);
    for _ in 0..fuzzer.rounds() {
        fuzzer.take(&mut bytes);
        let count = Reports::of(FAMILY, &bytes).count();
        assert!(count <= bytes.len() / NETLINK_HEAD, "{count} messages in {} bytes", bytes.len());
        read += count;
    }
    assert!(read > 0);
}
