//! The programs and the chip that the inputs of a certificate describe.

use shard_check::CheckOptions;
use shard_cost::Hardware;
use shard_ir::Program;
use shard_words::SourceFile;

use crate::format::{CertificateError, Inputs};

/// The programs of all layers, each in all its phases in the order of the file, and the chip.
///
/// Errors: the source does not check, or the hardware file cannot be read.
pub fn derive(inputs: &Inputs) -> Result<(Vec<Program>, Hardware), CertificateError> {
    let file = SourceFile::new(inputs.file.as_str(), inputs.source.as_str());
    let options = CheckOptions {
        dim_overrides: inputs.dims.clone(),
        mesh_override: inputs.mesh.clone(),
        strict: inputs.strict,
    };
    let checked = shard_check::check_source(&file, &options);
    if let Some(error) = checked.diagnostics.iter().find(|d| d.is_error()) {
        return Err(CertificateError::new(format!("the source does not check: {}", error.message)));
    }
    let hardware = Hardware::parse(&inputs.hardware).map_err(|error| {
        CertificateError::new(format!("the hardware file cannot be read: {error}"))
    })?;
    let hardware = match inputs.memory_limit {
        Some(bytes) => hardware.with_memory_limit(bytes),
        None => hardware,
    };
    Ok((checked.programs, hardware))
}

/// The programs of a layer, one for each phase; an error where the source has no such layer.
pub fn phases_of<'p>(
    programs: &'p [Program],
    layer: &str,
) -> Result<Vec<&'p Program>, CertificateError> {
    let phases: Vec<&Program> = programs.iter().filter(|program| program.name == layer).collect();
    if phases.is_empty() {
        Err(CertificateError::new("the source has no such layer"))
    } else {
        Ok(phases)
    }
}
