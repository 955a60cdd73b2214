use crate::topics::cases;

cases! { "custom":
}
