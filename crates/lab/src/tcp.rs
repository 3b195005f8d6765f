//! TCP under a virtual clock: a host as a pure machine on IP packets, with bulk senders or
//! receivers.
//!
//! The stack is smoltcp's, with CUBIC (RFC 9438) and fast retransmit (RFC 5681). What differs from
//! Linux: no selective acknowledgements (RFC 2018), so that each round trip repairs one loss; a
//! retransmission timeout of no less than 1 s (RFC 6298), where Linux has 200 ms. Both make it
//! slower than Linux after bursts of losses, and both are the same for all treatments.

use sheaf_stage::{Duration, Instant};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};
use smoltcp::time::Instant as SmolInstant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpEndpoint, Ipv4Packet, TcpPacket};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Port of the first flow's receiver; the others follow.
pub const PORT: u16 = 5001;
/// Port of the first flow's sender; the others follow.
pub const FROM_PORT: u16 = 40_001;
/// Bytes of an IP packet at most.
const MTU: usize = 1500;
/// Bytes of each socket's buffers, as Linux lets them grow: no window limits what links carry.
const BUFFER: usize = 4 << 20;
/// Bytes of the buffers that stay empty.
const UNUSED: usize = 4096;

/// A host with TCP connections on which it sends, or receives, as much as it can.
pub struct Host {
    interface: Interface,
    wire: Wire,
    sockets: SocketSet<'static>,
    handles: Vec<SocketHandle>,
    flows: Vec<Flow>,
    sends: bool,
    due: Option<Instant>,
}

/// Progress of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Receiver: bytes that the application got, in order. Sender: bytes that were acknowledged.
    pub bytes: u64,
    /// Arrival of the last of them.
    pub last: Option<Instant>,
    /// Sender: segments with data that were sent more than once.
    pub repeats: u64,
    /// Sender: time of the first of them.
    pub first_repeat: Option<Instant>,
    /// Sender: ends of the data sent so far and of the data acknowledged, as sequence numbers.
    edges: Option<(u32, u32)>,
}

impl Flow {
    /// Sender: bytes that were sent and not yet acknowledged.
    pub fn in_flight(&self) -> u32 {
        self.edges.map_or(0, |(sent, acknowledged)| sent.wrapping_sub(acknowledged))
    }

    /// A segment leaves.
    fn sent(&mut self, sequence: u32, len: u32, now: Instant) {
        let end = sequence.wrapping_add(len);
        let (sent, acknowledged) = self.edges.get_or_insert((end, end));
        if after(end, *sent) {
            *sent = end;
        } else if len > 0 && after(*sent, sequence) && after(end, *acknowledged) {
            self.repeats += 1;
            self.first_repeat.get_or_insert(now);
        }
    }

    /// An acknowledgement arrived.
    fn acknowledged(&mut self, number: u32, now: Instant) {
        let Some((_, acknowledged)) = &mut self.edges else { return };
        if after(number, *acknowledged) {
            self.bytes += u64::from(number.wrapping_sub(*acknowledged));
            self.last = Some(now);
            *acknowledged = number;
        }
    }
}

/// Whether sequence number `one` is beyond `other` (RFC 9293, section 3.4).
fn after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

impl Host {
    /// A host at `address` with `flows` connections to `peer`, on which it sends. A connection
    /// begins with the first [`Host::dequeue`].
    pub fn sender(address: Ipv4Addr, peer: Ipv4Addr, flows: u16, seed: u64) -> Host {
        let mut host = Host::new(address, flows, seed, true);
        for (flow, handle) in (0..flows).zip(&host.handles) {
            let socket = host.sockets.get_mut::<Socket>(*handle);
            let remote = IpEndpoint::new(IpAddress::Ipv4(peer), PORT + flow);
            let context = host.interface.context();
            socket.connect(context, remote, FROM_PORT + flow).expect("a fresh socket connects");
        }
        host
    }

    /// A host at `address` that receives `flows` connections.
    pub fn receiver(address: Ipv4Addr, flows: u16, seed: u64) -> Host {
        let mut host = Host::new(address, flows, seed, false);
        for (flow, handle) in (0..flows).zip(&host.handles) {
            let socket = host.sockets.get_mut::<Socket>(*handle);
            socket.listen(PORT + flow).expect("a fresh socket listens");
        }
        host
    }

    fn new(address: Ipv4Addr, flows: u16, seed: u64, sends: bool) -> Host {
        let mut wire = Wire::default();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut wire, SmolInstant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let address = IpCidr::new(IpAddress::Ipv4(address), 24);
            addresses.push(address).expect("there is room for one address");
        });
        let mut sockets = SocketSet::new(Vec::new());
        let (out, back) = if sends { (BUFFER, UNUSED) } else { (UNUSED, BUFFER) };
        let socket = |_| {
            let buffer = |len| SocketBuffer::new(vec![0; len]);
            let mut socket = Socket::new(buffer(back), buffer(out));
            socket.set_congestion_control(CongestionControl::Cubic);
            socket
        };
        let handles: Vec<_> = (0..flows).map(|flow| sockets.add(socket(flow))).collect();
        let flows = vec![Flow::default(); handles.len()];
        Host { interface, wire, sockets, handles, flows, sends, due: Some(Instant::ZERO) }
    }

    /// A packet arrives. Drain the host afterwards: it may have replies to send.
    pub fn enqueue(&mut self, packet: Vec<u8>, now: Instant) {
        if self.sends
            && let Some(seen) = seen(&packet, |segment| segment.dst_port())
            && let (Some(flow), Some(number)) = (self.flows.get_mut(seen.flow), seen.acknowledges)
        {
            flow.acknowledged(number, now);
        }
        self.wire.incoming.push_back(packet);
        self.poll(now);
    }

    /// The next packet that leaves at `now`.
    pub fn dequeue(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.due.is_some_and(|due| due <= now) {
            self.poll(now);
        }
        let packet = self.wire.outgoing.pop_front()?;
        if self.sends
            && let Some(seen) = seen(&packet, |segment| segment.src_port())
            && let Some(flow) = self.flows.get_mut(seen.flow)
        {
            flow.sent(seen.sequence, seen.len, now);
        }
        Some(packet)
    }

    /// Next time at which [`Host::dequeue`] may have a packet by the passing of time alone; later
    /// than the last call.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.due
    }

    /// The connections.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    fn poll(&mut self, now: Instant) {
        loop {
            self.interface.poll(smol(now), &mut self.wire, &mut self.sockets);
            if !self.applications(now) {
                break;
            }
        }
        let due = self.interface.poll_at(smol(now), &self.sockets);
        let due = due.map(|at| Instant::from_micros(at.total_micros().max(0) as u64));
        // smoltcp counts microseconds: work that is due in this one waits for the next.
        self.due = due.map(|at| at.max(now + Duration::from_micros(1)));
    }

    /// Fills or empties every socket. Returns whether that moved any data.
    fn applications(&mut self, now: Instant) -> bool {
        let mut moved = false;
        for (handle, flow) in self.handles.iter().zip(&mut self.flows) {
            let socket = self.sockets.get_mut::<Socket>(*handle);
            if self.sends && socket.can_send() {
                // The content of the buffer does not matter, only that it is full.
                moved |= socket.send(|buffer| (buffer.len(), buffer.len())).unwrap_or(0) > 0;
            } else if !self.sends && socket.can_recv() {
                let got = socket.recv(|buffer| (buffer.len(), buffer.len())).unwrap_or(0);
                if got > 0 {
                    moved = true;
                    flow.bytes += got as u64;
                    flow.last = Some(now);
                }
            }
        }
        moved
    }
}

/// The fields of a segment that its sender accounts for.
struct Seen {
    flow: usize,
    sequence: u32,
    len: u32,
    acknowledges: Option<u32>,
}

/// Reads the TCP segment in `packet`; `port` is the sender's.
fn seen(packet: &[u8], port: fn(&TcpPacket<&[u8]>) -> u16) -> Option<Seen> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let segment = TcpPacket::new_checked(ip.payload()).ok()?;
    Some(Seen {
        flow: usize::from(port(&segment).checked_sub(FROM_PORT)?),
        sequence: segment.seq_number().0 as u32,
        len: segment.segment_len() as u32,
        acknowledges: segment.ack().then(|| segment.ack_number().0 as u32),
    })
}

fn smol(now: Instant) -> SmolInstant {
    SmolInstant::from_micros((now.as_nanos() / 1_000) as i64)
}

/// Packets that arrived and packets to send.
#[derive(Default)]
struct Wire {
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
    /// Buffers of received packets, for new ones.
    spare: Vec<Vec<u8>>,
}

/// Buffers that are kept for new packets.
const SPARE: usize = 256;

impl Device for Wire {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Slot<'a>;

    fn receive(&mut self, _: SmolInstant) -> Option<(Received<'_>, Slot<'_>)> {
        let packet = self.incoming.pop_front()?;
        let slot = Slot { outgoing: &mut self.outgoing, buffer: self.spare.pop() };
        Some((Received { packet, spare: &mut self.spare }, slot))
    }

    fn transmit(&mut self, _: SmolInstant) -> Option<Slot<'_>> {
        Some(Slot { outgoing: &mut self.outgoing, buffer: self.spare.pop() })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        // Simulated links lose packets but damage none, and experiments may stamp the payload.
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities
    }
}

/// A packet that arrived.
struct Received<'a> {
    packet: Vec<u8>,
    spare: &'a mut Vec<Vec<u8>>,
}

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        let result = read(&self.packet);
        if self.spare.len() < SPARE {
            self.spare.push(self.packet);
        }
        result
    }
}

/// Room for a packet to send.
struct Slot<'a> {
    outgoing: &'a mut VecDeque<Vec<u8>>,
    buffer: Option<Vec<u8>>,
}

impl TxToken for Slot<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = self.buffer.unwrap_or_default();
        packet.clear();
        packet.resize(len, 0);
        let result = write(&mut packet);
        self.outgoing.push_back(packet);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(10);

    /// Two hosts with 10 ms between them for 300 ms; `lost` picks the data packets that vanish.
    fn transfer(flows: u16, mut lost: impl FnMut(u64) -> bool) -> [Host; 2] {
        let (a, b) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2));
        let mut hosts = [Host::sender(a, b, flows, 1), Host::receiver(b, flows, 2)];
        let mut way: VecDeque<(Instant, usize, Vec<u8>)> = VecDeque::new();
        let (mut now, mut data) = (Instant::ZERO, 0);
        while now < Instant::from_millis(300) {
            while way.front().is_some_and(|packet| packet.0 <= now) {
                let (_, to, packet) = way.pop_front().expect("there is one in front");
                hosts[to].enqueue(packet, now);
            }
            for (from, host) in hosts.iter_mut().enumerate() {
                while let Some(packet) = host.dequeue(now) {
                    data += u64::from(packet.len() > 1000);
                    if packet.len() <= 1000 || !lost(data) {
                        way.push_back((now + DELAY, 1 - from, packet));
                    }
                }
            }
            let deadlines = hosts.iter().filter_map(Host::next_deadline);
            let next =
                deadlines.chain(way.front().map(|way| way.0)).min().expect("traffic goes on");
            assert!(next > now, "after draining nothing is due");
            now = next;
        }
        hosts
    }

    #[test]
    fn acknowledged_bytes_were_received_and_nothing_is_repeated_without_loss() {
        let [sender, receiver] = transfer(2, |_| false);
        for (sent, got) in sender.flows().iter().zip(receiver.flows()) {
            assert!(got.bytes > 500_000, "{got:?}");
            // The handshake's own sequence number counts at the sender.
            assert!(sent.bytes <= got.bytes + 1, "{sent:?} {got:?}");
            assert!(got.bytes - sent.bytes <= u64::from(sent.in_flight()), "{sent:?} {got:?}");
            assert_eq!((sent.repeats, sent.first_repeat), (0, None));
        }
    }

    #[test]
    fn a_lost_segment_is_repeated_once_and_halts_the_order_only_until_then() {
        let [sender, receiver] = transfer(1, |data| data == 40);
        let (sent, got) = (sender.flows()[0], receiver.flows()[0]);
        assert_eq!(sent.repeats, 1, "{sent:?}");
        let first = sent.first_repeat.unwrap();
        assert!(got.last.unwrap() > first + DELAY && got.bytes > 150_000, "{sent:?} {got:?}");
    }
}
