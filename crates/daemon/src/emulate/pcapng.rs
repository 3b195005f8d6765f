//! Files of the format pcapng, as far as a capture writes them: a section, its interfaces, and
//! packets with a comment (draft-ietf-opsawg-pcapng, sections 4.1 to 4.3).
//!
//! The crate `pcap-file` writes all blocks in both byte orders, which takes 20 KB of a router's
//! binary; tests read with it what is written here.

use std::io::{self, Write};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
/// A reader finds the byte order by it.
const MAGIC: u32 = 0x1a2b_3c4d;
/// Version 1.0, as two numbers of 16 bits.
const VERSION: [u16; 2] = [1, 0];
/// A section whose length is not known.
const UNKNOWN_LENGTH: u64 = u64::MAX;
/// Options: a comment, an interface's name, and its resolution of time.
const COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
/// Time stamps count ten to the power of minus nine: nanoseconds.
const NANOSECONDS: u8 = 9;
/// Bytes of type and lengths around a block.
const AROUND: usize = 12;

/// Kinds of packets (tcpdump.org/linktypes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// Ethernet frames.
    Ethernet = 1,
    /// IP packets.
    Raw = 101,
    /// Frames of 802.11.
    #[cfg(feature = "medium")]
    Ieee80211 = 105,
}

/// A file that is being written, in the byte order of the machine.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    pub fn new(to: W) -> io::Result<Writer<W>> {
        let mut writer = Writer { to, block: Vec::new() };
        writer.block.extend(MAGIC.to_ne_bytes());
        VERSION.iter().for_each(|number| writer.block.extend(number.to_ne_bytes()));
        writer.block.extend(UNKNOWN_LENGTH.to_ne_bytes());
        writer.end(SECTION)?;
        Ok(writer)
    }

    /// Adds an interface; packets name it by its number, the first being 0.
    pub fn interface(&mut self, name: &str, kind: LinkType) -> io::Result<()> {
        /// Two bytes that are reserved, and no limit of packets' lengths.
        const REST: [u8; 6] = [0; 6];
        self.block.extend((kind as u16).to_ne_bytes());
        self.block.extend(REST);
        self.option(IF_NAME, name.as_bytes());
        self.option(IF_TSRESOL, &[NANOSECONDS]);
        self.end_of_options();
        self.end(INTERFACE)
    }

    /// Adds a packet that `interface` saw at `time`, in nanoseconds since 1970.
    pub fn packet(
        &mut self,
        interface: u32,
        time: u64,
        bytes: &[u8],
        comment: &str,
    ) -> io::Result<()> {
        let len = bytes.len() as u32;
        for word in [interface, (time >> 32) as u32, time as u32, len, len] {
            self.block.extend(word.to_ne_bytes());
        }
        self.block.extend(bytes);
        self.pad();
        self.option(COMMENT, comment.as_bytes());
        self.end_of_options();
        self.end(ENHANCED_PACKET)
    }

    /// Hands what waits in buffers to the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    fn option(&mut self, kind: u16, value: &[u8]) {
        // Longer ones do not exist: names have 15 bytes, comments a line.
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.block.extend(kind.to_ne_bytes());
        self.block.extend((value.len() as u16).to_ne_bytes());
        self.block.extend(value);
        self.pad();
    }

    fn end_of_options(&mut self) {
        self.block.extend([0; 4]);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// Writes the block.
    fn end(&mut self, kind: u32) -> io::Result<()> {
        let len = ((self.block.len() + AROUND) as u32).to_ne_bytes();
        self.to.write_all(&kind.to_ne_bytes())?;
        self.to.write_all(&len)?;
        self.to.write_all(&self.block)?;
        self.to.write_all(&len)?;
        self.block.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::DataLink;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
    use pcap_file::pcapng::{Block, PcapNgReader};

    #[test]
    fn what_is_written_is_read_by_another_implementation() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file).unwrap();
        writer.interface("eth0", LinkType::Ethernet).unwrap();
        writer.interface("tun", LinkType::Raw).unwrap();
        let time = 1_800_000_000_123_456_789;
        for (interface, len) in [(0, 60), (1, 61), (1, 0), (0, 1514)] {
            let (bytes, comment) = (vec![len as u8; len], format!("passed {len}"));
            writer.packet(interface, time + len as u64, &bytes, &comment).unwrap();
        }
        writer.flush().unwrap();
        let mut reader = PcapNgReader::new(file.as_slice()).unwrap();
        let (mut names, mut packets) = (Vec::new(), Vec::new());
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::InterfaceDescription(one) => {
                    assert!(one.options.contains(&InterfaceDescriptionOption::IfTsResol(9)));
                    let name = one.options.iter().find_map(|option| match option {
                        InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                        _ => None,
                    });
                    names.push((name.unwrap(), one.linktype));
                }
                Block::EnhancedPacket(one) => {
                    let [EnhancedPacketOption::Comment(comment)] = &one.options[..] else {
                        panic!("{:?}", one.options);
                    };
                    let len = one.data.len();
                    assert_eq!(
                        (one.original_len as usize, &one.data[..]),
                        (len, &vec![len as u8; len][..])
                    );
                    assert_eq!(comment, &format!("passed {len}"));
                    assert_eq!(one.timestamp.as_nanos(), u128::from(time) + len as u128);
                    packets.push((one.interface_id, len));
                }
                other => panic!("{other:?}"),
            }
        }
        let raw = DataLink::RAW;
        assert_eq!(names, [("eth0".to_owned(), DataLink::ETHERNET), ("tun".to_owned(), raw)]);
        assert_eq!(packets, [(0, 60), (1, 61), (1, 0), (0, 1514)]);
    }
}
