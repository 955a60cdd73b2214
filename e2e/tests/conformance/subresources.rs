use crate::topics::cases;

cases! { "subresources":
}
