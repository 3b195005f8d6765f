//! sheaf
fn main() {}
