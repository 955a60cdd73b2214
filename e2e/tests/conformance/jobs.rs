use crate::topics::cases;

cases! { "jobs":
}
