use crate::topics::cases;

cases! { "kinds":
}
