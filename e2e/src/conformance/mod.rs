//! The same exchanges with a real API server and with the one in the box, and what the real one answered.
//!
//! `e2e/conformance/<topic>.txt` holds cases; `e2e/conformance/README.md` tells how to write them. What a real server
//! answered stands, made comparable, beside them in `<topic>.recorded.txt`.
//!
//! Reading order: `script` (what a case is), `words` and `path` (what its variables mean), [`Target`] (who answers),
//! `run` and `stream` (the exchanges), `order` (what versions must be), `normalise` and `text` (what makes answers comparable), `recording`, `compare`.

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
