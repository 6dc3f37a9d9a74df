//! `shardc verify-certificate FILE`.

use std::path::PathBuf;

use shard_report::printable::escaped_name;
use shard_search::Proof;
use shard_search::certificate::{Verified, verify_certificate};

use crate::args::Format;
use crate::console::{Console, Outcome, Status, problem};
use crate::input::read_at_most;

/// `verify-certificate`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyCertificateArgs {
    /// What `explain --certificate` wrote
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// The largest certificate that is read.
const MAX_BYTES: usize = 1 << 30;

pub(crate) fn run(args: &VerifyCertificateArgs, console: &mut Console) -> Outcome {
    let name = args.file.display();
    let file = read_at_most(&args.file, MAX_BYTES)
        .map_err(|why| console.usage(&format!("cannot read `{name}`: {why}"), None))?;
    let layers = verify_certificate(&file.text).map_err(|error| {
        console
            .report(None, vec![problem(&format!("`{name}` proves nothing: {error}"), Vec::new())]);
        Status::Wrong
    })?;
    match console.format {
        Format::Text => console.people(&layers.iter().map(describe).collect::<String>())?,
        Format::Json => {
            console.result(&shard_report::json::verify_certificate::verified(&layers))?
        }
    }
    // An unproven layer fails the check as a false one does: a script that reads the status alone
    // must not take it for proven.
    if layers.iter().all(Verified::is_proven) { Ok(()) } else { Err(Status::Wrong) }
}

fn describe(layer: &Verified) -> String {
    let (cost, bound) = (layer.cost.0, layer.lower_bound.0);
    let claim = match layer.proof {
        Some(Proof::Certificate) => "proven: no plan of the plan space takes less",
        Some(Proof::Search) => {
            "not proven by prices: no plan takes less than the bound; that none lies between, \
                only the search says"
        }
        None => "not proven by prices: no plan takes less than the bound",
    };
    let name = escaped_name(&layer.layer);
    // A file can call any chip by a known name.
    let chip = if layer.built_in {
        String::new()
    } else {
        format!("  on the chip of the file, which is no built-in `{}`\n", escaped_name(&layer.chip))
    };
    let limit = layer
        .limit
        .map_or_else(String::new, |limit| format!("  its forms are not bounded: {limit}\n"));
    let unshown =
        layer.unshown.map_or_else(String::new, |why| format!("  the file says why: {why}\n"));
    format!(
        "{name}: {claim}\n  cost {cost} ps, bound {bound} ps, {} \
            inequalities\n{limit}{unshown}{chip}",
        layer.inequalities
    )
}
