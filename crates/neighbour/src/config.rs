//! The parameters of a [`Neighbourhood`](crate::Neighbourhood).

use crate::seal::SealKey;
use sheaf_stage::Duration;
use sheaf_wire::hello::Splits;

/// Bytes in front of a HELLO in its Ethernet frame: Ethernet, IPv4 and UDP.
pub const OVERHEAD: usize = 14 + 20 + 8;

/// Parameters; the defaults are those of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Time between two HELLOs while frames are shared, 0.1 s to 25.5 s; 1 s (KAU, section 3.4).
    pub period: Duration,
    /// Bytes a second that HELLOs take at rest, headers included, at least 1; 20.
    pub rest_rate: u32,
    /// Bytes of headers in front of a HELLO; [`OVERHEAD`].
    pub overhead: usize,
    /// Abilities of this router's splitter; `None` without one.
    pub splits: Option<Splits>,
    /// Key that neighbours share. With it, only HELLOs under the same key are believed.
    pub key: Option<SealKey>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            period: Duration::from_secs(1),
            rest_rate: 20,
            overhead: OVERHEAD,
            splits: None,
            key: None,
        }
    }
}
