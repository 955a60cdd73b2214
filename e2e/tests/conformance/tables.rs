use crate::topics::cases;

cases! { "tables":
}
