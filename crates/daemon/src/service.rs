//! The contract of a service.
