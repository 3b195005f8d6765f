//! The reports of all services that run here, asked for at the same time.

use serde_json::Value;
use sheaf_daemon::control::{self, Error, Request, ServiceName};
use sheaf_stage::Duration;

/// Time for each report. All services are asked together, so services that hang delay the whole by
/// no more than this.
const DEADLINE: Duration = Duration::from_secs(1);

/// Report of one service.
#[derive(Clone, Debug)]
pub struct Report {
    /// Kind of the service, such as `aggregate`; `run` is the supervisor.
    pub kind: &'static str,
    /// Its interface.
    pub name: String,
    /// Its report, or the error in place of one.
    pub value: Result<Value, String>,
}

/// Asks all services of this network namespace.
pub fn gather() -> anyhow::Result<Vec<Report>> {
    Ok(ask(control::services()?))
}

/// Asks these services at the same time; returns the reports in the same order, without those of
/// services that do not run.
pub fn ask(services: Vec<ServiceName>) -> Vec<Report> {
    std::thread::scope(|scope| {
        let ask = |service: ServiceName| scope.spawn(move || report(&service));
        let asked: Vec<_> = services.into_iter().map(ask).collect();
        asked.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    })
}

fn report(service: &ServiceName) -> Option<Report> {
    let value = match control::ask_within(service, &Request::Report {}, DEADLINE) {
        Err(Error::NotRunning(_)) => return None,
        value => value.map_err(|error| error.to_string()),
    };
    Some(Report { kind: service.kind().name(), name: service.name().to_owned(), value })
}
