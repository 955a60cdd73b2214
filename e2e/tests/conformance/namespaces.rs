use crate::topics::cases;

cases! { "namespaces":
}
