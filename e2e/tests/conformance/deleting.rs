use crate::topics::cases;

cases! { "deleting":
}
