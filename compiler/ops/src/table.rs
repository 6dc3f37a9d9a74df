//! Tables of the catalogue.

/// An enum of ops with a row for each; the lines above a variant are what its row says.
macro_rules! table {
    (
        $(#[doc = $doc:literal])+
        $name:ident: $row:ident {
            $($(#[doc = $says:literal])+ $variant:ident { $($field:tt)+ }),+ $(,)?
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[doc = $says])+ $variant),+ }

        impl $name {
            /// Every variant, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// Its row of the catalogue.
            pub fn row(self) -> &'static $row {
                static ROWS: &[$row] = &[
                    $($row { says: concat!($($says),+).trim_ascii(), $($field)+ }),+
                ];
                &ROWS[self as usize]
            }
        }
    };
}
pub(crate) use table;
