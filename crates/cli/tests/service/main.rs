//! The services as people live with them: changed, shown, stopped, reloaded, on full disks, on
//! interfaces that come and go, beside other users. In namespaces; needs root.

mod change;
mod ground;
mod interfaces;
mod limits;
mod outputs;
#[path = "../patient/mod.rs"]
mod patient;
mod reload;
mod signals;
mod users;
