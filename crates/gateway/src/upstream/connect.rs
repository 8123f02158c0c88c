//! From a configuration to a connection over which requests can go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ErrorCode, ErrorData, Implementation, ProtocolVersion,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, NotificationContext, RequestContext, RunningService,
    serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{AuthClient, IntoTransport, StreamableHttpClientTransport};
use rmcp::{ClientHandler, RoleClient, Service};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::config::{Flavour, UpstreamConfig, Way};
use super::failure::{challenge_of_start, of_start, upstream};
use super::hidden::Hidden;
use super::http::Web;
use super::login;
use super::server::Server;
use super::sse::Stream;
use super::stdio;
use super::tap::{Switchboard, Tap};
use crate::error::{CallError, ErrorKind};

/// Our side of a connection: offers nothing, answers every question at once, and hears that the tools have changed.
#[derive(Debug, Clone)]
pub(super) struct Ear {
    pub(super) changed: Arc<Notify>,
}

pub(super) type Client = RunningService<RoleClient, Ear>;

/// A connection, and what is cancelled once no process of it is left.
pub(super) struct Connection<S: Service<RoleClient>> {
    pub(super) client: RunningService<RoleClient, S>,
    pub(super) gone: Option<CancellationToken>,
}

/// Who connects, and as what.
pub(super) struct Side<'a, S> {
    pub(super) service: &'a S,
    /// Hears what comes, in the order in which it comes.
    pub(super) board: Option<&'a Arc<Switchboard>>,
    /// Whether the older lifecycle is wanted, whatever the server can do.
    pub(super) older: bool,
    /// Whether this is the connection that the server's life hangs on; others come and go beside it.
    pub(super) main: bool,
    /// Ends the connection later on.
    pub(super) stop: &'a CancellationToken,
}

/// The newer lifecycle first, or straight the older one for a server that is known to want that.
fn mode(legacy: bool) -> ClientLifecycleMode {
    match legacy {
        true => ClientLifecycleMode::Initialize,
        false => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        },
    }
}

/// The newer one alone, waited for as long as a start may take.
fn modern() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

async fn serve<S, T, E, A>(
    side: &Side<'_, S>,
    transport: T,
    mode: ClientLifecycleMode,
) -> Result<RunningService<RoleClient, S>, ClientInitializeError>
where
    S: Service<RoleClient> + Clone,
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let tap = Tap::new(transport.into_transport(), side.board.cloned());
    serve_client_with_lifecycle_and_ct(side.service.clone(), tap, mode, side.stop.clone()).await
}

/// Connects.
pub(super) async fn connect<S: Service<RoleClient> + Clone>(
    server: &Server,
    side: &Side<'_, S>,
) -> Result<Connection<S>, CallError> {
    match &server.config.way {
        Way::Stdio { command, .. } => process(server, command, side).await,
        Way::Http { url, headers, flavour } => web(server, url, headers, *flavour, side).await,
    }
}

async fn process<S: Service<RoleClient> + Clone>(
    server: &Server,
    command: &str,
    side: &Side<'_, S>,
) -> Result<Connection<S>, CallError> {
    let UpstreamConfig { name, way, result_bytes_max, .. } = &server.config;
    let mut legacy = side.older || server.is_legacy();
    let mut is_modern = false;
    loop {
        let started =
            stdio::start(name, way, &server.settings.environment, *result_bytes_max, &server.words, &server.tasks);
        let (pipe, gone) = started.map_err(|error| {
            let what = command.rsplit('/').next().unwrap_or_default();
            upstream(name, format!("`{name}` could not be started: {what}: {error}; is it installed, and in the PATH?"))
        })?;
        if side.main {
            server.leaving(gone.clone());
        }
        let turned_out_modern = pipe.turned_out_modern();
        let mode = if is_modern { modern() } else { mode(legacy) };
        match serve(side, pipe, mode).await {
            Ok(client) => return Ok(Connection { client, gone: Some(gone) }),
            // It was so slow to start that it was taken for an older one, and would not be spoken to like that.
            Err(_) if !is_modern && turned_out_modern.load(Ordering::Acquire) => {
                gone.cancelled().await;
                tracing::debug!(server = name, "started again, to be waited for");
                is_modern = true;
            }
            // Some of the older ones end when the first thing they hear is not what they expect.
            Err(ClientInitializeError::ConnectionClosed(_)) if !legacy && !is_modern => {
                gone.cancelled().await;
                tracing::debug!(server = name, "ended at the first question; started again in the older manner");
                legacy = true;
            }
            Err(error) => {
                gone.cancelled().await;
                return Err(of_start(name, &error, &server.words.clause()));
            }
        }
    }
}

async fn web<S: Service<RoleClient> + Clone>(
    server: &Server,
    url: &Hidden,
    headers: &[(String, Hidden)],
    flavour: Flavour,
    side: &Side<'_, S>,
) -> Result<Connection<S>, CallError> {
    let name = &server.config.name;
    let unreachable = |error: &dyn std::fmt::Display| upstream(name, format!("`{name}` could not be reached: {error}"));
    let web = Web::new(headers, server.config.result_bytes_max).map_err(|error| unreachable(&error))?;
    let own_token = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let auth = match &server.settings.tokens {
        Some(directory) if !own_token => {
            Some(AuthClient::new(web.clone(), login::manager(server, url, directory).await?))
        }
        _ => None,
    };
    let legacy = side.older || server.is_legacy();
    let mut refused = None;
    if flavour == Flavour::Streamable {
        let begin = async |legacy: bool| {
            let config = StreamableHttpClientTransportConfig::with_uri(url.reveal()).max_sse_event_size(web.bytes_max);
            match &auth {
                Some(auth) => {
                    let transport = StreamableHttpClientTransport::with_client(auth.clone(), config);
                    serve(side, transport, mode(legacy)).await
                }
                None => {
                    serve(side, StreamableHttpClientTransport::with_client(web.clone(), config), mode(legacy)).await
                }
            }
        };
        let client = match begin(legacy).await {
            // Some of the older ones have an answer to everything, which is none to the first question of the newer ones.
            Err(ClientInitializeError::ExpectedInitResponse(_) | ClientInitializeError::ExpectedInitResult(_))
                if !legacy =>
            {
                begin(true).await
            }
            client => client,
        };
        match client {
            Ok(client) => return Ok(Connection { client, gone: None }),
            Err(error) if !web.turned_away() => {
                server.challenged(challenge_of_start(&error));
                return Err(of_start(name, &error, ""));
            }
            Err(error) => {
                tracing::debug!(server = name, %error, "turned the message away; tried as HTTP+SSE");
                refused = Some(of_start(name, &error, ""));
            }
        }
    }
    let stream = Stream::open(name, url.reveal(), web, auth).await.map_err(|error| {
        let error = of_start(name, &ClientInitializeError::transport::<Stream>(error, "open the stream of events"), "");
        match refused {
            Some(first) if error.kind == ErrorKind::Upstream => {
                let message = format!("{}; it has no stream of events either, so is its \"url\" right?", first.message);
                CallError { message, ..first }
            }
            _ => error,
        }
    })?;
    // Whoever speaks this way is of the older protocol.
    let client =
        serve(side, stream, ClientLifecycleMode::Initialize).await.map_err(|error| of_start(name, &error, ""))?;
    Ok(Connection { client, gone: None })
}

fn unsupported(what: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("this client does not support {what}"), None)
}

#[expect(deprecated, reason = "older servers still ask for these, and must be given an answer")]
impl ClientHandler for Ear {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("belljar", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own).with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn create_message(
        &self,
        _params: rmcp::model::CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::CreateMessageResult, ErrorData> {
        Err(unsupported("sampling"))
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(unsupported("roots"))
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Decline))
    }

    async fn on_custom_request(
        &self,
        _request: CustomRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        Err(unsupported("this request"))
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}
