//! Runs one service with its signals, its control socket and its watchdog.
