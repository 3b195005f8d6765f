//! A link from an aggregator to a splitter, and the packets of calls.

use sheaf_aggregate::{
    Aggregator, Config, Device, Format, Frame, Hop, HopId, Inner, Outbound, Refused, Split,
    Splitter, Threshold,
};
use sheaf_stage::{Instant, Stage};
use sheaf_wire::checksum;
use sheaf_wire::compress::feedback::Feedback;
use sheaf_wire::ip::{Ip, Protocol};
use sheaf_wire::meta::Outer;

pub const OUTER: Outer = Outer::V4 {
    src: std::net::Ipv4Addr::new(10, 0, 0, 1),
    dst: std::net::Ipv4Addr::new(10, 0, 0, 2),
};

/// Of frames without a header of IP.
pub const STATIONS: Outer = Outer::Link { src: [2, 0, 0, 0, 9, 1], dst: [2, 0, 0, 0, 9, 2] };

pub const BUSY: Device = Device::Reports { waiting: 2, limit: 50 };

pub const READY: Device = Device::Reports { waiting: 0, limit: 50 };

/// Bytes of the outer header and that of the frame.
pub const HEADERS: usize = 24;

pub const EF: u8 = 46;

pub const SECRET: u64 = 0x005e_c2e7;

/// A voice packet: RTP with the time stamp of `offset`, and the flow's number in the source port.
pub fn rtp(flow: u16, sequence: u16, offset: u32, len: usize, dscp: u8) -> Vec<u8> {
    let mut datagram = vec![0x80, 18];
    datagram.extend_from_slice(&sequence.to_be_bytes());
    let timestamp = offset.wrapping_add(160 * u32::from(sequence));
    datagram.extend_from_slice(&timestamp.to_be_bytes());
    datagram.extend_from_slice(&[0xca, 0xfe, 0, flow as u8]);
    datagram.extend((0..len).map(|byte| (byte as u16 * 5).wrapping_add(sequence ^ flow) as u8));
    let mut packet = Vec::new();
    etherparse::PacketBuilder::ipv4([10, 1, 0, 1], [10, 1, 0, 2], 63)
        .udp(4000 + flow, 5004)
        .write(&mut packet, &datagram)
        .unwrap();
    packet[1] = dscp << 2;
    packet[4..6].copy_from_slice(&sequence.wrapping_mul(1).wrapping_add(flow).to_be_bytes());
    reseal(&mut packet);
    packet
}

pub fn voice(flow: u16, sequence: u16) -> Vec<u8> {
    rtp(flow, sequence, 5_000, 20, EF)
}

pub fn reseal(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let checksum = checksum::ipv4_header(&packet[..20]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

pub fn flow(packet: &[u8]) -> u16 {
    Ip::parse(packet).unwrap().ports().unwrap().0
}

/// Whether a frame is a packet as it was.
pub fn is_alone(frame: &[u8]) -> bool {
    frame[0] >> 4 != 0 && Ip::parse(frame).unwrap().protocol() != Protocol::META
}

/// Hands a frame to the splitter, as one of [`STATIONS`] where it has no header of IP.
pub fn take_apart(
    splitter: &mut Splitter,
    frame: &[u8],
    deliver: impl FnMut(Inner<'_>),
) -> Result<Split, Refused> {
    match frame[0] >> 4 {
        0 => splitter.split_link(STATIONS, frame, deliver),
        _ => splitter.split(&mut frame.to_vec(), deliver),
    }
}

/// An aggregator whose device is busy, and the splitter at the other end.
pub struct Link {
    pub aggregator: Aggregator,
    pub hop: HopId,
    pub splitter: Splitter,
    pub now: Instant,
    pub out: Vec<Vec<u8>>,
}

impl Link {
    pub fn new(format: Format, config: Config) -> Link {
        Link::behind(OUTER, format, config)
    }

    pub fn behind(outer: Outer, format: Format, config: Config) -> Link {
        let mut aggregator = Aggregator::new(config).unwrap();
        let hop = aggregator.add_hop(Hop { format, ..Hop::neighbour(outer) });
        aggregator.set_device(BUSY, Instant::ZERO);
        let splitter = Splitter::accepting_any().with_frames(SECRET);
        Link { aggregator, hop, splitter, now: Instant::ZERO, out: Vec::new() }
    }

    pub fn compressed() -> Link {
        Link::new(Format::Compressed, Config { queue_frames: 256, ..Config::default() })
    }

    /// Takes a packet, and returns the frames that the busy device is given all the same.
    pub fn send(&mut self, packet: Vec<u8>) -> Vec<Frame> {
        self.aggregator
            .enqueue(Outbound { hop: self.hop, mark: 0, packet }, self.now)
            .expect("a packet");
        self.drain()
    }

    pub fn drain(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.aggregator.dequeue(self.now)).collect()
    }

    /// All frames that wait.
    pub fn flush(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while self.aggregator.held() > 0 {
            self.aggregator.set_device(READY, self.now);
            frames.extend(self.drain());
            self.now += Config::default().hold;
            frames.extend(self.drain());
        }
        self.aggregator.set_device(BUSY, self.now);
        frames
    }

    /// The other end receives a frame; returns what it says.
    pub fn receive(&mut self, frame: &[u8]) -> Result<Feedback, Refused> {
        if is_alone(frame) {
            self.out.push(frame.to_vec());
            return Ok(Feedback::default());
        }
        let out = &mut self.out;
        match take_apart(&mut self.splitter, frame, |inner| out.push(inner.bytes.to_vec()))? {
            Split::Delivered(feedback) => Ok(feedback),
            Split::Heard(_) => panic!("the aggregator sends no feedback"),
        }
    }

    /// Passes frames on, and what the other end says back.
    pub fn exchange(&mut self, frames: Vec<Frame>) {
        for frame in frames {
            let feedback = self.receive(&frame.bytes).expect("no damage");
            self.aggregator.said(self.hop, &feedback, self.now);
        }
    }

    pub fn pass(&mut self, packet: Vec<u8>) {
        let frames = self.send(packet);
        self.exchange(frames);
    }

    pub fn finish(&mut self) {
        let frames = self.flush();
        self.exchange(frames);
    }

    /// Lets the contexts of these flows be known: three packets of each, in one frame each time.
    pub fn learn(&mut self, flows: std::ops::Range<u16>) {
        for sequence in 0..3 {
            flows.clone().for_each(|flow| self.pass(voice(flow, sequence)));
            self.finish();
        }
    }
}

pub fn link(format: Format, max: u16) -> Link {
    link_behind(OUTER, format, max)
}

pub fn link_behind(outer: Outer, format: Format, max: u16) -> Link {
    let min = Threshold::Percent(0);
    Link::behind(outer, format, Config { max, min, queue_frames: 256, ..Config::default() })
}
