//! The server's own process, when nobody asks anything of it.

use super::{Measured, Stage};
use crate::cli::bench::processes;
use crate::cli::bench::report::{Column, Row};

const MIB_MAX: f64 = 25.0;

pub(super) fn measure(stage: &Stage) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    for (name, flags) in [("with a pool", [].as_slice()), ("without a pool", &["--no-pool"])] {
        let server = stage.launch.http(flags)?;
        let mib = rss_mib(server.pid())?;
        let row = Row::new(name)
            .with(Column::Rss, mib)
            .with(Column::Threads, processes::threads(server.pid()) as f64)
            .with(Column::Descriptors, processes::open_files(server.pid()) as f64);
        measured.findings.rows.push(row);
        let target = format!("≤ {MIB_MAX} MiB");
        measured.judge(format!("server idle over HTTP, {name}, resident"), target, format!("{mib:.1}"), mib <= MIB_MAX);
    }
    Ok(measured)
}

pub(super) fn rss_mib(server: u32) -> anyhow::Result<f64> {
    Ok(processes::status_kib(server, "VmRSS:")? as f64 / 1024.0)
}
