//! The same requests to a real API server and to the embedded one, and the recorded responses of the real one.
//!
//! `e2e/conformance/<topic>.txt` has the cases; `e2e/conformance/README.md` explains how to write them. The normalised
//! responses of a real server are in `<topic>.recorded.txt`.
//!
//! Reading order: `script` (a case), `variables` and `path`, [`Target`] (the server), `run` and `stream`
//! (requests), `version_order`, `normalise` and `text` (normalised responses), `recording`, `compare`.

mod script;

mod path;
mod variables;

mod target;

mod run;
mod stream;
mod version_order;

mod normalise;
mod text;

mod compare;
mod recording;

pub use compare::{Time, differences};
pub use recording::{Entry, Recorded, Recordings};
pub use run::run;
pub use script::{Action, Call, Case, Compare, Reading, Step, parse};
pub use target::{Chunks, Pace, RealServer, Target};
