//! mini-kcm: a kube-controller-manager as a value.
//!
//! Reading order: [`manager`] is the story (start order, leadership, shutdown); [`controllers`] is the table;
//! [`view`] says when a new leader's caches are new enough; [`flags`] and [`config`] are what the user typed and what we
//! run with, [`gates`] the feature gates among it; [`serve`] listens, and [`pages`] answers probes, Prometheus and people; [`start`] ties it to a process.

pub mod config;
pub mod controllers;
pub mod flags;
pub mod gates;
pub mod health;
mod hearing;
pub mod manager;
pub mod pages;
pub mod preflight;
pub mod serve;
pub mod start;
pub mod version;
pub mod view;
