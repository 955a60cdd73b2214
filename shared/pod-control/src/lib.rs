//! What every controller that owns pods does with them, and no rule of a particular one.
//!
//! Reading order: [`Owner`] (on whose behalf), [`PodControl`] (the writes, with the events that tell of them), `claim`
//! (whose pods are whose), [`PodTemplate`] and [`Stamp`] (from a template to the body of a creation), `predicates` and
//! `ranking` (pure), [`SlowStart`].

mod claim;
mod control;
mod owner;
mod predicates;
mod ranking;
mod slow_start;
mod template;

pub use claim::{Claim, ClaimError, Claimed, claim, verdict};
pub use control::{PodControl, is_gone};
pub use owner::Owner;
pub use predicates::{has_finalizer, is_active, is_ready, is_terminal, is_terminating};
pub use ranking::deletion_order;
pub use slow_start::SlowStart;
pub use template::{Extra, PodTemplate, Stamp, TemplateError};
