//! Our frames as Wireshark shows them with `docs/sheaf.lua`.

use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use sheaf_wire::ecn::Ecn;
use sheaf_wire::ip::example_udp;
use sheaf_wire::meta::{HOP_LIMIT_NEIGHBOUR, Outer, Repr};
use sheaf_wire::{ethernet, group};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The payload behind the outer header of a packet from one end to the other.
fn carried(payload: &[u8]) -> Vec<u8> {
    let outer = Outer::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    let repr = Repr { outer, dscp: 46, ecn: Ecn::NotEct, hop_limit: HOP_LIMIT_NEIGHBOUR };
    let mut packet = vec![0; repr.header_len()];
    packet.extend_from_slice(payload);
    let len = packet.len();
    repr.emit(len, &mut packet);
    packet
}

/// The files of a folder of the corpus.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Writes packets to a capture and returns these fields of each, joined by commas, as tshark shows
/// them. `None`: there is no tshark here.
fn dissected(name: &str, packets: &[Vec<u8>], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    dissected_on(DataLink::RAW, name, packets, fields)
}

/// The same of what has this link layer.
fn dissected_on(
    datalink: DataLink,
    name: &str,
    packets: &[Vec<u8>],
    fields: &[&str],
) -> Option<Vec<Vec<String>>> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let header = PcapHeader { datalink, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(fs::File::create(&file).unwrap(), header).unwrap();
    for packet in packets {
        let len = packet.len() as u32;
        writer.write_packet(&PcapPacket::new(Duration::ZERO, len, packet)).unwrap();
    }
    drop(writer);
    let mut tshark = Command::new("tshark");
    let script = root().join("docs/sheaf.lua");
    tshark.arg("-X").arg(format!("lua_script:{}", script.display())).arg("-r").arg(&file);
    tshark.args(["-T", "fields", "-E", "separator=;"]);
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    let Ok(output) = tshark.output() else {
        eprintln!("skipped: there is no tshark here; install it");
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| line.split(';').map(str::to_owned).collect()).collect())
}

#[test]
fn every_block_of_a_conversation_is_shown() {
    let frames = corpus("frames");
    let packets: Vec<_> = frames.iter().map(|payload| carried(payload)).collect();
    let fields =
        ["sheaf.format", "sheaf.sequence", "sheaf.packets", "sheaf.rest", "_ws.expert.message"];
    let Some(lines) = dissected("conversation.pcap", &packets, &fields) else { return };
    assert_eq!(lines.len(), frames.len());
    let mut total = 0;
    for (line, frame) in lines.iter().zip(&frames) {
        let [format, sequence, packets, rest, fault] = &line[..] else { panic!("{line:?}") };
        assert_eq!((&format[..], sequence), ("2", &frame[1].to_string()));
        assert_eq!((&rest[..], &fault[..]), ("", ""), "frame {sequence}");
        total += packets.parse::<u32>().unwrap();
    }
    assert_eq!(total, 24 * 6, "all packets of six calls, those that were cut, too");
}

#[test]
fn frames_without_a_header_of_ip_are_shown_and_their_padding_is_no_item() {
    let (here, there) = ([2, 0, 0, 0, 9, 1], [2, 0, 0, 0, 9, 2]);
    let on_link = |from, to, payload: &[u8]| {
        let mut frame = ethernet::header(from, to, ethernet::FRAMES).to_vec();
        frame.extend_from_slice(payload);
        // As Ethernet pads it.
        frame.resize(frame.len().max(60), 0);
        frame
    };
    let frames = corpus("frames");
    let mut packets: Vec<_> = frames.iter().map(|payload| on_link(here, there, payload)).collect();
    packets.extend(corpus("feedback").iter().map(|payload| on_link(there, here, payload)));
    let fields = [
        "sheaf.format",
        "sheaf.packets",
        "sheaf.feedback.kind",
        "sheaf.rest",
        "_ws.expert.message",
    ];
    let lines = dissected_on(DataLink::ETHERNET, "link.pcap", &packets, &fields);
    let Some(lines) = lines else { return };
    assert!(lines.iter().all(|line| line[0] == "2" && line[3].is_empty()), "{lines:?}");
    assert!(lines.iter().all(|line| line[4].is_empty()), "{lines:?}");
    let total: u32 = lines[..frames.len()].iter().map(|line| line[1].parse::<u32>().unwrap()).sum();
    assert_eq!(total, 24 * 6, "contexts are known by the stations");
    assert_eq!(lines[lines.len() - 1][2], "2,2,3", "unknown, unknown, lost");
}

#[test]
fn a_frame_to_a_group_shows_the_packets_to_it() {
    let group = |source: &str, to: &str, mac: [u8; 6]| {
        let outer = Outer::new(source.parse().unwrap(), to.parse().unwrap()).unwrap();
        let hop_limit = HOP_LIMIT_NEIGHBOUR;
        let repr = Repr { outer, dscp: 0, ecn: Ecn::NotEct, hop_limit };
        let mut packet = vec![0; repr.header_len()];
        packet.extend(group::HEADER.emit());
        packet.extend([example_udp(&[1; 20]), example_udp(&[2; 30])].concat());
        let len = packet.len();
        repr.emit(len, &mut packet);
        let kind = ethernet::of_ip(&packet);
        [&ethernet::header([2, 0, 0, 0, 9, 1], mac, kind)[..], &packet].concat()
    };
    let packets = [
        group("10.0.0.1", "239.1.2.3", [1, 0, 0x5e, 1, 2, 3]),
        group("fe80::1", "ff15::114", [0x33, 0x33, 0, 0, 1, 0x14]),
    ];
    let fields = ["sheaf.format", "sheaf.tag", "sheaf.packets", "udp.length"];
    let lines = dissected_on(DataLink::ETHERNET, "group.pcap", &packets, &fields);
    let Some(lines) = lines else { return };
    for line in lines {
        assert_eq!(line, ["2", "0", "2", "28,38"].map(str::to_owned));
    }
}

#[test]
fn contexts_compressed_packets_and_messages_have_their_fields() {
    let mut packets: Vec<_> = corpus("frames").iter().map(|payload| carried(payload)).collect();
    let frames = packets.len();
    packets.extend(corpus("feedback").iter().map(|payload| carried(payload)));
    let fields = [
        "sheaf.context",
        "sheaf.definition.stride",
        "sheaf.compressed.counter",
        "sheaf.cut.len",
        "sheaf.feedback.kind",
        "udp.srcport",
    ];
    let Some(lines) = dissected("fields.pcap", &packets, &fields) else { return };
    let of = |line: usize, field: usize| &lines[line][field][..];
    assert_eq!((of(0, 3), of(0, 5)), ("80", "4000,4001,4002,4003,4004"), "a frame that is full");
    let strides = (0..frames).filter(|line| of(*line, 1).contains("160")).count();
    assert!(strides >= 1, "definitions have their stride");
    assert_eq!((of(frames - 1, 0), of(frames - 1, 2)), ("0,1,2,3,4,5", "23,23,23,23,23,23"));
    assert_eq!(of(lines.len() - 1, 4), "2,2,3", "unknown, unknown, lost");
}

#[test]
fn a_packet_of_an_undefined_context_and_a_wrong_block_are_said_to_be_so() {
    let compact = [&[0, 0, 0, 0, 0xc0, 0x40, 1, 2][..], &[5; 20]].concat();
    let wrong = [&[0, 1, 0, 0][..], &example_udp(&[1; 4]), &[0x71; 9]].concat();
    let packets = [carried(&compact), carried(&wrong)];
    let fields = ["sheaf.packets", "sheaf.rest", "_ws.expert.message"];
    let Some(lines) = dissected("faults.pcap", &packets, &fields) else { return };
    assert_eq!(lines[0][0], "0");
    assert!(lines[0][2].contains("does not define"), "{lines:?}");
    assert_eq!((&lines[1][0][..], lines[1][1].len()), ("1", 18));
    assert!(lines[1][2].contains("No block"), "{lines:?}");
}

#[test]
fn a_meta_packet_of_format_1_shows_its_inner_packets() {
    let inner = [example_udp(&[1; 20]), example_udp(&[2; 30])].concat();
    let fields = ["sheaf.format", "sheaf.packets", "udp.length"];
    let Some(lines) = dissected("meta.pcap", &[carried(&inner)], &fields) else { return };
    assert_eq!(lines, [["1", "2", "28,38"].map(str::to_owned)]);
}
