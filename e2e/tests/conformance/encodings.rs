use crate::topics::cases;

cases! { "encodings":
}
