use crate::topics::cases;

cases! { "compaction":
}
