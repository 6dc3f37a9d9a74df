//! A JSON object that is written where it is filled: `object!(PlaceJson { line: 3, text: "x" })`
//! serialises to `{"line": 3, "text": "x"}`.

use serde::Serialize;
use serde::ser::SerializeMap;

/// A value that can be written as a field of a JSON object.
pub trait Field {
    /// Writes the field, if it is there.
    fn add<M: SerializeMap>(&self, name: &'static str, to: &mut M) -> Result<(), M::Error>;
}

impl<T: Serialize> Field for T {
    fn add<M: SerializeMap>(&self, name: &'static str, to: &mut M) -> Result<(), M::Error> {
        to.serialize_entry(name.trim_start_matches("r#"), self)
    }
}

/// A JSON object whose fields can be written into another object.
pub trait Object {
    /// Writes all fields.
    fn fields<M: SerializeMap>(&self, to: &mut M) -> Result<(), M::Error>;
}

impl<T: Object> Object for Option<T> {
    fn fields<M: SerializeMap>(&self, to: &mut M) -> Result<(), M::Error> {
        self.iter().try_for_each(|object| object.fields(to))
    }
}

/// A field that is left out where it is `None`.
#[derive(Clone, Copy, Debug)]
pub struct Said<T>(pub Option<T>);

impl<T> Said<Vec<T>> {
    /// A list, which is left out where it is empty.
    pub fn list(of: impl Iterator<Item = T>) -> Said<Vec<T>> {
        Said(Some(of.collect()).filter(|list: &Vec<T>| !list.is_empty()))
    }
}

impl<T: Serialize> Field for Said<T> {
    fn add<M: SerializeMap>(&self, name: &'static str, to: &mut M) -> Result<(), M::Error> {
        self.0.iter().try_for_each(|value| value.add(name, to))
    }
}

/// The fields of an object, written among those of the object around it.
#[derive(Clone, Copy, Debug)]
pub struct Fields<T>(pub T);

impl<T: Object> Field for Fields<T> {
    fn add<M: SerializeMap>(&self, _: &'static str, to: &mut M) -> Result<(), M::Error> {
        self.0.fields(to)
    }
}

/// An [`Object`] that serialises to its fields, in their order. Its name is for readers, and hides
/// a type of the same name from the values.
#[macro_export]
macro_rules! object {
    ($name:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {{
        #[allow(non_camel_case_types, non_snake_case)]
        struct $name<$($field),*> {
            $($field: $field),*
        }

        #[allow(non_camel_case_types)]
        impl<$($field: $crate::json::object::Field),*> $crate::json::object::Object
            for $name<$($field),*>
        {
            fn fields<M: ::serde::ser::SerializeMap>(&self, to: &mut M) -> Result<(), M::Error> {
                $($crate::json::object::Field::add(&self.$field, stringify!($field), to)?;)*
                Ok(())
            }
        }

        #[allow(non_camel_case_types)]
        impl<$($field: $crate::json::object::Field),*> ::serde::Serialize for $name<$($field),*> {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let mut map = ::serde::Serializer::serialize_map(to, None)?;
                $crate::json::object::Object::fields(self, &mut map)?;
                ::serde::ser::SerializeMap::end(map)
            }
        }

        $name { $($field $(: $value)?),* }
    }};
}
