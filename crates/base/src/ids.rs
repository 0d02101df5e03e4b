//! Names of things, each its own type.

use std::fmt;

use uuid::Uuid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl $name {
            /// The one after this.
            #[must_use]
            pub const fn next(self) -> Self {
                $name(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

number!(
    /// A segment; never reused in an array's life.
    SegmentId(u64)
);
number!(
    /// A member's seat in the array, from 0.
    MemberId(u16)
);
number!(
    /// A volume; never reused in an array's life.
    VolumeId(u32)
);
number!(
    /// One read-write open of the array.
    Epoch(u32)
);
number!(
    /// A generation of the system area.
    Generation(u64)
);
number!(
    /// The number of an entry within an epoch's log.
    Seq(u64)
);

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uuid_id!(
    /// An array's identity, fixed at create.
    ArrayUuid
);
uuid_id!(
    /// A member's identity: one drive in one array, fixed when it joins.
    MemberUuid
);
