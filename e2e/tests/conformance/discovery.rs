use crate::topics::cases;

cases! { "discovery":
}
