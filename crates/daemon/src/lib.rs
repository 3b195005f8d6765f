//! The services at work: processes that run until they are stopped, and how they are controlled.
//!
//! * [`control`]: the control sockets, server side and client side;
//! * [`run_directory`]: where these sockets are;
//! * [`service`]: the [`Service`] trait;
//! * [`reactor`]: runs one service with its signals, its control socket and its watchdog.

#![forbid(unsafe_code)]

pub mod aggregate;
pub mod control;
pub mod emulate;
pub mod prefix;
pub mod reactor;
pub mod report;
pub mod run_directory;
pub mod service;
mod signals;
pub mod teller;
pub mod trunk;
pub mod window;

pub use control::{Kind, Request, ServiceName};
pub use service::{Next, Service, Stop};
