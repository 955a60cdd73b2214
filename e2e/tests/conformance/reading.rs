use crate::topics::cases;

cases! { "reading":
}
