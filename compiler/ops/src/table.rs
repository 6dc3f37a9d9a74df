//! Macros for the tables of the catalogue, and for enums with a word for each variant.

/// Declares an enum with a row for each variant. The doc comment of a variant becomes the `says` of
/// its row.
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

/// Declares an enum with a word for each variant. It has a constant `ALL`, and a method that gives
/// the word, with the name that stands last.
///
/// ```
/// shard_ops::worded! {
///     /// A way to go.
///     #[derive(Clone, Copy, PartialEq, Debug)]
///     pub enum Way {
///         /// To the left.
///         Left = "left",
///         /// To the right.
///         Right = "right",
///     }
///     /// As it is written.
///     fn name;
/// }
/// assert_eq!(Way::ALL.map(Way::name), ["left", "right"]);
/// ```
#[macro_export]
macro_rules! worded {
    (
        $(#[$about:meta])*
        $vis:vis enum $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal),+ $(,)? }
        $(#[doc = $doc:literal])+
        fn $word:ident;
    ) => {
        $(#[$about])*
        $vis enum $name { $($(#[$of])* $variant),+ }

        #[allow(dead_code)]
        impl $name {
            /// Every one, in order.
            $vis const ALL: [$name; [$($text),+].len()] = [$($name::$variant),+];

            $(#[doc = $doc])+
            $vis const fn $word(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
        }
    };
}
