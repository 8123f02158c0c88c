//! OAuth 2.1: a person logs in with a browser once; after that the tokens are kept and renewed here.

use std::path::Path;

use rmcp::transport::auth::OAuthClientConfig;
use rmcp::transport::{AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession};
use tokio::net::TcpListener;

use super::callback;
use super::config::Way;
use super::failure::upstream;
use super::hidden::Hidden;
use super::server::Server;
use super::tokens::Tokens;
use super::words::clean;
use crate::error::CallError;

const CLIENT_NAME: &str = "Belljar";

fn failed(server: &str, what: &str, error: &AuthError) -> CallError {
    upstream(server, format!("{what} at `{server}`: {}", clean(&error.to_string(), 400)))
}

/// What adds the stored token to requests, if there is one, and renews it.
pub(super) async fn manager(
    server: &Server,
    url: &Hidden,
    directory: &Path,
) -> Result<AuthorizationManager, CallError> {
    let name = &server.config.name;
    let tokens = Tokens::new(directory, url.reveal());
    let secret = tokens.secret().or_else(|| server.config.oauth.client_secret.clone());
    let id = tokens.client();
    let manager = AuthorizationManager::new(url.reveal()).await;
    let mut manager = manager.map_err(|error| failed(name, "a login is not possible", &error))?;
    manager.set_credential_store(tokens);
    // Without the other side's addresses a token cannot be renewed, but it may still hold.
    match manager.initialize_from_store().await {
        Ok(true) => {
            if let (Some(id), Some(secret)) = (id, secret) {
                let client =
                    OAuthClientConfig::new(id, "http://127.0.0.1/callback").with_client_secret(secret.reveal());
                manager
                    .configure_client(client)
                    .map_err(|error| failed(name, "the stored login cannot be used", &error))?;
            }
        }
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(server = name, error = clean(&error.to_string(), 300), "the login cannot be renewed")
        }
    }
    Ok(manager)
}

/// The whole flow: who is asked, registration, the browser, the code, the tokens.
pub(super) async fn login(server: &Server, open: impl Fn(&str)) -> Result<(), CallError> {
    let name = &server.config.name;
    let Way::Http { url, headers, .. } = &server.config.way else {
        return Err(upstream(name, format!("`{name}` is a process and takes no login; give it a token in \"env\"")));
    };
    if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
        return Err(upstream(
            name,
            format!("`{name}` has an Authorization header in its configuration; remove it to log in"),
        ));
    }
    let Some(directory) = &server.settings.tokens else {
        return Err(upstream(name, "there is no place for tokens; name one in the settings"));
    };
    let tokens = Tokens::new(directory, url.reveal());
    let manager = AuthorizationManager::new(url.reveal()).await;
    let mut manager = manager.map_err(|error| failed(name, "a login is not possible", &error))?;
    manager.set_credential_store(tokens.clone());
    let wanted = server.wanted();
    let found = manager.resolve_metadata_from_challenge(wanted.challenge.as_deref()).await;
    let found = found.map_err(|error| failed(name, "no login was found", &error))?;
    manager.set_metadata(found.metadata);

    let listener = TcpListener::bind(("127.0.0.1", 0)).await;
    let listener =
        listener.map_err(|error| upstream(name, format!("no port of this machine is free for the login: {error}")))?;
    let port = listener.local_addr().map(|address| address.port()).unwrap_or_default();
    let redirect = format!("http://127.0.0.1:{port}/callback");

    let oauth = &server.config.oauth;
    let scopes = match oauth.scopes.is_empty() {
        // What was asked for before is asked for again: a new token takes the old one's place.
        true => {
            let mut scopes = wanted.scopes;
            for scope in manager.select_initial_scopes(&[]).await {
                if !scopes.contains(&scope) {
                    scopes.push(scope);
                }
            }
            scopes
        }
        false => oauth.scopes.clone(),
    };
    server.asked_for(scopes.clone());
    let (id, secret) = match &oauth.client_id {
        Some(id) => (id.clone(), oauth.client_secret.clone()),
        None => {
            let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
            let client = manager.register_client(CLIENT_NAME, &redirect, &scopes).await.map_err(|error| {
                let error = failed(name, "this client could not be registered", &error);
                let message =
                    format!("{}; register one by hand and write its \"oauth\": {{\"client_id\": ...}}", error.message);
                CallError { message, ..error }
            })?;
            (client.client_id, client.client_secret.map(Hidden::new))
        }
    };
    let mut request = AuthorizationRequest::new(redirect).with_scopes(scopes).with_preregistered_client(id);
    if let Some(secret) = &secret {
        request = request.with_client_secret(secret.reveal());
    }
    tokens.set_secret(secret);
    let session = AuthorizationSession::new(manager, request).await;
    let session = session.map_err(|(_, error)| failed(name, "the login could not be begun", &error))?;
    let address = session.get_authorization_url();
    let state = callback::state(address).ok_or_else(|| upstream(name, "the login has no state, and is refused"))?;
    open(address);
    let waited = tokio::time::timeout(server.settings.login_limit, callback::wait(&listener, &state)).await;
    let answer = waited
        .map_err(|_| upstream(name, format!("nobody finished the login at `{name}`; run it again")))?
        .map_err(|error| upstream(name, format!("the login at `{name}` was refused: {}", clean(&error, 300))))?;
    let exchanged = session.handle_callback_with_issuer(&answer.code, &state, answer.issuer.as_deref()).await;
    exchanged.map_err(|error| failed(name, "the login failed", &error))?;
    Ok(())
}

pub(super) fn logout(server: &Server) -> Result<bool, CallError> {
    let name = &server.config.name;
    let (Way::Http { url, .. }, Some(directory)) = (&server.config.way, &server.settings.tokens) else {
        return Ok(false);
    };
    Tokens::new(directory, url.reveal())
        .remove()
        .map_err(|error| upstream(name, format!("the tokens of `{name}` could not be removed: {error}")))
}
