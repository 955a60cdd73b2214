//! mini-kcm: a kube-controller-manager as a value.
//!
//! Reading order: [`manager`] contains start order, leadership and shutdown; [`controllers`] is the table of
//! controllers; [`interlock`] keeps a controller from running in two managers; [`cache_freshness`] proves that a new
//! leader's caches are fresh; [`flags`] parses the command line, [`config`] validates it, and [`gates`] has the feature
//! gates; [`serve`] opens the serving port, and [`pages`] serves probes, metrics and debug pages on it; [`start`] runs a
//! manager as a process.

pub mod cache_freshness;
pub mod config;
pub mod controllers;
pub mod flags;
pub mod gates;
pub mod health;
pub mod interlock;
pub mod manager;
pub mod pages;
pub mod preflight;
pub mod serve;
pub mod start;
mod term_controllers;
pub mod version;
mod watch_health;
