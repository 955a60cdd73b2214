use crate::topics::cases;

cases! { "patching":
}
