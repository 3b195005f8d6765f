//! The emulated 802.11 medium: stations that share radio channels by the rules of IEEE 802.11's
//! distributed coordination function (DCF).
//!
//! Contention, air-time overhead, collisions, hidden stations and bit errors happen here to real
//! packets behind TAP interfaces and to simulated ones under a virtual clock; it is one engine.
//!
//! * [`phy`]: DSSS/CCK, ERP-OFDM, OFDM and HT timing;
//! * [`ampdu`]: aggregation in the MAC;
//! * [`air_time`]: air time of one frame, by arithmetic;
//! * [`config`]: radios, and the reception among them;
//! * [`path_loss`]: the range of each rate;
//! * [`frame`]: frames, their receivers, and their outcome;
//! * [`medium`]: the stage, [`Medium`];
//! * [`station`]: one station's contention state.
//!
//! ```
//! use sheaf_medium::{Config, Frame, Medium, Phy, RadioId, To};
//! use sheaf_stage::{Bitrate, Instant, Stage};
//!
//! let config = Config::new(Phy::Dsss { short_preamble: false }, 2, Bitrate::from_mbps(2));
//! let mut medium = Medium::new(config, 1)?;
//! let frame = Frame { from: RadioId(0), to: To::Radio(RadioId(1)), bytes: 60, payload: "voice" };
//! medium.enqueue(frame, Instant::from_millis(1)).expect("the queue is empty");
//! let mut now = Instant::from_millis(1);
//! let done = loop {
//!     match medium.dequeue(now) {
//!         Some(done) => break done,
//!         None => now = medium.next_deadline().expect("a frame is on the air"),
//!     }
//! };
//! // 192 µs of PLCP, 96 bytes at 2 Mbit/s, SIFS, and an acknowledgement of 248 µs.
//! assert_eq!(now, Instant::from_micros(1_000 + 192 + 384 + 10 + 248));
//! assert!(done.result.is_ok());
//! # Ok::<(), sheaf_medium::ConfigError>(())
//! ```

pub mod air_time;
pub mod ampdu;
pub mod config;
pub mod frame;
pub mod medium;
pub mod path_loss;
pub mod phy;
pub mod station;

pub use ampdu::Ampdu;
pub use config::{Config, ConfigError, Hearing, Link, Radio};
pub use frame::{Frame, RadioId, RadioStats, Receivers, To, Transmission};
pub use medium::Medium;
pub use path_loss::PathLoss;
pub use phy::Phy;
