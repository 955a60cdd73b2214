use crate::topics::cases;

cases! { "watching":
}
