//! `.safetensors` files: many tensors, by name.

use std::collections::BTreeSet;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use shard_runtime::{NamedTensor, Tensor};

use super::MAX_BYTES;
use crate::output::replace;

/// A file that was read, its header checked.
pub(crate) struct File {
    bytes: Vec<u8>,
}

impl File {
    /// Reads a file; the sizes in its header are checked against the data.
    pub(crate) fn open(path: &Path) -> Result<File, String> {
        if path.extension().is_some_and(|e| e == "npy") {
            return Err("a .npy file holds one tensor: --input NAME=FILE.npy".to_string());
        }
        let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        let mut limited = std::io::Read::take(file, MAX_BYTES + 1);
        std::io::Read::read_to_end(&mut limited, &mut bytes).map_err(|e| e.to_string())?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(format!("it has more than {MAX_BYTES} bytes, which are the most"));
        }
        SafeTensors::deserialize(&bytes).map_err(|error| format!("no safetensors: {error}"))?;
        Ok(File { bytes })
    }

    fn tensors(&self) -> Option<SafeTensors<'_>> {
        SafeTensors::deserialize(&self.bytes).ok()
    }

    /// The names of its tensors.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.tensors().iter().flat_map(|t| t.names()).map(ToString::to_string).collect()
    }

    /// The shape of a tensor, as it is said in messages.
    pub(crate) fn shape(&self, name: &str) -> String {
        let shape = self.tensors().and_then(|t| Some(t.tensor(name).ok()?.shape().to_vec()));
        format!("{:?}", shape.unwrap_or_default())
    }

    /// A tensor, of any dtype whose numbers are plain.
    pub(crate) fn tensor(&self, name: &str) -> Result<Tensor, String> {
        let tensors = self.tensors().ok_or("no safetensors")?;
        let view = tensors.tensor(name).map_err(|error| error.to_string())?;
        let data = numbers(view.dtype(), view.data()).ok_or_else(|| {
            format!("its dtype is {:?}, and a plain number type is needed", view.dtype())
        })?;
        Tensor::new(view.shape().to_vec(), data)
            .ok_or_else(|| "its shape does not fit its data".to_string())
    }
}

/// Little-endian numbers of any plain type; `None` where the type is another.
fn numbers(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f64>> {
    macro_rules! read_as {
        ($t:ty, $convert:expr) => {
            bytes
                .as_chunks::<{ size_of::<$t>() }>()
                .0
                .iter()
                .map(|b| $convert(<$t>::from_le_bytes(*b)))
                .collect()
        };
    }
    Some(match dtype {
        Dtype::F64 => read_as!(f64, |v| v),
        Dtype::F32 => read_as!(f32, f64::from),
        Dtype::BF16 => read_as!(u16, |v| f64::from(f32::from_bits(u32::from(v) << 16))),
        Dtype::F16 => read_as!(u16, |v| small_float(u32::from(v), 5, 10)),
        Dtype::I64 => read_as!(i64, |v| v as f64),
        Dtype::U64 => read_as!(u64, |v| v as f64),
        Dtype::I32 => read_as!(i32, f64::from),
        Dtype::U32 => read_as!(u32, f64::from),
        Dtype::I16 => read_as!(i16, f64::from),
        Dtype::U16 => read_as!(u16, f64::from),
        Dtype::I8 => read_as!(i8, f64::from),
        Dtype::U8 => read_as!(u8, f64::from),
        Dtype::BOOL => read_as!(u8, |v| f64::from(u8::from(v != 0))),
        _ => return None,
    })
}

/// A float as IEEE 754 encodes it, with so many bits of exponent and of fraction.
fn small_float(bits: u32, exponent_bits: u32, fraction_bits: u32) -> f64 {
    let fraction = bits & ((1 << fraction_bits) - 1);
    let exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
    let sign = if bits >> (exponent_bits + fraction_bits) & 1 == 1 { -1.0 } else { 1.0 };
    let bias = (1 << (exponent_bits - 1)) - 1;
    let unit = 2f64.powi(-(fraction_bits as i32));
    let scaled = |whole: f64, exponent: i32| {
        sign * (whole + f64::from(fraction) * unit) * 2f64.powi(exponent)
    };
    match exponent {
        0 => scaled(0.0, 1 - bias),
        e if e == (1 << exponent_bits) - 1 && fraction == 0 => sign * f64::INFINITY,
        e if e == (1 << exponent_bits) - 1 => f64::NAN,
        e => scaled(1.0, e as i32 - bias),
    }
}

/// Writes tensors as 64-bit floats, by name.
pub(crate) fn write(path: &Path, tensors: &[NamedTensor]) -> Result<(), String> {
    let data: Vec<Vec<u8>> = tensors
        .iter()
        .map(|named| named.tensor.data.iter().flat_map(|v| v.to_le_bytes()).collect())
        .collect();
    let cannot = |why: String| format!("cannot write `{}`: {why}", path.display());
    let views = tensors.iter().zip(&data).map(|(named, data)| {
        let view = TensorView::new(Dtype::F64, named.tensor.sizes.clone(), data);
        view.map(|view| (named.name.clone(), view)).map_err(|e| cannot(e.to_string()))
    });
    let views = views.collect::<Result<Vec<_>, _>>()?;
    let bytes = safetensors::serialize(views, None).map_err(|e| cannot(e.to_string()))?;
    replace(path, &|out| out.write_all(&bytes)).map_err(|e| cannot(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_what_their_bits_say() {
        let half = |bits: u16| numbers(Dtype::F16, &bits.to_le_bytes()).unwrap()[0];
        assert_eq!([half(0x3c00), half(0xc000), half(0x0001)], [1.0, -2.0, 2f64.powi(-24)]);
        assert_eq!([half(0x7bff), half(0xfc00)], [65504.0, f64::NEG_INFINITY]);
        assert!(half(0x7c01).is_nan());
        let brain = |bits: u16| numbers(Dtype::BF16, &bits.to_le_bytes()).unwrap()[0];
        assert_eq!([brain(0x3f80), brain(0xc040)], [1.0, -3.0]);
    }
}
