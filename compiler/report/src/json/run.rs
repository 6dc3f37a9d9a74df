//! `shardc.run/1`.

use serde::Serialize;

use super::text;
use crate::object;

/// What was found in executing one layer.
#[derive(Clone, Debug, Serialize)]
pub struct RunLayer {
    /// The layer's name.
    pub name: String,
    /// The phase whose sizes it has; absent in a file without phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Whether the sharded and the unsharded program agree: exactly where the ops allow, else
    /// within the tolerance.
    pub equal: bool,
    /// The largest absolute difference of any element of any result.
    pub max_abs_err: f64,
    /// How many devices there were.
    pub devices: u64,
    /// The system that executed it; absent of simulated devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<&'static str>,
    /// What that system sent, by kind of collective; absent of simulated devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_sent: Option<Vec<EngineSent>>,
    /// Every move, with the bytes counted and those of the model.
    pub collectives: Vec<RunCollective>,
    /// The sizes of the dims that were executed, in the order of the file.
    #[serde(serialize_with = "as_object")]
    pub dims: Vec<(String, u64)>,
    /// What was held, where the overlapped schedule was executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<RunSchedule>,
}

/// What devices have held along a schedule.
#[derive(Clone, Debug, Serialize)]
pub struct RunSchedule {
    /// How many tasks there were.
    pub tasks: usize,
    /// How many layers of a stack, or applications of each block, at most.
    pub copies: u64,
    /// The most bytes of buffers at once, without weights and caches.
    pub peak_bytes: u64,
    /// What the schedule says of that.
    pub model_peak_bytes: u64,
    /// The bytes that buffers lie in.
    pub address_bytes: u64,
}

/// The collectives of one kind that another system has run, of the busiest device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct EngineSent {
    /// The kind, as the system has it.
    pub kind: String,
    /// Elements that were sent.
    pub elements: u64,
    /// Their bytes in the dtypes that were sent.
    pub wire_bytes: u64,
    /// Elements that the plan sends by collectives of this kind.
    pub plan_elements: u64,
}

/// One executed move.
#[derive(Clone, Debug, Serialize)]
pub struct RunCollective {
    /// The instruction.
    pub id: u32,
    /// Bytes that the busiest device sent.
    pub wire_bytes: u64,
    /// What the cost model says of the same sizes.
    pub model_wire_bytes: u64,
}

/// The document of `run --format json`.
pub fn run(layers: &[RunLayer]) -> String {
    text(&object!(RunJson { schema: "shardc.run/1", layers }))
}

fn as_object<S: serde::Serializer>(
    dims: &[(String, u64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    super::Ordered(dims.to_vec()).serialize(serializer)
}
