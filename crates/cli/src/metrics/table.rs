//! Metrics, each with the figure of a report that it shows.
//!
//! Names follow Prometheus's rules: base units (seconds, bytes, ratios from 0 to 1), the unit last,
//! and `_total` behind a counter, which [`super::text`] adds.

/// Kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// It only rises, until its service starts anew.
    Counter,
    /// It rises and falls.
    Gauge,
}

/// A figure of a report.
#[derive(Debug)]
pub struct Metric {
    /// The kind of service.
    pub kind: &'static str,
    /// Its name without `_total`.
    pub name: &'static str,
    /// Counter or gauge.
    pub moves: Moves,
    /// Its unit, with which the name ends; empty for counts and states.
    pub unit: &'static str,
    /// Line of help.
    pub help: &'static str,
    /// Its place in the report: a JSON pointer in which `*` stands for each member of an object or
    /// an array. False is 0, true is 1.
    pub pointer: &'static str,
    /// A label for each `*`: its name, and the member of the element from which its value is; with
    /// an empty member, the key of the object is the value.
    pub labels: &'static [(&'static str, &'static str)],
    /// Factor from the report's unit.
    pub scale: f64,
}

const MILLI: f64 = 1e-3;
const MICRO: f64 = 1e-6;
/// Bytes of a bit.
const BITS: f64 = 0.125;

const HOP: &[(&str, &str)] = &[("hop", "")];
const NEIGHBOUR: &[(&str, &str)] = &[("neighbour", "")];
const REASON: &[(&str, &str)] = &[("reason", "")];
const LINK: &[(&str, &str)] = &[("link", "link")];
const DIRECTION: &[(&str, &str)] = &[("direction", "direction")];
const EMULATED: &[(&str, &str)] = &[("link", "")];
const CAUSE: &[(&str, &str)] = &[("link", ""), ("cause", "")];
const STATION: &[(&str, &str)] = &[("station", "")];
const SIGNAL: &[(&str, &str)] = &[("station", ""), ("heard", "")];
const SECTION: &[(&str, &str)] = &[("section", "section")];

use Moves::{Counter, Gauge};

macro_rules! metrics {
    ($($kind:literal $name:literal $moves:ident $unit:literal $pointer:literal $labels:expr,
       $scale:expr, $help:literal;)*) => {
        &[$(Metric {
            kind: $kind,
            name: concat!("sheaf_", $name),
            moves: $moves,
            unit: $unit,
            help: $help,
            pointer: $pointer,
            labels: $labels,
            scale: $scale,
        }),*]
    };
}

/// All metrics; those of a name stand together.
pub const METRICS: &[Metric] = metrics! {
    "run" "section_at_work" Gauge "" "/sections/*/at_work" SECTION, 1.0,
        "Whether the section of the file is at work";
    "run" "section_restarts" Counter "" "/sections/*/restarts" SECTION, 1.0,
        "Times that the process of the section was started again";
    "aggregate" "aggregate_uptime_seconds" Gauge "seconds" "/seconds" &[], 1.0,
        "Time since the start";
    "aggregate" "aggregate_held_frames" Gauge "" "/held_frames" &[], 1.0,
        "Frames that wait now";
    "aggregate" "aggregate_packets" Counter "" "/hops/*/aggregated_packets" HOP, 1.0,
        "Packets that left in meta packets";
    "aggregate" "aggregate_bytes" Counter "bytes" "/hops/*/aggregated_bytes" HOP, 1.0,
        "Bytes of the packets that left in meta packets";
    "aggregate" "aggregate_meta_packets" Counter "" "/hops/*/meta_packets" HOP, 1.0,
        "Meta packets sent";
    "aggregate" "aggregate_meta_bytes" Counter "bytes"
        "/hops/*/aggregated_bytes_on_network" HOP, 1.0,
        "Bytes of the meta packets sent, with their headers";
    "aggregate" "aggregate_alone_packets" Counter "" "/hops/*/unaggregated_packets" HOP, 1.0,
        "Packets that could have been aggregated and left alone";
    "aggregate" "aggregate_alone_bytes" Counter "bytes" "/hops/*/unaggregated_bytes" HOP, 1.0,
        "Bytes of the packets that left alone";
    "aggregate" "aggregate_probes" Counter "" "/hops/*/probes" HOP, 1.0,
        "Probes sent";
    "aggregate" "aggregate_hellos_sent" Counter "" "/neighbourhood/hellos_sent" &[], 1.0,
        "HELLOs sent";
    "aggregate" "aggregate_hellos_heard" Counter "" "/neighbourhood/hellos_heard" &[], 1.0,
        "HELLOs of neighbours that were taken";
    "aggregate" "aggregate_hellos_dropped" Counter "" "/neighbourhood/hellos_dropped" &[], 1.0,
        "HELLOs that came faster than they were read";
    "aggregate" "aggregate_hellos_refused" Counter "" "/neighbourhood/hellos_refused/*"
        REASON, 1.0,
        "HELLOs refused, by reason";
    "aggregate" "aggregate_neighbour_heard_ratio" Gauge "ratio"
        "/neighbourhood/neighbours/*/heard" NEIGHBOUR, 1.0,
        "Share of the HELLOs of a neighbour that are heard";
    "aggregate" "split_packets" Counter "" "/split/*" REASON, 1.0,
        "Packets that the splitter saw, by what became of them";
    "trunk" "trunk_uptime_seconds" Gauge "seconds" "/seconds" &[], 1.0,
        "Time since the start";
    "trunk" "trunk_established" Gauge "" "/established" &[], 1.0,
        "Whether both ends accept each other";
    "trunk" "trunk_sent_packets" Counter "" "/packets_sent" &[], 1.0,
        "Packets from the host that left, copies included";
    "trunk" "trunk_compressed_packets" Counter "" "/packets_compressed" &[], 1.0,
        "Packets from the host that left with compressed headers";
    "trunk" "trunk_saved_bytes" Counter "bytes" "/bytes_saved" &[], 1.0,
        "Bytes that these headers would have taken more";
    "trunk" "trunk_restored_packets" Counter "" "/packets_restored" &[], 1.0,
        "Packets from the other end whose headers were restored";
    "trunk" "trunk_delivered_packets" Counter "" "/packets_delivered" &[], 1.0,
        "Packets handed to the host";
    "trunk" "trunk_dropped_packets" Counter "" "/dropped/*" REASON, 1.0,
        "Packets from the host that were dropped";
    "trunk" "trunk_waiting_packets" Gauge "" "/waiting" &[], 1.0,
        "Packets from the host that wait";
    "trunk" "trunk_late_frames" Counter "" "/late" &[], 1.0,
        "Frames that arrived after they had been given up";
    "trunk" "trunk_lost_frames" Counter "" "/given_up" &[], 1.0,
        "Frames that were given up";
    "trunk" "trunk_duplicate_frames" Counter "" "/duplicates" &[], 1.0,
        "Frames that arrived twice";
    "trunk" "trunk_sent_parities" Counter "" "/parities_sent" &[], 1.0,
        "Parities of frames that may be lost, sent in time that links had left";
    "trunk" "trunk_protected_frames" Counter "" "/frames_protected" &[], 1.0,
        "Frames in these parities";
    "trunk" "trunk_recovered_frames" Counter "" "/frames_recovered" &[], 1.0,
        "Frames that a parity told before they came: lost or late ones";
    "trunk" "trunk_sessions" Counter "" "/sessions" &[], 1.0,
        "Starts of the other end that were accepted";
    "trunk" "trunk_handshakes" Counter "" "/handshakes" &[], 1.0,
        "Handshakes that made keys";
    "trunk" "trunk_refused_frames" Counter "" "/refused/*" REASON, 1.0,
        "Frames that were refused";
    "trunk" "trunk_reorder_timer_seconds" Gauge "seconds" "/reorder_timer_ms" &[], MILLI,
        "Longest reordering timer of all flows";
    "trunk" "trunk_link_up" Gauge "" "/links/*/up" LINK, 1.0,
        "Whether the other end responds over the link";
    "trunk" "trunk_link_carrier" Gauge "" "/links/*/carrier" LINK, 1.0,
        "Whether the interface of the link works";
    "trunk" "trunk_link_used" Gauge "" "/links/*/used" LINK, 1.0,
        "Whether the link takes packets";
    "trunk" "trunk_link_rate_bytes_per_second" Gauge "bytes_per_second"
        "/links/*/rate_bps" LINK, BITS,
        "Learned rate towards the other end";
    "trunk" "trunk_link_loss_ratio" Gauge "ratio" "/links/*/loss" LINK, 1.0,
        "Share of frames lost on the way to the other end";
    "trunk" "trunk_link_round_trip_seconds" Gauge "seconds" "/links/*/round_trip_ms" LINK, MILLI,
        "Round-trip time";
    "trunk" "trunk_link_queue_seconds" Gauge "seconds" "/links/*/queue_ms" LINK, MILLI,
        "Queueing delay in the link";
    "trunk" "trunk_link_jitter_seconds" Gauge "seconds" "/links/*/jitter_ms" LINK, MILLI,
        "Variation of the one-way delay";
    "trunk" "trunk_link_sent_frames" Counter "" "/links/*/frames_sent" LINK, 1.0,
        "Frames sent";
    "trunk" "trunk_link_sent_bytes" Counter "bytes" "/links/*/bytes_sent" LINK, 1.0,
        "Bytes sent without carrier headers";
    "trunk" "trunk_link_received_frames" Gauge "" "/links/*/frames_received" LINK, 1.0,
        "Frames received in this session";
    "trunk" "trunk_link_stranger_frames" Counter "" "/links/*/strangers" LINK, 1.0,
        "Frames from somebody else";
    "trunk" "trunk_link_unsent_frames" Counter "" "/links/*/unsent" LINK, 1.0,
        "Frames that the kernel did not take";
    "trunk" "trunk_link_quota_used_bytes" Gauge "bytes" "/links/*/quota/used_bytes" LINK, 1.0,
        "Bytes of the link's quota that are used in this period";
    "trunk" "trunk_link_quota_bytes" Gauge "bytes" "/links/*/quota/quota_bytes" LINK, 1.0,
        "Bytes that the link may carry in a period";
    "window" "window_uptime_seconds" Gauge "seconds" "/seconds" &[], 1.0,
        "Time since the start";
    "window" "window_capacity_bytes_per_second" Gauge "bytes_per_second"
        "/totals/*/capacity" DIRECTION, BITS,
        "Capacity of the bottleneck as far as it is known";
    "window" "window_ungoverned_bytes_per_second" Gauge "bytes_per_second"
        "/totals/*/usage" DIRECTION, BITS,
        "Rate of what windows do not govern";
    "window" "window_flows" Gauge "" "/totals/*/flows" DIRECTION, 1.0,
        "Flows in the table";
    "window" "window_active_flows" Gauge "" "/totals/*/active" DIRECTION, 1.0,
        "Flows that share the capacity";
    "window" "window_queue_seconds" Gauge "seconds" "/totals/*/queue_ms" DIRECTION, MILLI,
        "Round-trip times above their floor";
    "window" "window_responsiveness_rpm" Gauge "" "/totals/*/rpm" DIRECTION, 1.0,
        "Round trips per minute while bulk data was under way last";
    "window" "window_added_latency_seconds" Gauge "seconds" "/totals/*/added_ms" DIRECTION, MILLI,
        "Round-trip times above their floor while bulk data was under way last";
    "window" "window_passed_packets" Counter "" "/totals/*/packets" DIRECTION, 1.0,
        "Packets that passed";
    "window" "window_passed_bytes" Counter "bytes" "/totals/*/bytes" DIRECTION, 1.0,
        "Bytes that passed";
    "window" "window_lowered_packets" Gauge "" "/totals/*/clamped" DIRECTION, 1.0,
        "Acknowledgements with a lowered window, of the flows in the table";
    "window" "window_paced_packets" Counter "" "/totals/*/paced" DIRECTION, 1.0,
        "Copies of acknowledgements, by which windows of uploads open at the rate of the link";
    "window" "window_rest_share_bytes_per_second" Gauge "bytes_per_second"
        "/totals/*/rest_share" DIRECTION, BITS,
        "Rate that a flow which windows do not govern is held to";
    "window" "window_rest_takes_all" Gauge "" "/totals/*/competes" DIRECTION, 1.0,
        "Whether such flows take whatever TCP yields, so that TCP has no windows";
    "window" "window_rest_marked_packets" Counter "" "/totals/*/marked" DIRECTION, 1.0,
        "Packets of such flows that were marked";
    "window" "window_rest_policed_packets" Counter "" "/totals/*/policed" DIRECTION, 1.0,
        "Packets of such flows that were dropped";
    "emulate" "emulate_uptime_seconds" Gauge "seconds" "/seconds" &[], 1.0,
        "Time since the start";
    "emulate" "emulate_offered_packets" Counter "" "/links/*/offered_packets" EMULATED, 1.0,
        "Packets that arrived at the emulated link";
    "emulate" "emulate_offered_bytes" Counter "bytes" "/links/*/offered_bytes" EMULATED, 1.0,
        "Bytes that arrived at the emulated link";
    "emulate" "emulate_delivered_packets" Counter "" "/links/*/delivered_packets" EMULATED, 1.0,
        "Packets that left the emulated link";
    "emulate" "emulate_delivered_bytes" Counter "bytes" "/links/*/delivered_bytes" EMULATED, 1.0,
        "Bytes that left the emulated link";
    "emulate" "emulate_queued_packets" Gauge "" "/links/*/rate_queue_packets" EMULATED, 1.0,
        "Packets that wait for bandwidth";
    "emulate" "emulate_delayed_packets" Gauge "" "/links/*/delay_line_packets" EMULATED, 1.0,
        "Packets on the delay line";
    "emulate" "emulate_standstills" Counter "" "/links/*/standstills" EMULATED, 1.0,
        "Times that the link stood still, having woken late, because of the bound on bursts";
    "emulate" "emulate_standstill_seconds" Counter "seconds" "/links/*/stood_still_ms" EMULATED,
        MILLI,
        "Time that the link lost in standstills";
    "emulate" "emulate_flows" Gauge "" "/links/*/flows" EMULATED, 1.0,
        "Flows that have a link of their own";
    "emulate" "emulate_expired_flows" Counter "" "/links/*/expired_flows" EMULATED, 1.0,
        "Links taken back from flows that had gone";
    "emulate" "emulate_reused_flows" Counter "" "/links/*/reused_flows" EMULATED, 1.0,
        "Links that the longest idle flow gave up for a new one";
    "emulate" "emulate_crowded_packets" Counter "" "/links/*/crowded_packets" EMULATED, 1.0,
        "Packets of flows for which no link was left";
    "emulate" "emulate_class_sent_packets" Counter "" "/links/*/class/sent_packets" EMULATED, 1.0,
        "Packets of the class, or of those below it, that were sent";
    "emulate" "emulate_class_borrowed_packets" Counter "" "/links/*/class/borrowed_packets"
        EMULATED, 1.0,
        "Packets that the class sent of the rate of a class above it";
    "emulate" "emulate_class_lent_packets" Counter "" "/links/*/class/lent_packets" EMULATED, 1.0,
        "Packets that classes below it sent of its rate";
    "emulate" "emulate_events" Counter "" "/links/*/causes/*" CAUSE, 1.0,
        "Packets that were dropped, delayed or changed, by cause";
    "emulate" "emulate_station_offered_frames" Counter "" "/stations/*/offered_frames" STATION, 1.0,
        "Frames of the host that entered the device queue of the station";
    "emulate" "emulate_station_delivered_frames" Counter ""
        "/stations/*/delivered_frames" STATION, 1.0,
        "Frames of the station that arrived";
    "emulate" "emulate_station_lost_frames" Counter "" "/stations/*/lost_frames" STATION, 1.0,
        "Frames of the station that were given up or that nobody heard";
    "emulate" "emulate_station_received_frames" Counter ""
        "/stations/*/received_frames" STATION, 1.0,
        "Frames of others that the station received";
    "emulate" "emulate_station_retries" Counter "" "/stations/*/retries" STATION, 1.0,
        "Attempts beyond the first of each frame of the station";
    "emulate" "emulate_station_collisions" Counter "" "/stations/*/collisions" STATION, 1.0,
        "Transmissions of the station that others spoilt";
    "emulate" "emulate_station_air_time_seconds" Counter "seconds"
        "/stations/*/air_time_ms" STATION, MILLI,
        "Time that the station was on the air";
    "emulate" "emulate_station_queued_frames" Gauge "" "/stations/*/queued_frames" STATION, 1.0,
        "Frames in the device queue of the station";
    "emulate" "emulate_station_dropped_frames" Counter "" "/stations/*/dropped_frames" STATION, 1.0,
        "Frames of the station's radio that its full queue refused";
    "emulate" "emulate_station_missed_frames" Counter "" "/stations/*/missed_frames" STATION, 1.0,
        "Frames of the station's radio that its driver dropped before the medium";
    "emulate" "emulate_signal_dbm" Gauge "dbm" "/stations/*/heard/*/signal_dbm" SIGNAL, 1.0,
        "Signal of another station that the station hears";
    "emulate" "emulate_behind_frames" Counter "" "/behind" &[], 1.0,
        "Frames of a medium that were handed over more than 10 ms late";
    "emulate" "emulate_denied_packets" Counter "" "/denied" &[], 1.0,
        "Packets that a rule dropped";
    "emulate" "emulate_missed_packets" Counter "" "/missed" &[], 1.0,
        "Packets that the emulation was too slow to take";
    "emulate" "emulate_lateness_p99_seconds" Gauge "seconds" "/lateness/p99_us" &[], MICRO,
        "How late 99 % of the packets left at most";
    "emulate" "emulate_lateness_max_seconds" Gauge "seconds" "/lateness/max_us" &[], MICRO,
        "How late the latest packet left";
};
