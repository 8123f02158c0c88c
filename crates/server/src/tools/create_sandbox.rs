//! `create_sandbox`: a place that stays between calls.

use belljar_engine::{CreateRequest, Engine, Principal, SandboxId, Wants, Wish};
use rmcp::model::CallToolResult;

use super::{Arguments, BadArgument, Call, ToolError, upload};
use crate::answer;

const ARGUMENTS: &[&str] = &["template", "timeout", "env", "network", "packages", "limits", "files"];
const LIMITS: &[&str] = &["memory_mb", "cpus", "processes", "open_files", "disk_mb", "output_kb"];

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// No number can overflow on its way to bytes; what is allowed is the engine's to say.
const AMOUNT_MAX: u64 = 1 << 40;

pub(super) async fn call(mut call: Call<'_>) -> Result<CallToolResult, ToolError> {
    let mut arguments = Arguments::new(call.arguments.take(), ARGUMENTS)?;
    let request = CreateRequest {
        template: arguments.optional_text("template")?,
        idle: arguments.optional_seconds("timeout")?,
        env: arguments.strings("env")?,
        wants: Wants { packages: arguments.list("packages")?, network: arguments.list("network")? },
        wish: wish(arguments.object("limits", LIMITS)?)?,
    };
    // Read before anything is made.
    let files = upload::named(arguments.strings("files")?)?;
    let info = call.engine.create(call.who, request).await?;
    let mut half_made = HalfMade { engine: call.engine.clone(), who: call.who.clone(), id: Some(info.id.clone()) };
    let written = upload::write_all(&call, info.id.as_str(), files).await;
    half_made.id = None;
    if let Err(error) = written {
        let _ = call.engine.destroy(call.who, info.id.as_str()).await;
        return Err(error);
    }
    Ok(answer::created(&info))
}

/// A sandbox that nobody was told of. If its caller goes while its files are written, it would be there until it expires.
struct HalfMade {
    engine: Engine,
    who: Principal,
    id: Option<SandboxId>,
}

impl Drop for HalfMade {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let (engine, who) = (self.engine.clone(), self.who.clone());
            tokio::spawn(async move { engine.destroy(&who, id.as_str()).await });
        }
    }
}

fn wish(mut limits: Arguments) -> Result<Wish, BadArgument> {
    let mut bytes = |name: &str, unit| -> Result<Option<u64>, BadArgument> {
        Ok(limits.optional_whole(name, 1, AMOUNT_MAX)?.map(|amount| amount * unit))
    };
    let (memory_bytes, disk_bytes, output_bytes) =
        (bytes("memory_mb", MIB)?, bytes("disk_mb", MIB)?, bytes("output_kb", KIB)?);
    let mut amount = |name: &str| -> Result<Option<u32>, BadArgument> {
        let amount = limits.optional_whole(name, 1, u32::MAX.into())?;
        Ok(amount.and_then(|amount| u32::try_from(amount).ok()))
    };
    Ok(Wish {
        memory_bytes,
        processes: amount("processes")?,
        open_files: amount("open_files")?,
        disk_bytes,
        output_bytes,
        cpu_milli: limits.optional_milli("cpus")?,
    })
}
