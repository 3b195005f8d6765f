//! The programs at tc ingress and egress that lower advertised windows.
//!
//! Attached by tcx, they are removed with this value or its process. Attached by clsact, on kernels
//! before Linux 6.6, they stay when the process is killed, until the next start removes them.
//! Either way they lower no window from two seconds after the last [`Window::beat`] on.

use crate::attach::{self, Hook, Link};
use crate::layout::Plain;
use crate::table::Table;
use crate::window_layout::{Control, Pace, RestKey, RestPair, SETTINGS, Setting, Totals};
use crate::{Error, batch};
use aya::Ebpf;
use aya::maps::{Array, Map, MapData, PerCpuArray};
use aya::programs::{SchedClassifier, TestRun, TestRunOptions};
use sheaf_netio::ip;
use sheaf_stage::{Duration, Instant};
use sheaf_window::{Controller, Direction, FlowId, Growth, RestSetting};
use sheaf_wire::ethernet::HEADER_LEN;
use std::hash::{BuildHasher, RandomState};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/window.bpf.deflate"));
const PROGRAMS: [&str; 2] = ["sheaf_in", "sheaf_out"];
const SET: &str = "sheaf_set";
const BACK: &str = "sheaf_back";

/// Size of `struct __sk_buff` (linux/bpf.h).
const CONTEXT: usize = 192;
/// Offset of its field `gso_segs`: packets of a super-packet.
const GSO_SEGS: usize = 164;
/// Offset of its field `gso_size`: bytes of each of them.
const GSO_SIZE: usize = 176;

/// Results of a program that drops its packet, and of one that sends it to an interface:
/// TC_ACT_SHOT, TC_ACT_REDIRECT (linux/pkt_cls.h).
const DROPPED: u32 = 2;
const REDIRECTED: u32 = 7;

/// Time between two heartbeats while nothing changes; each counts for two seconds.
const REST: Duration = Duration::from_millis(500);

/// The programs on one interface.
pub struct Window {
    table: Table,
    rest: Map,
    totals: PerCpuArray<MapData, Plain<Totals>>,
    control: Array<MapData, Plain<Control>>,
    paces: Array<MapData, Plain<Pace>>,
    settings: Control,
    rest_buffer: batch::Buffer<RestKey, RestPair>,
    frame: Vec<u8>,
    /// Totals of each direction before the last step.
    passed: [sheaf_window::Totals; 2],
    /// Steps in a row before which no packet had passed since the one before.
    silent: u32,
    /// Attachments to the interface; empty for programs that only [`Window::run`] runs.
    links: Vec<Link>,
    /// Owner of the programs.
    ebpf: Ebpf,
}

impl Window {
    /// Loads the programs and attaches them to `interface` of this thread's network namespace. They
    /// lower no window before it is [set](Window::set) and the first [beat](Window::beat) has come.
    pub fn attach(interface: &str) -> Result<Window, Error> {
        let mut window = Window::load(ip::link_header(interface)? as u32)?;
        for (name, hook) in PROGRAMS.into_iter().zip([Hook::Ingress, Hook::Egress]) {
            let link = attach::attach(window.program(name)?, name, interface, hook)?;
            window.links.push(link);
        }
        Ok(window)
    }

    /// Has copies of acknowledgements come back by interface `back`, whose other end holds each
    /// frame for [`COPY`](sheaf_window::pace::COPY) and sends it back, to where they came from,
    /// which is `interface`. Without it none come back, and windows are not to be
    /// [paced](Window::set_pace).
    pub fn attach_back(&mut self, interface: &str, back: &str) -> Result<(), Error> {
        let link = attach::attach(self.program(BACK)?, BACK, back, Hook::Ingress)?;
        self.links.push(link);
        (self.settings.back, self.settings.dev) = (ip::index(back)?, ip::index(interface)?);
        Ok(())
    }

    /// Way by which the programs are attached to the interface: `tcx` or `clsact`.
    pub fn how(&self) -> &'static str {
        self.links.first().map_or("nowhere", Link::how)
    }

    /// Loads the programs without an interface, for packets that [`Window::run`] gives them; `link`
    /// is the length of their link header, 14 or 0.
    pub fn load(link: u32) -> Result<Window, Error> {
        let mut ebpf = attach::open(OBJECT)?;
        let array = |name| match ebpf.map(name) {
            Some(Map::Array(data)) => Ok(data),
            _ => Err(Error::Missing(name)),
        };
        let table = Table::new(array("buckets")?, array("sides")?, array("flows")?)?;
        let mut map = |name| ebpf.take_map(name).ok_or(Error::Missing(name));
        let rest = map("rest")?;
        let totals = map("totals")?.try_into()?;
        let mut control: Array<_, _> = map("control")?.try_into()?;
        let paces = map("paces")?.try_into()?;
        // Random, so that a sender cannot choose flows that share a bucket.
        let seed = std::array::from_fn(|which| RandomState::new().hash_one(which));
        let settings = Control { link, seed, ..Control::default() };
        control.set(0, Plain(settings), 0)?;
        for name in PROGRAMS.into_iter().chain([SET, BACK]) {
            attach::load(&mut ebpf, name)?;
        }
        Ok(Window {
            table,
            rest,
            totals,
            control,
            paces,
            settings,
            rest_buffer: batch::Buffer::default(),
            frame: Vec::new(),
            passed: Default::default(),
            silent: 0,
            links: Vec::new(),
            ebpf,
        })
    }

    /// Shows the programs that the controller is alive at `now`, by CLOCK_MONOTONIC.
    pub fn beat(&mut self, now: Instant) -> Result<(), Error> {
        self.settings.heartbeat = now.as_nanos();
        self.settings.beats = self.settings.beats.wrapping_add(1);
        Ok(self.control.set(0, Plain(self.settings), 0)?)
    }

    /// Sets the first window of new flows whose data goes in `direction`, in bytes; with 0 it is
    /// not lowered. Those that begin before the next beat have `spare` bytes together, and one
    /// segment each when nothing is left. In force from the next [beat](Window::beat) on.
    pub fn set_initial(&mut self, direction: Direction, window: u32, spare: u32) {
        self.settings.initial[direction.index()] = window;
        self.settings.spare[direction.index()] = spare;
    }

    /// Sets the growth of windows for data that goes in `direction`. In force from the next
    /// [beat](Window::beat) on.
    pub fn set_growth(&mut self, direction: Direction, growth: Growth) {
        self.settings.growth[direction.index()] = growth.bytes;
        self.settings.wait[direction.index()] = growth.wait;
    }

    /// Sets whether segments of flows with a window get the flag PSH, so that the receiver
    /// acknowledges each without delay, for data that goes in `direction`. In force from the next
    /// [beat](Window::beat) on.
    pub fn set_push(&mut self, direction: Direction, push: bool) {
        self.settings.push[direction.index()] = push.into();
    }

    /// Sets the [time of a byte](sheaf_window::cost::of) by which windows of uploads open; with 0
    /// they open as acknowledgements come. In force from the next [beat](Window::beat) on.
    pub fn set_pace(&mut self, cost: u32) {
        self.settings.pace = cost;
    }

    /// Copies of acknowledgements that were sent to come back.
    pub fn copies(&self) -> Result<u64, Error> {
        Ok(self.paces.get(&0, 0)?.0.copies)
    }

    /// Sets what becomes of packets that windows do not govern and that go in `direction`. In force
    /// from the next [beat](Window::beat) on.
    pub fn set_rest(&mut self, direction: Direction, setting: RestSetting) {
        let way = direction.index();
        self.settings.cost[way] = setting.cost;
        self.settings.drops[way] = setting.drops.into();
        self.settings.voice[way] = setting.voice.into();
    }

    /// Sets the clock by which such packets are judged and windows open, for packets that
    /// [`Window::run`] gives. In force from the next [beat](Window::beat) on.
    pub fn set_clock(&mut self, now: Instant) {
        self.settings.clock = now.as_nanos();
    }

    /// Limits `flow` to `window` bytes; 0 ends the limit. Returns whether the flow is in the table.
    pub fn set(&mut self, flow: FlowId, window: u32) -> Result<bool, Error> {
        Ok(self.set_all([(flow, window)])? == 1)
    }

    /// Limits each flow to its window; returns how many of the flows are in the table.
    pub fn set_all(
        &mut self,
        windows: impl IntoIterator<Item = (FlowId, u32)>,
    ) -> Result<u64, Error> {
        self.settings(windows.into_iter().map(|(flow, value)| Setting::new(flow, value)))
    }

    /// All connections in their present state, in no order.
    pub fn flows(
        &self,
    ) -> impl Iterator<Item = (sheaf_window::Key, sheaf_window::Connection)> + '_ {
        let about = self.last_beat();
        self.table.iter().map(move |flow| (flow.cold.key.into(), flow.connection(about)))
    }

    /// All flows that windows do not govern in their present state, in no order; none while they
    /// are left alone.
    pub fn rest(
        &mut self,
    ) -> Result<impl Iterator<Item = (sheaf_window::RestKey, [sheaf_window::Rest; 2])> + '_, Error>
    {
        let entries = self.rest_buffer.read(data(&self.rest)?)?;
        Ok(entries.map(|(key, pair)| ((*key).into(), (*pair).into())))
    }

    /// The connection `key` in its present state. Each call searches the whole table.
    pub fn flow(&self, key: &sheaf_window::Key) -> Option<sheaf_window::Connection> {
        self.table.get(&(*key).into()).map(|flow| flow.connection(self.last_beat()))
    }

    /// Counters of all packets that passed in `direction`.
    pub fn totals(&self, direction: Direction) -> Result<sheaf_window::Totals, Error> {
        let each = self.totals.get(&(direction.index() as u32), 0)?;
        Ok(Totals::sum(each.iter().map(|one| &one.0)))
    }

    /// Runs one step of each controller at `now`, by CLOCK_MONOTONIC: gives it all counters, sets
    /// the windows that it decides on, and beats. Call it ten times a second, and half as
    /// often at least while the interface is silent.
    pub fn step(&mut self, controllers: &mut [Controller], now: Instant) -> Result<(), Error> {
        let passed = [self.totals(Direction::In)?, self.totals(Direction::Out)?];
        let same = passed == std::mem::replace(&mut self.passed, passed);
        self.silent = if same { self.silent.saturating_add(1) } else { 0 };
        // To read the tables is most of what a step costs, and through most nights no packet
        // passes. The last packet is counted before its flow is, which may be during a step.
        let rests = self.silent > 1 && controllers.iter().all(Controller::is_settled);
        if rests {
            controllers.iter_mut().for_each(Controller::observe_silence);
        } else {
            self.show_flows(controllers)?;
        }
        let told = self.settings;
        let loads = Direction::BOTH.map(|direction| {
            let one = controllers.iter().find(|controller| controller.direction() == direction);
            one.map(Controller::load).unwrap_or_default()
        });
        for controller in controllers {
            let direction = controller.direction();
            controller.observe_other(loads[direction.reverse().index()]);
            // The tables have what passed while they were read.
            let totals = if rests { passed[direction.index()] } else { self.totals(direction)? };
            controller.observe_totals(totals);
            let windows = controller.step(now).iter();
            self.set_all(windows.map(|decision| (decision.flow, decision.value)))?;
            self.set_initial(direction, controller.initial(), controller.spare());
            self.set_growth(direction, controller.growth());
            self.set_push(direction, controller.push());
            if direction == Direction::Out {
                self.set_pace(controller.pace());
            }
            self.set_rest(direction, controller.rest());
        }
        if rests && self.settings == told && now - self.last_beat() < REST {
            return Ok(());
        }
        self.beat(now)
    }

    /// Whether nothing passes that a step would have to be quick for: no packet for `steps` steps.
    pub fn is_silent(&self, steps: u32) -> bool {
        self.silent >= steps
    }

    fn show_flows(&mut self, controllers: &mut [Controller]) -> Result<(), Error> {
        for (key, connection) in self.flows() {
            controllers.iter_mut().for_each(|one| one.observe(key, &connection));
        }
        // The program keeps none of these where nobody holds them to a share.
        if self.settings.cost != [0; 2] {
            for (key, both) in self.rest()? {
                controllers.iter_mut().for_each(|one| one.observe_rest(key, &both));
            }
        }
        Ok(())
    }

    /// Runs the program of `direction` on `frame`, `repeat` times; with more than one of `segments`
    /// the frame is a super-packet. Writes the frame that the program leaves into `out`, and
    /// returns its length, 0 where it is to be dropped, and the mean time of a run.
    pub fn run(
        &self,
        direction: Direction,
        frame: &[u8],
        segments: u32,
        out: &mut [u8],
        repeat: u32,
    ) -> Result<(usize, Duration), Error> {
        let (result, length, time) =
            self.run_program(PROGRAMS[direction.index()], frame, segments, out, repeat)?;
        Ok((if result == DROPPED { 0 } else { length }, time))
    }

    /// Runs the program for copies that come back on `frame`. Writes the frame that it leaves into
    /// `out`, and returns its length; 0 where it is to be dropped.
    pub fn run_back(&self, frame: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        let (result, length, _) = self.run_program(BACK, frame, 1, out, 1)?;
        Ok(if result == REDIRECTED { length } else { 0 })
    }

    fn run_program(
        &self,
        name: &'static str,
        frame: &[u8],
        segments: u32,
        out: &mut [u8],
        repeat: u32,
    ) -> Result<(u32, usize, Duration), Error> {
        let program = self.ebpf.program(name).ok_or(Error::Missing(name))?;
        let program: &SchedClassifier = program.try_into()?;
        let mut context = [0; CONTEXT];
        if segments > 1 {
            let size = (frame.len() as u32 / segments).max(1);
            context[GSO_SEGS..GSO_SEGS + 4].copy_from_slice(&segments.to_ne_bytes());
            context[GSO_SIZE..GSO_SIZE + 4].copy_from_slice(&size.to_ne_bytes());
        }
        let result = program.test_run(TestRunOptions {
            data_in: Some(frame),
            data_out: Some(out),
            ctx_in: (segments > 1).then_some(&context[..]),
            repeat,
            ..TestRunOptions::new()
        })?;
        Ok((result.return_value, result.data_size_out as usize, result.duration))
    }

    /// Time of all runs of the program of `direction`, and their number. The kernel counts only
    /// while `kernel.bpf_stats_enabled` is set or a process keeps statistics on (BPF_ENABLE_STATS).
    pub fn cost(&self, direction: Direction) -> Result<(Duration, u64), Error> {
        let name = PROGRAMS[direction.index()];
        let program = self.ebpf.program(name).ok_or(Error::Missing(name))?;
        let program: &SchedClassifier = program.try_into()?;
        let info = program.info()?;
        Ok((info.run_time(), info.run_count()))
    }

    /// Time of the last beat: near enough to now to extend the program's short times, which wrap
    /// around after months.
    fn last_beat(&self) -> Instant {
        Instant::from_nanos(self.settings.heartbeat)
    }

    fn settings(&mut self, settings: impl Iterator<Item = Setting>) -> Result<u64, Error> {
        let mut known = 0;
        let mut settings = settings.peekable();
        while settings.peek().is_some() {
            self.frame.clear();
            self.frame.resize(HEADER_LEN, 0);
            for setting in settings.by_ref().take(SETTINGS) {
                self.frame.extend_from_slice(setting.bytes());
            }
            let program: &SchedClassifier =
                self.ebpf.program(SET).ok_or(Error::Missing(SET))?.try_into()?;
            let data_in = Some(&self.frame[..]);
            let result = program.test_run(TestRunOptions { data_in, ..TestRunOptions::new() })?;
            known += u64::from(result.return_value);
        }
        Ok(known)
    }

    fn program(&mut self, name: &'static str) -> Result<&mut SchedClassifier, Error> {
        Ok(self.ebpf.program_mut(name).ok_or(Error::Missing(name))?.try_into()?)
    }
}

fn data(map: &Map) -> Result<&MapData, Error> {
    match map {
        Map::LruHashMap(data) => Ok(data),
        _ => Err(Error::Missing("LRU hash map")),
    }
}
