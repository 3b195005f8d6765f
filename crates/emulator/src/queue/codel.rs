//! CoDel: drop while packets have waited too long for too long.
//!
//! Source: RFC 8289, with the pseudo-code of section 5 (`dodequeue`, `dequeue`, control law) and
//! the marks of its Linux implementation. A queue whose packets all waited longer than `target`
//! over an `interval` is a standing one; then packets are dropped from its head, ever faster, at
//! interval / √count, until the wait is below the target.

use super::{Limit, Queue, QueueContext, Row, one_row};
use crate::accounting::Backlog;
use crate::cause::Cause;
use crate::error::ConfigError;
use crate::packet::Packet;
use sheaf_stage::{DropReason, Duration, Instant};

/// Parameters of CoDel (RFC 8289, section 4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodelParams {
    /// The acceptable standing wait; 5 ms.
    pub target: Duration,
    /// Over how long it is judged: about the largest round-trip time, 100 ms. Above zero.
    pub interval: Duration,
    /// A queue of no more bytes is never dropped from: one large packet; 1514.
    pub mtu: u64,
    /// Mark packets that understand it in place of dropping them.
    pub ecn: bool,
}

impl Default for CodelParams {
    fn default() -> Self {
        CodelParams {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            mtu: 1514,
            ecn: false,
        }
    }
}

impl CodelParams {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        match self.interval.is_zero() {
            true => Err(ConfigError::Zero { option: "codel interval" }),
            false => Ok(()),
        }
    }
}

/// A CoDel queue.
#[derive(Clone, Debug, PartialEq)]
pub struct CodelConfig {
    /// The hard bound; 1000 packets in Linux.
    pub limit: Limit,
    /// Target and interval.
    pub params: CodelParams,
}

impl Default for CodelConfig {
    fn default() -> Self {
        CodelConfig { limit: Limit::Packets(1000), params: CodelParams::default() }
    }
}

/// The state of section 5.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Codel {
    /// Time at which the wait will have been above the target for an interval; `None` while it is
    /// not above it.
    first_above: Option<Instant>,
    dropping: bool,
    drop_next: Instant,
    count: u32,
    last_count: u32,
}

impl Codel {
    /// The next packet of `row` to send; drops or marks on the way.
    pub fn dequeue(
        &mut self,
        params: &CodelParams,
        row: &mut Row,
        context: &mut QueueContext<'_>,
    ) -> Option<Packet> {
        let (mut head, mut too_long) = self.pop(params, row, context.now);
        if self.dropping {
            self.dropping = too_long;
            while self.dropping && context.now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                self.drop_next = self.law(params, self.drop_next);
                let marked;
                (head, marked) = signal(params, head, context);
                if marked {
                    break;
                }
                (head, too_long) = self.pop(params, row, context.now);
                self.dropping = too_long;
            }
        } else if too_long {
            let marked;
            (head, marked) = signal(params, head, context);
            if !marked {
                (head, _) = self.pop(params, row, context.now);
            }
            self.dropping = true;
            // Not long after the last dropping the rate that helped then is taken up again.
            let delta = self.count.saturating_sub(self.last_count);
            let recently = context.now - self.drop_next < params.interval.saturating_mul(16);
            self.count = if delta > 1 && recently { delta } else { 1 };
            self.last_count = self.count;
            self.drop_next = self.law(params, context.now);
        }
        head
    }

    /// The head, and whether the wait has been above the target for an interval.
    fn pop(&mut self, params: &CodelParams, row: &mut Row, now: Instant) -> (Option<Packet>, bool) {
        let Some(packet) = row.pop() else {
            self.first_above = None;
            return (None, false);
        };
        if now - packet.arrived < params.target || row.backlog().bytes <= params.mtu {
            self.first_above = None;
            return (Some(packet), false);
        }
        let since = *self.first_above.get_or_insert(now + params.interval);
        (Some(packet), now >= since)
    }

    fn law(&self, params: &CodelParams, time: Instant) -> Instant {
        time + params.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

/// Marks or drops `head`; returns it unless it was dropped, and whether it was marked.
fn signal(
    params: &CodelParams,
    head: Option<Packet>,
    context: &mut QueueContext<'_>,
) -> (Option<Packet>, bool) {
    let Some(mut packet) = head else { return (None, false) };
    if params.ecn && context.mark(&mut packet) {
        return (Some(packet), true);
    }
    context.drop(packet, Cause::Codel);
    (None, false)
}

#[derive(Debug)]
pub(crate) struct CodelQueue {
    pub config: CodelConfig,
    codel: Codel,
    row: Row,
}

impl CodelQueue {
    pub fn new(config: CodelConfig) -> Self {
        CodelQueue { config, codel: Codel::default(), row: Row::default() }
    }
}

impl Queue for CodelQueue {
    fn enqueue(
        &mut self,
        packet: Packet,
        context: &mut QueueContext<'_>,
    ) -> Result<(), DropReason> {
        if self.config.limit.is_exceeded_by(self.row.backlog(), packet.size()) {
            return Err(context.drop(packet, Cause::RateQueueFull));
        }
        self.row.push(packet);
        Ok(())
    }

    fn dequeue(&mut self, context: &mut QueueContext<'_>) -> Option<Packet> {
        self.codel.dequeue(&self.config.params, &mut self.row, context)
    }

    one_row!();
}
