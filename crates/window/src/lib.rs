//! Advertised-window control, the pure part.
pub mod flow;
pub mod key;
pub mod lru;
pub mod rewrite;
pub mod segment;

pub use flow::{Connection, Half};
pub use key::{Direction, FlowId, Key};
pub use rewrite::{Outcome, Passing, Quic, Rewriter, Totals};
