//! `shardc run --engine`: a plan executed by JAX or PyTorch, in processes of Python.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::ValueEnum;
use shard_export::{EngineSystem, Floats};
use shard_ir::{InstrId, Plan};
use shard_report::json::run::EngineSent;
use shard_runtime::{Engine, NamedTensor, Tensor};

use crate::commands::engine_sent;
use crate::console::{Console, Outcome};
use crate::tensor_files::npy;

/// Which system `run` executes on, and how it is started.
#[derive(Debug, clap::Args)]
pub(crate) struct EngineArgs {
    /// Execute the plan there, and not on simulated devices; results are compared all the same
    #[arg(long, value_enum, value_name = "ENGINE")]
    pub(crate) engine: Option<EngineName>,
    /// The Python that has the engine; by default that of SHARDC_PYTHON, else python3
    #[arg(long, value_name = "PATH", requires = "engine")]
    pub(crate) python: Option<PathBuf>,
    /// How many processes share the devices of the plan, each with as many
    #[arg(long, value_name = "N", default_value_t = 1, requires = "engine")]
    pub(crate) processes: u64,
    /// What starts a process, in front of its command; {} is its number: "ssh host{}"
    #[arg(long, value_name = "COMMAND", requires = "engine")]
    pub(crate) launch: Option<String>,
    /// Where several processes meet: a port of the machine of process 0
    #[arg(long, value_name = "HOST:PORT", requires = "engine")]
    pub(crate) coordinator: Option<String>,
    /// A folder that all processes see, for their data; without it, a temporary one
    #[arg(long, value_name = "DIR", requires = "engine")]
    pub(crate) scratch: Option<PathBuf>,
}

/// A system that `run` executes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum EngineName {
    Jax,
    Torch,
}

/// The lines of a process's last output that a message has.
const LINES: usize = 12;

/// The engine that is asked for, if any. With `stated` it computes in the dtypes of the plan, else
/// in floats of 64 bits.
pub(crate) fn engine(
    args: &EngineArgs,
    stated: bool,
    console: &mut Console,
) -> Outcome<Option<Arc<Python>>> {
    let system = match args.engine {
        None => return Ok(None),
        Some(EngineName::Jax) => EngineSystem::Jax,
        Some(EngineName::Torch) => EngineSystem::Torch,
    };
    let set = std::env::var_os("SHARDC_PYTHON").filter(|path| !path.is_empty()).map(PathBuf::from);
    let python = args.python.clone().or(set).unwrap_or_else(|| PathBuf::from("python3"));
    // Processes on other machines have a Python of their own.
    if args.launch.is_none() {
        is_there(system, &python, console)?;
    }
    Ok(Some(Arc::new(Python {
        system,
        python,
        floats: if stated { Floats::Stated } else { Floats::F64 },
        processes: args.processes,
        launch: args.launch.clone(),
        coordinator: args.coordinator.clone(),
        scratch: args.scratch.clone(),
        runs: AtomicUsize::new(0),
        sent: Mutex::new(None),
    })))
}

/// Checks that there is such a Python and that it has the engine; the error says what to type.
fn is_there(system: EngineSystem, python: &Path, console: &mut Console) -> Outcome {
    let (name, shown) = (system.name(), python.display());
    let code = format!("import importlib.util as u, sys; sys.exit(not u.find_spec('{name}'))");
    let found = Command::new(python).args(["-c", &code]).stdin(Stdio::null()).output();
    match found {
        Ok(ended) if ended.status.success() => Ok(()),
        Ok(_) => {
            let message = format!("the engine {name} is missing: `{shown}` has no module `{name}`");
            let help = format!("{shown} -m pip install {name} numpy");
            Err(console.usage(&message, Some(help)))
        }
        Err(error) => {
            let message = format!("the engine {name} cannot be started: `{shown}`: {error}");
            let help = "--python PATH or SHARDC_PYTHON=PATH, of a Python that has it".to_string();
            Err(console.usage(&message, Some(help)))
        }
    }
}

/// A system in processes of Python.
#[derive(Debug)]
pub(crate) struct Python {
    system: EngineSystem,
    python: PathBuf,
    floats: Floats,
    processes: u64,
    launch: Option<String>,
    coordinator: Option<String>,
    scratch: Option<PathBuf>,
    /// The number of plans that were executed, each in a folder of its own.
    runs: AtomicUsize,
    /// What the plan that was executed last has sent.
    sent: Mutex<Option<Vec<EngineSent>>>,
}

impl Python {
    /// What the plan that was executed last has sent.
    pub(crate) fn take_sent(&self) -> Option<Vec<EngineSent>> {
        self.sent.lock().ok()?.take()
    }
}

impl Engine for Python {
    fn execute(
        &self,
        plan: &Plan,
        parameters: &[(InstrId, Vec<Tensor>)],
    ) -> Result<Vec<Vec<Tensor>>, String> {
        let devices = plan.mesh.devices();
        if !devices.is_multiple_of(self.processes) {
            let processes = self.processes;
            return Err(format!(
                "{devices} devices are not shared evenly by {processes} processes"
            ));
        }
        let module = self.system.module(plan, self.floats).map_err(|error| error.to_string())?;
        let folder = Folder::new(self.scratch.as_deref(), self.runs.fetch_add(1, Ordering::SeqCst))
            .map_err(|error| format!("there is no folder for the engine's data: {error}"))?;
        let files = [
            ("module.py", module),
            ("engine.py", self.system.script().to_string()),
            ("engine_hosts.py", self.system.hosts().to_string()),
            ("devices", devices.to_string()),
        ];
        for (name, text) in files {
            let path = folder.path.join(name);
            fs::write(&path, text)
                .map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
        }
        for (at, (_, blocks)) in parameters.iter().enumerate() {
            npy::write(&folder.path.join("in"), &one_behind_another(at, blocks)?)?;
        }
        self.run(&folder.path)?;
        let planned = self.system.sends(plan).map_err(|error| error.to_string())?;
        let sent = engine_sent::sent(self.system, &folder.path, devices, &planned);
        let sent = sent.map_err(|why| format!("what was sent is not known: {why}"))?;
        if let Ok(mut last) = self.sent.lock() {
            *last = Some(sent);
        }
        (0..plan.outputs.len())
            .map(|at| {
                (0..devices)
                    .map(|device| {
                        let path = folder.path.join("out").join(format!("{at}.{device}.npy"));
                        npy::read(&path).map_err(|why| format!("a result of {device}: {why}"))
                    })
                    .collect()
            })
            .collect()
    }
}

/// The blocks of all devices as one tensor.
fn one_behind_another(at: usize, blocks: &[Tensor]) -> Result<NamedTensor, String> {
    let sizes = blocks.first().map(|block| block.sizes.clone()).unwrap_or_default();
    let sizes = std::iter::once(blocks.len()).chain(sizes).collect();
    let data = blocks.iter().flat_map(|block| block.data.iter().copied()).collect();
    let tensor = Tensor::new(sizes, data).ok_or("the blocks of a parameter differ in shape")?;
    Ok(NamedTensor { name: at.to_string(), tensor })
}

impl Python {
    /// Starts all processes and waits for them; where one fails, the others are ended.
    fn run(&self, folder: &Path) -> Result<(), String> {
        let coordinator = match (&self.coordinator, self.processes) {
            (Some(given), _) => given.clone(),
            (None, 1) => String::new(),
            (None, _) => free_port().map_err(|error| format!("no port is free: {error}"))?,
        };
        let mut running = Processes(Vec::new());
        for process in 0..self.processes {
            let mut command = self.command(folder, process, &coordinator);
            let log = folder.join(format!("log.{process}"));
            let started = File::create(&log).and_then(|out| Ok((out.try_clone()?, out))).and_then(
                |(out, err)| command.stdin(Stdio::null()).stdout(out).stderr(err).spawn(),
            );
            let child = started.map_err(|error| {
                let program = command.get_program().to_string_lossy().into_owned();
                format!(
                    "process {process} of {} cannot be started: `{program}`: {error}",
                    self.system.name()
                )
            })?;
            running.0.push((child, log));
        }
        running.wait(self.system.name())
    }

    fn command(&self, folder: &Path, process: u64, coordinator: &str) -> Command {
        let number = process.to_string();
        let launch = self.launch.as_deref().unwrap_or_default().replace("{}", &number);
        let mut words: Vec<std::ffi::OsString> =
            launch.split_whitespace().map(Into::into).collect();
        words.extend([self.python.clone().into(), folder.join("engine.py").into(), folder.into()]);
        if self.processes > 1 {
            let processes = self.processes.to_string();
            let options = [
                ["--process", &number],
                ["--processes", &processes],
                ["--coordinator", coordinator],
            ];
            words.extend(options.into_iter().flatten().map(Into::into));
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }
}

fn free_port() -> std::io::Result<String> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.to_string())
}

/// Processes, each with the file that it prints to. They are killed when this is dropped.
struct Processes(Vec<(Child, PathBuf)>);

impl Processes {
    fn wait(mut self, system: &str) -> Result<(), String> {
        let mut waiting: Vec<usize> = (0..self.0.len()).collect();
        while !waiting.is_empty() {
            let mut still = Vec::new();
            for at in waiting {
                let (child, log) = &mut self.0[at];
                match child.try_wait() {
                    Ok(None) => still.push(at),
                    Ok(Some(status)) if status.success() => {}
                    Ok(Some(status)) => {
                        let said = fs::read_to_string(log).unwrap_or_default();
                        let lines: Vec<&str> = said.lines().collect();
                        let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
                        return Err(format!(
                            "process {at} of {system} ended with {status}\n{last}"
                        ));
                    }
                    Err(error) => return Err(format!("process {at} of {system}: {error}")),
                }
            }
            waiting = still;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            // Killing a process that has ended fails, which is no matter.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A folder for one plan, which is removed when this is dropped.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new(scratch: Option<&Path>, run: usize) -> std::io::Result<Folder> {
        let inside = scratch.map_or_else(std::env::temp_dir, Path::to_path_buf);
        if scratch.is_some() {
            fs::create_dir_all(&inside)?;
        }
        // A folder of this name may be another process's, and is left alone.
        for try_at in 0..1000 {
            let path = inside.join(format!("shardc-run-{}-{run}-{try_at}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {
                    let folder = Folder { path: fs::canonicalize(path)? };
                    fs::create_dir(folder.path.join("in"))?;
                    fs::create_dir(folder.path.join("out"))?;
                    return Ok(folder);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
