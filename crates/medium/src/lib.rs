//! medium
