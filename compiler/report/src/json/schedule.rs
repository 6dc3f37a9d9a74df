//! `shardc.schedule/1`: schedules as devices execute them, written by `lower --emit schedule` and
//! read by `run`.

use serde::{Deserialize, Serialize};
use shard_ir::{Allocation, Execution, InstrId, Picoseconds, Task, Work};
use shard_schedule::overlap::{Executable, executable, verify_execution};

use super::text;
use crate::Layer;
use crate::timeline::shown;

/// The schema of the document.
const SCHEMA: &str = "shardc.schedule/1";

#[derive(Debug, Serialize, Deserialize)]
struct ScheduleJson {
    schema: String,
    layers: Vec<LayerJson>,
}

#[derive(Debug, Serialize, Deserialize)]
struct LayerJson {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    hardware: String,
    makespan_ps: u64,
    /// The most bytes of buffers at once, without weights and caches.
    peak_bytes: u64,
    /// The plan as IR text, every copy of a block and every layer of a stack written out.
    plan: Vec<String>,
    /// For each instruction the one in whose memory its value lies; null for one that passes inside
    /// a kernel.
    held_by: Vec<Option<u32>>,
    streams: Vec<String>,
    tasks: Vec<TaskJson>,
    buffers: Vec<BufferJson>,
}

#[derive(Debug, Serialize, Deserialize)]
struct TaskJson {
    work: WorkJson,
    /// Which chunk of a loop, from 0, or which of its transfers, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    part: Option<u64>,
    /// The instructions that it is of.
    ids: Vec<u32>,
    /// The streams, by their places.
    streams: Vec<usize>,
    /// The tasks that have to be done before, by their places.
    waits: Vec<usize>,
    start_ps: u64,
    finish_ps: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WorkJson {
    Kernel,
    Transfer,
    Chunk,
    Send,
    End,
}

#[derive(Debug, Serialize, Deserialize)]
struct BufferJson {
    /// The instruction whose value it holds first.
    id: u32,
    /// It holds the chunks of a loop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    of_loop: bool,
    address: u64,
    bytes: u64,
    from_ps: u64,
    until_ps: u64,
}

/// A schedule that was read.
#[derive(Clone, Debug)]
pub struct ReadSchedule {
    /// The chip that it was made for.
    pub hardware: String,
    /// What is executed.
    pub execution: Execution,
}

/// The schedules of layers: of whole stacks where they can be written out.
pub fn schedules(layers: &[Layer<'_>]) -> String {
    let layers = layers.iter().filter_map(layer).collect();
    text(&ScheduleJson { schema: SCHEMA.to_string(), layers })
}

fn layer(layer: &Layer<'_>) -> Option<LayerJson> {
    let (plan, whole) = (layer.plan(), layer.timeline.whole());
    let made = executable(plan, layer.price, whole, shown(whole))
        .or_else(|| executable(plan, layer.price, layer.timeline, shown(layer.timeline)));
    let Executable { execution, .. } = made?;
    let tasks = execution.tasks.iter().map(task).collect();
    Some(LayerJson {
        name: plan.name.clone(),
        phase: plan.phase.clone(),
        hardware: layer.hardware.name.clone(),
        makespan_ps: execution.makespan().0,
        peak_bytes: execution.peak_bytes,
        plan: shard_ir::text::print(&execution.plan).lines().map(str::to_string).collect(),
        held_by: execution.held_by.iter().map(|held| held.map(|id| id.0)).collect(),
        tasks,
        buffers: execution.buffers.iter().map(buffer).collect(),
        streams: execution.streams,
    })
}

fn task(task: &Task) -> TaskJson {
    let (work, part) = match task.work {
        Work::Kernel => (WorkJson::Kernel, None),
        Work::Transfer => (WorkJson::Transfer, None),
        Work::Chunk(at) => (WorkJson::Chunk, Some(at)),
        Work::Send(at) => (WorkJson::Send, Some(at)),
        Work::End => (WorkJson::End, None),
    };
    TaskJson {
        work,
        part,
        ids: task.members.iter().map(|id| id.0).collect(),
        streams: task.streams.clone(),
        waits: task.waits.clone(),
        start_ps: task.start.0,
        finish_ps: task.finish.0,
    }
}

fn buffer(allocation: &Allocation) -> BufferJson {
    BufferJson {
        id: allocation.id.0,
        of_loop: allocation.of_loop,
        address: allocation.address,
        bytes: allocation.bytes,
        from_ps: allocation.from.0,
        until_ps: allocation.until.0,
    }
}

/// Whether a JSON text says that it is of schedules.
pub fn is_schedule(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    serde_json::from_str::<Head>(text).is_ok_and(|head| head.schema.starts_with("shardc.schedule/"))
}

/// The schedules of a document, each verified; or why they cannot be executed.
pub fn read(text: &str) -> Result<Vec<ReadSchedule>, String> {
    let document: ScheduleJson = serde_json::from_str(text)
        .map_err(|error| format!("it is no JSON of `lower --emit schedule`: {error}"))?;
    if document.schema != SCHEMA {
        return Err(format!("its schema is `{}`, and `run` takes `{SCHEMA}`", document.schema));
    }
    document.layers.into_iter().map(read_layer).collect()
}

fn read_layer(layer: LayerJson) -> Result<ReadSchedule, String> {
    let of = |why: String| format!("the schedule of its layer `{}` is wrong: {why}", layer.name);
    let text = layer.plan.join("\n") + "\n";
    let mut plans = shard_ir::text::parse(&text).map_err(|error| of(error.message))?;
    let (Some(plan), true) = (plans.pop(), plans.is_empty()) else {
        return Err(of("it has to have one plan".to_string()));
    };
    if let Err(errors) = shard_ir::verify::verify(&plan) {
        return Err(of(errors.first().map(ToString::to_string).unwrap_or_default()));
    }
    let tasks = layer.tasks.iter().map(read_task).collect::<Result<_, String>>();
    let allocation = |buffer: &BufferJson| Allocation {
        id: InstrId(buffer.id),
        of_loop: buffer.of_loop,
        bytes: buffer.bytes,
        address: buffer.address,
        from: Picoseconds(buffer.from_ps),
        until: Picoseconds(buffer.until_ps),
    };
    let execution = Execution {
        plan,
        tasks: tasks.map_err(of)?,
        buffers: layer.buffers.iter().map(allocation).collect(),
        held_by: layer.held_by.iter().map(|held| held.map(InstrId)).collect(),
        peak_bytes: layer.peak_bytes,
        streams: layer.streams.clone(),
    };
    verify_execution(&execution).map_err(|error| of(error.to_string()))?;
    if execution.makespan().0 != layer.makespan_ps {
        let (found, said) = (execution.makespan().0, layer.makespan_ps);
        return Err(of(format!("its last task is done after {found} ps, and it says {said}")));
    }
    Ok(ReadSchedule { hardware: layer.hardware, execution })
}

fn read_task(task: &TaskJson) -> Result<Task, String> {
    let work = match (task.work, task.part) {
        (WorkJson::Kernel, None) => Work::Kernel,
        (WorkJson::Transfer, None) => Work::Transfer,
        (WorkJson::Chunk, Some(at)) => Work::Chunk(at),
        (WorkJson::Send, Some(at)) if at > 0 => Work::Send(at),
        (WorkJson::End, None) => Work::End,
        (
            WorkJson::Kernel
            | WorkJson::Transfer
            | WorkJson::Chunk
            | WorkJson::Send
            | WorkJson::End,
            _,
        ) => {
            return Err(format!("a task of {:?} has a wrong `part`", task.ids));
        }
    };
    Ok(Task {
        work,
        members: task.ids.iter().map(|id| InstrId(*id)).collect(),
        streams: task.streams.clone(),
        waits: task.waits.clone(),
        start: Picoseconds(task.start_ps),
        finish: Picoseconds(task.finish_ps),
    })
}
