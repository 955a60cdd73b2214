//! Flags, logs, accounts, served pages, the playground, and the handover to another manager.
//!
//! They are one binary, so that they run beside each other: each mostly waits for other processes.

mod flags;
mod front_proxy;
mod handover;
mod identity;
mod interlock;
mod kubectl;
mod logs;
mod pages;
mod playground;
mod prometheus;
