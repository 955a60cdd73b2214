//! Owner graphs: objects that name each other as owners, what their user does, and what is left in the end.
//!
//! `graphs/<topic>.yaml` holds them, `graphs/<topic>.recorded.json` what the upstream collector left behind, made
//! comparable; see `graphs/README.md`. Reading order: [`Graph`] and [`Step`] (a script), [`Kind`] (what may be in it),
//! [`Board`] (what has been seen), [`Player`] (plays a script by one propagation policy), `left` (what is compared),
//! [`plays`](crate::plays) (the files).

mod board;
mod kinds;
mod left;
mod play;
mod script;

pub use board::{Board, Seen};
pub use kinds::{Kind, definitions};
pub use play::{Player, Stage};
pub use script::{Graph, Policy, Step, Topic, Until};
