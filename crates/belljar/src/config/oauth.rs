//! The authorization server whose tokens are accepted over HTTP: docs/access.md.

use std::collections::BTreeMap;

use belljar_access::{OauthSettings, Scope};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Value;
use crate::complaint::Complaint;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Oauth {
    pub(crate) issuer: Value<Option<String>>,
    pub(crate) audience: Value<Option<String>>,
    pub(crate) jwks_uri: Value<Option<String>>,
    pub(crate) principal_claim: Value<String>,
    scopes: BTreeMap<String, Scope>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOauth {
    /// The authorization server whose tokens are accepted, just as their `iss` says it.
    issuer: Option<String>,
    /// Our own address as callers write it, which must be among the `aud` of a token.
    audience: Option<String>,
    /// Where the issuer's keys are, if its metadata is not to be asked.
    jwks_uri: Option<String>,
    /// The claim that tells principals apart.
    principal_claim: Option<String>,
    /// What the words of a token's `scope` mean here, each one of `read`, `files`, `run` and `tools`.
    #[serde(default)]
    scopes: BTreeMap<String, String>,
}

impl Oauth {
    pub(super) fn resolve(raw: RawOauth) -> Result<Oauth, Complaint> {
        let wrong = |what: &str, hint: &str| Complaint::new(format!("in the configuration: [oauth]: {what}"), hint);
        let is_used = raw.audience.is_some() || raw.jwks_uri.is_some() || !raw.scopes.is_empty();
        if raw.issuer.is_none() && is_used {
            return Err(wrong("there is no issuer", "write issuer = \"https://login.example.com\""));
        }
        if raw.issuer.is_some() && raw.audience.is_none() {
            let hint = "write the address that callers use: audience = \"https://belljar.example.com/mcp\"";
            return Err(wrong("there is no audience, so that tokens for others would do", hint));
        }
        let meaning = |(word, scope): (String, String)| match scope.parse() {
            Ok(scope) => Ok((word, scope)),
            Err(error) => {
                Err(wrong(&format!("scopes.{word}: {error}"), "such as scopes = { \"agents.run\" = \"run\" }"))
            }
        };
        Ok(Oauth {
            issuer: Value::of(None, raw.issuer.map(Some)),
            audience: Value::of(None, raw.audience.map(Some)),
            jwks_uri: Value::of(None, raw.jwks_uri.map(Some)),
            principal_claim: Value::of("sub".to_owned(), raw.principal_claim),
            scopes: raw.scopes.into_iter().map(meaning).collect::<Result<_, _>>()?,
        })
    }

    /// `None` where no such tokens are accepted.
    pub(crate) fn settings(&self) -> Option<OauthSettings> {
        Some(OauthSettings {
            issuer: self.issuer.value.clone()?,
            audience: self.audience.value.clone()?,
            jwks_uri: self.jwks_uri.value.clone(),
            scopes: self.scopes.clone(),
            principal_claim: self.principal_claim.value.clone(),
        })
    }
}
