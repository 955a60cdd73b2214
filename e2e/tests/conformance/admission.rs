use crate::topics::cases;

cases! { "admission":
}
