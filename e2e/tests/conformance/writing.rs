use crate::topics::cases;

cases! { "writing":
}
