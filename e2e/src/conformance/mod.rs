//! The same requests to a real API server and to the embedded one, and the recorded responses of the real one.
//!
//! `e2e/conformance/<topic>.txt` has the cases; `e2e/conformance/README.md` explains how to write them. The normalised
//! responses of a real server are in `<topic>.recorded.txt`.
//!
//! Reading order: `script` (a case), `words` and `path` (variables), [`Target`] (the server), `run` and `stream`
//! (requests), `order` (the order of versions), `normalise` and `text` (normalised responses), `recording`, `compare`.

mod script;

mod path;
mod words;

mod target;

mod order;
mod run;
mod stream;

mod normalise;
mod text;

mod compare;
mod recording;

pub use compare::{Time, differences};
pub use recording::{Entry, Recorded, Recordings};
pub use run::run;
pub use script::{Action, Call, Case, Compare, Reading, Step, parse};
pub use target::{Chunks, Pace, RealServer, Target};
