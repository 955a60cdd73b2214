//! Owner graphs: objects that own each other, the actions of a user, and what is left in the end.
//!
//! `graphs/<topic>.yaml` has the graphs, `graphs/<topic>.recorded.json` the normalised results of the upstream
//! collector; see `graphs/README.md`. Reading order: [`Graph`] and [`Step`] (a script), [`Kind`] (the kinds of
//! objects), [`Board`] (observed objects), [`Player`] (runs a script with one propagation policy), `left` (the result),
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
