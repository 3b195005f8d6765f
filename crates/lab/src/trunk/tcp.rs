//! TCP under a virtual clock: smoltcp's, with bulk senders or receivers on it.

use sheaf_stage::{Duration, Instant};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};
use smoltcp::time::Instant as SmolInstant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpEndpoint};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Port of the first flow's receiver; the others follow.
pub const PORT: u16 = 5001;
/// Port of the first flow's sender.
const FROM_PORT: u16 = 40_001;
/// Bytes of each socket's buffers, as Linux lets them grow: no window limits what the links carry.
const BUFFER: usize = 4 << 20;

/// A host with TCP sockets that all send, or all receive, as much as they can.
pub struct Tcp {
    interface: Interface,
    wire: Wire,
    sockets: SocketSet<'static>,
    handles: Vec<SocketHandle>,
    sends: bool,
    due: Option<Instant>,
}

/// Packets that came and packets to send.
#[derive(Default)]
struct Wire {
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
}

impl Tcp {
    /// A host at `address` with `flows` connections to `peer`, on which it sends.
    pub fn sender(address: Ipv4Addr, peer: Ipv4Addr, flows: u16, seed: u64) -> Tcp {
        let mut host = Tcp::new(address, flows, seed, true);
        for (flow, handle) in (0..flows).zip(&host.handles) {
            let socket = host.sockets.get_mut::<Socket>(*handle);
            let remote = IpEndpoint::new(IpAddress::Ipv4(peer), PORT + flow);
            let context = host.interface.context();
            socket.connect(context, remote, FROM_PORT + flow).expect("a fresh socket connects");
        }
        host
    }

    /// A host at `address` that receives on `flows` ports.
    pub fn receiver(address: Ipv4Addr, flows: u16, seed: u64) -> Tcp {
        let mut host = Tcp::new(address, flows, seed, false);
        for (flow, handle) in (0..flows).zip(&host.handles) {
            let socket = host.sockets.get_mut::<Socket>(*handle);
            socket.listen(PORT + flow).expect("a fresh socket listens");
        }
        host
    }

    fn new(address: Ipv4Addr, flows: u16, seed: u64, sends: bool) -> Tcp {
        let mut wire = Wire::default();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut wire, SmolInstant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let address = IpCidr::new(IpAddress::Ipv4(address), 24);
            addresses.push(address).expect("there is room for one address");
        });
        let mut sockets = SocketSet::new(Vec::new());
        let (mine, yours) = if sends { (BUFFER, 4096) } else { (4096, BUFFER) };
        let socket = |_| {
            let buffer = |len| SocketBuffer::new(vec![0; len]);
            let mut socket = Socket::new(buffer(yours), buffer(mine));
            socket.set_congestion_control(CongestionControl::Cubic);
            socket
        };
        let handles = (0..flows).map(|flow| sockets.add(socket(flow))).collect();
        Tcp { interface, wire, sockets, handles, sends, due: Some(Instant::ZERO) }
    }

    /// A packet came.
    pub fn receive(&mut self, packet: Vec<u8>) {
        self.wire.incoming.push_back(packet);
    }

    /// Does what is due; answers the bytes that the applications got.
    pub fn poll(&mut self, now: Instant) -> usize {
        let mut got = 0;
        loop {
            self.interface.poll(smol(now), &mut self.wire, &mut self.sockets);
            let moved = self.applications();
            got += if self.sends { 0 } else { moved };
            if moved == 0 {
                break;
            }
        }
        let due = self.interface.poll_at(smol(now), &self.sockets);
        let due = due.map(|at| Instant::from_micros(at.total_micros().max(0) as u64));
        // smoltcp counts microseconds: what is due in this one waits for the next.
        self.due = due.map(|at| at.max(now + Duration::from_micros(1)));
        got
    }

    /// Fills or empties every socket; answers how many bytes that moved.
    fn applications(&mut self) -> usize {
        let mut moved = 0;
        for handle in &self.handles {
            let socket = self.sockets.get_mut::<Socket>(*handle);
            if self.sends && socket.can_send() {
                // What is in the buffer does not matter, only that it is full.
                moved += socket.send(|buffer| (buffer.len(), buffer.len())).unwrap_or(0);
            } else if !self.sends && socket.can_recv() {
                moved += socket.recv(|buffer| (buffer.len(), buffer.len())).unwrap_or(0);
            }
        }
        moved
    }

    /// The next packet to send.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        self.wire.outgoing.pop_front()
    }

    /// When to poll although nothing came; later than the last poll.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.due
    }
}

fn smol(now: Instant) -> SmolInstant {
    SmolInstant::from_micros((now.as_nanos() / 1_000) as i64)
}

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Slot<'a>;

    fn receive(&mut self, _: SmolInstant) -> Option<(Received, Slot<'_>)> {
        let packet = self.incoming.pop_front()?;
        Some((Received(packet), Slot(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: SmolInstant) -> Option<Slot<'_>> {
        Some(Slot(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        // What the medium damages never arrives, and the payload is overwritten with a stamp.
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities
    }
}

/// A packet that came.
struct Received(Vec<u8>);

/// Room for a packet to send.
struct Slot<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl TxToken for Slot<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = vec![0; len];
        let result = write(&mut packet);
        self.0.push_back(packet);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_flows_over_a_delay_end_up_with_as_many_bytes_as_were_acknowledged() {
        let (a, b) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2));
        let mut hosts = [Tcp::sender(a, b, 2, 1), Tcp::receiver(b, 2, 2)];
        let mut way: VecDeque<(Instant, usize, Vec<u8>)> = VecDeque::new();
        let (mut now, mut got, mut packets) = (Instant::ZERO, 0, 0);
        while now < Instant::from_millis(300) {
            while let Some((_, to, packet)) =
                way.front().filter(|way| way.0 <= now).is_some().then(|| way.pop_front()).flatten()
            {
                hosts[to].receive(packet);
            }
            for (from, host) in hosts.iter_mut().enumerate() {
                got += host.poll(now);
                while let Some(packet) = host.transmit() {
                    packets += 1;
                    way.push_back((now + Duration::from_millis(10), 1 - from, packet));
                }
            }
            let deadlines = hosts.iter().filter_map(Tcp::next_deadline);
            now = deadlines.chain(way.front().map(|way| way.0)).min().unwrap();
        }
        assert!(got > 1_000_000, "{got} bytes in {packets} packets");
        assert!(packets < got / 700, "{packets} packets for {got} bytes");
    }
}
