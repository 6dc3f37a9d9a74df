//! `shardc run FILE`.

use std::collections::BTreeMap;
use std::path::Path;

use npyz::WriterBuilder;
use shard_driver::Purpose;
use shard_driver::pipeline::{self, Ran};
use shard_report::json::run::{RunCollective, RunLayer};
use shard_report::printable::escape_plan;
use shard_runtime::{NamedTensor, RunError, RunOptions, Tensor};

use crate::args::{Format, RunArgs};
use crate::commands::compile::compile_file;
use crate::console::{Console, Outcome, Status, problem};
use crate::npy_header;
use crate::output::{file_name, replace};

/// The largest .npy file that is read: what execution could ever hold.
const MAX_NPY_BYTES: u64 = 1 << 31;

pub(crate) fn run(args: &RunArgs, console: &mut Console) -> Outcome {
    let options = RunOptions {
        seed: args.seed,
        inputs: read_inputs(&args.inputs, console)?,
        emulate_dtypes: args.emulate_dtypes,
        tolerance: args.tolerance,
        patient: args.full,
    };
    let compilation = compile_file(&args.file, &args.program, Purpose::Run, console)?;
    let many = compilation.compiled.len() > 1;
    let mut layers = Vec::new();
    let mut text = String::new();
    for (at, (hardware, compiled)) in compilation.compiled.iter().enumerate() {
        let name = &compiled.schedule.plan.name;
        let program = compilation.programs.get(at);
        let pass = console.watch.begin("run", String::new(), (0, 1));
        let ran = pipeline::run(program, compiled, hardware, args.full, &options)
            .map_err(|e| run_error(name, &e, args, console))?;
        drop(pass);
        if let Some(folder) = &args.output {
            let folder = match &compiled.schedule.plan.phase {
                _ if !many => folder.clone(),
                Some(phase) => folder.join(file_name(&format!("{name}.{phase}"))),
                None => folder.join(file_name(name)),
            };
            for output in &ran.report.outputs {
                write_npy(&folder, output).map_err(|why| console.usage(&why, None))?;
            }
        }
        let layer = summary(&ran);
        let mut asked = compiled.schedule.plan.clone();
        escape_plan(&mut asked);
        text.push_str(&describe(&layer, &ran, &asked));
        layers.push(layer);
    }
    match console.format {
        Format::Text => console.people(&text),
        Format::Json => console.result(&shard_report::json::run::run(&layers)),
    }?;
    if layers.iter().all(|l| l.equal && counted_as_modelled(l)) {
        Ok(())
    } else {
        Err(Status::Wrong)
    }
}

/// What is too large to execute, or does not fit its inputs, is wrong usage; anything else is a
/// wrong plan.
fn run_error(layer: &str, error: &RunError, args: &RunArgs, console: &mut Console) -> Status {
    let message = format!("`{layer}` cannot be executed: {error}");
    match error {
        RunError::TooLarge { .. } | RunError::TooMany { .. } => {
            let help = if args.full {
                "leave --full out: small dims of the same divisibility are executed then"
            } else {
                "a smaller mesh: --mesh x=2,y=2"
            };
            console.usage(&message, Some(help.to_string()))
        }
        RunError::TooLong { .. } => {
            let help = "a smaller mesh: --mesh x=2,y=2; or --full, which takes its time, and the \
                sizes of the file";
            console.usage(&message, Some(help.to_string()))
        }
        RunError::Input { .. } => {
            let help = "inputs have the sizes that are executed: --full executes those of the file";
            console.usage(&message, (!args.full).then(|| help.to_string()))
        }
        RunError::Invalid(_)
        | RunError::Overflow { .. }
        | RunError::Schedule { .. }
        | RunError::ReplicasDiffer { .. }
        | RunError::Internal(_) => {
            console.report(None, vec![problem(&message, Vec::new())]);
            Status::Wrong
        }
    }
}

fn summary(ran: &Ran) -> RunLayer {
    let collectives = ran.report.collectives.iter().map(|c| RunCollective {
        id: c.id.0,
        wire_bytes: c.wire_bytes,
        model_wire_bytes: ran.price.of(c.id).collective().map_or(0, |cost| cost.wire_bytes.0),
    });
    RunLayer {
        name: ran.plan.name.clone(),
        phase: ran.plan.phase.clone(),
        equal: ran.report.equal,
        max_abs_err: ran.report.max_abs_err,
        devices: ran.report.devices,
        collectives: collectives.collect(),
        dims: ran.plan.dims.iter().map(|d| (d.name.clone(), d.size)).collect(),
    }
}

fn counted_as_modelled(layer: &RunLayer) -> bool {
    layer.collectives.iter().all(|c| c.wire_bytes == c.model_wire_bytes)
}

fn describe(layer: &RunLayer, ran: &Ran, asked: &shard_ir::Plan) -> String {
    let devices = format!("{} device{}", layer.devices, if layer.devices == 1 { "" } else { "s" });
    let verdict = match (layer.equal, ran.report.exact) {
        (true, true) => format!("equal, exactly, on {devices}"),
        (true, false) => format!(
            "equal on {devices}: largest difference {:e}, results up to {:e}",
            layer.max_abs_err, ran.report.scale
        ),
        (false, _) => format!(
            "DIFFERENT on {devices}: largest difference {:e}, results up to {:e}",
            layer.max_abs_err, ran.report.scale
        ),
    };
    let mut text = format!("{}: {verdict}\n", shard_report::notation::layer_name(asked));
    let shrunk: Vec<String> = asked
        .dims
        .iter()
        .zip(&ran.plan.dims)
        .filter(|(asked, ran)| asked.size != ran.size)
        .map(|(asked, ran)| format!("{}={} for {}", ran.name, ran.size, asked.size))
        .collect();
    if !shrunk.is_empty() {
        text.push_str(&format!("  small dims: {}\n", shrunk.join(", ")));
    }
    let sent: u64 = layer.collectives.iter().map(|c| c.wire_bytes).sum();
    let moves = layer.collectives.len();
    if counted_as_modelled(layer) {
        text.push_str(&format!(
            "  {moves} moves sent {sent} bytes from the busiest devices, as the cost model says\n"
        ));
    }
    for c in layer.collectives.iter().filter(|c| c.wire_bytes != c.model_wire_bytes) {
        text.push_str(&format!(
            "  move %{} sent {} bytes, and the cost model says {}\n",
            c.id, c.wire_bytes, c.model_wire_bytes
        ));
    }
    text
}

fn read_inputs(inputs: &[String], console: &mut Console) -> Outcome<BTreeMap<String, Tensor>> {
    let mut tensors = BTreeMap::new();
    for text in inputs {
        let Some((name, path)) = text.split_once('=') else {
            let help = "--input x=x.npy".to_string();
            return Err(console.usage(&format!("`--input {text}` names no file"), Some(help)));
        };
        let tensor = read_npy(Path::new(path))
            .map_err(|why| console.usage(&format!("cannot read `{path}`: {why}"), None))?;
        tensors.insert(name.to_string(), tensor);
    }
    Ok(tensors)
}

/// Reads numbers of any plain type. What the header promises is not taken for granted: memory grows
/// with what is there.
fn read_npy(path: &Path) -> Result<Tensor, String> {
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    let reader = std::io::Read::take(std::io::BufReader::new(file), MAX_NPY_BYTES);
    let npy = npyz::NpyFile::new(npy_header::checked(reader)?).map_err(|e| e.to_string())?;
    let sizes: Option<Vec<usize>> = npy.shape().iter().map(|s| usize::try_from(*s).ok()).collect();
    let sizes = sizes.ok_or("its shape is too large")?;
    let elements = sizes
        .iter()
        .try_fold(1usize, |n, s| n.checked_mul(*s))
        .filter(|n| *n as u64 <= MAX_NPY_BYTES);
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
    // Each type in turn: the file is handed back by those that do not fit.
    macro_rules! read_as {
        ($npy:ident: $($t:ty => $convert:expr),+ $(,)?) => {{
            $(let $npy = match $npy.try_data::<$t>() {
                Ok(data) => return data.map(|v| v.map($convert)).collect::<Result<_, _>>().map_err(|e| e.to_string()),
                Err(npy) => npy,
            };)+
            drop($npy);
        }};
    }
    read_as!(npy:
        f64 => |v| v, f32 => f64::from, i64 => |v| v as f64, i32 => f64::from, i16 => f64::from, i8 => f64::from,
        u64 => |v| v as f64, u32 => f64::from, u16 => f64::from, u8 => f64::from, bool => |v| f64::from(u8::from(v)),
    );
    Err(format!("its numbers are of the type {dtype}, and a plain number type is needed"))
}

/// Writes `folder/NAME.npy`, of 64-bit floats. IR text may give a result any name: it leads nowhere
/// else.
fn write_npy(folder: &Path, output: &NamedTensor) -> Result<(), String> {
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
