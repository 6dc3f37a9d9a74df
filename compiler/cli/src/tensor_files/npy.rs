//! `.npy` files: one tensor each.

use std::path::Path;

use npyz::WriterBuilder;
use shard_runtime::{NamedTensor, Tensor};

use super::{MAX_BYTES, npy_header};
use crate::output::{file_name, replace};

/// Reads numbers of any plain type. The sizes that the header states are not trusted: memory grows
/// with the data that are there.
pub(crate) fn read(path: &Path) -> Result<Tensor, String> {
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    let reader = std::io::Read::take(std::io::BufReader::new(file), MAX_BYTES);
    let npy = npyz::NpyFile::new(npy_header::checked(reader)?).map_err(|e| e.to_string())?;
    let sizes: Option<Vec<usize>> = npy.shape().iter().map(|s| usize::try_from(*s).ok()).collect();
    let sizes = sizes.ok_or("its shape is too large")?;
    let elements =
        sizes.iter().try_fold(1usize, |n, s| n.checked_mul(*s)).filter(|n| *n as u64 <= MAX_BYTES);
    let elements = elements.ok_or("its shape is too large")?;
    let fortran = npy.order() == npyz::Order::Fortran;
    let data = read_numbers(npy)?;
    if data.len() != elements {
        return Err(format!("it has {} elements, and its shape has {elements}", data.len()));
    }
    if !fortran {
        return Tensor::new(sizes, data)
            .ok_or_else(|| "its shape does not fit its data".to_string());
    }
    let reversed = Tensor::new(sizes.iter().rev().copied().collect(), data)
        .ok_or("its shape does not fit its data")?;
    Ok(reversed.transposed(&(0..sizes.len()).rev().collect::<Vec<_>>()))
}

fn read_numbers<R: std::io::Read>(npy: npyz::NpyFile<R>) -> Result<Vec<f64>, String> {
    let dtype = npy.dtype().descr();
    // Each type is tried in turn: one that does not fit hands the file back.
    macro_rules! read_as {
        ($npy:ident: $($t:ty => $convert:expr),+ $(,)?) => {{
            $(let $npy = match $npy.try_data::<$t>() {
                Ok(data) => {
                    let data = data.map(|v| v.map($convert)).collect::<Result<_, _>>();
                    return data.map_err(|e| e.to_string());
                }
                Err(npy) => npy,
            };)+
            drop($npy);
        }};
    }
    read_as!(npy:
        f64 => |v| v, f32 => f64::from, bool => |v| f64::from(u8::from(v)),
        i64 => |v| v as f64, i32 => f64::from, i16 => f64::from, i8 => f64::from,
        u64 => |v| v as f64, u32 => f64::from, u16 => f64::from, u8 => f64::from,
    );
    Err(format!("its numbers are of the type {dtype}, and a plain number type is needed"))
}

/// Writes `folder/NAME.npy` with floats of 64 bits. IR text may give a result any name: the file
/// stays in the folder.
pub(crate) fn write(folder: &Path, output: &NamedTensor) -> Result<(), String> {
    let path = folder.join(format!("{}.npy", file_name(&output.name)));
    let shape: Vec<u64> = output.tensor.sizes.iter().map(|s| *s as u64).collect();
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        replace(&path, &|out| {
            let mut writer =
                npyz::WriteOptions::new().default_dtype().shape(&shape).writer(out).begin_nd()?;
            writer.extend(output.tensor.data.iter().copied())?;
            writer.finish()
        })
    };
    write().map_err(|error| format!("cannot write `{}`: {error}", path.display()))
}
