use crate::topics::cases;

cases! { "events":
}
