//! A JSON Web Token, taken apart and not yet believed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    self, EcdsaVerificationAlgorithm, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RsaParameters,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::access::Refusal;

/// Those with two keys, and no other: with `none` nobody signs, and with HS* whoever knows the public key could.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Es256,
    Es384,
}

/// How a key of one family is used.
pub(super) enum Family {
    Rsa(&'static RsaParameters),
    Ecdsa { curve: &'static str, by: &'static EcdsaVerificationAlgorithm },
}

impl Algorithm {
    fn named(name: &str) -> Option<Algorithm> {
        let all = [
            Algorithm::Rs256,
            Algorithm::Rs384,
            Algorithm::Rs512,
            Algorithm::Ps256,
            Algorithm::Es256,
            Algorithm::Es384,
        ];
        all.into_iter().find(|algorithm| algorithm.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Rs384 => "RS384",
            Algorithm::Rs512 => "RS512",
            Algorithm::Ps256 => "PS256",
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
        }
    }

    pub(super) fn family(self) -> Family {
        match self {
            Algorithm::Rs256 => Family::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            Algorithm::Rs384 => Family::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            Algorithm::Rs512 => Family::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            Algorithm::Ps256 => Family::Rsa(&RSA_PSS_2048_8192_SHA256),
            Algorithm::Es256 => Family::Ecdsa { curve: "P-256", by: &signature::ECDSA_P256_SHA256_FIXED },
            Algorithm::Es384 => Family::Ecdsa { curve: "P-384", by: &signature::ECDSA_P384_SHA384_FIXED },
        }
    }
}

/// Where keys are (`jku`, `x5u`) or what they are (`jwk`, `x5c`) is not read: that is the operator's to say.
#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

#[derive(Debug)]
pub(super) struct Jwt<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) kid: Option<String>,
    pub(super) claims: Map<String, Value>,
    /// The bytes that the signature is of.
    pub(super) signed: &'a [u8],
    pub(super) signature: Vec<u8>,
}

impl<'a> Jwt<'a> {
    pub(super) fn parse(token: &'a str) -> Result<Jwt<'a>, Refusal> {
        const NONE: Refusal = Refusal::Jwt("it is no JSON Web Token");
        let (signed, signature) = token.rsplit_once('.').ok_or(NONE)?;
        let (header, claims) = signed.split_once('.').ok_or(NONE)?;
        let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| NONE);
        let header: Header = serde_json::from_slice(&bytes(header)?).map_err(|_| NONE)?;
        let claims = serde_json::from_slice(&bytes(claims)?).map_err(|_| NONE)?;
        let algorithm = Algorithm::named(&header.alg)
            .ok_or(Refusal::Jwt("its algorithm is none of RS256, RS384, RS512, PS256, ES256 and ES384"))?;
        if header.crit.is_some() {
            return Err(Refusal::Jwt("it has critical extensions, of which this server knows none"));
        }
        let is_access = |typ: &str| {
            let typ = typ.to_ascii_lowercase();
            matches!(typ.strip_prefix("application/").unwrap_or(&typ), "jwt" | "at+jwt")
        };
        if !header.typ.as_deref().is_none_or(is_access) {
            return Err(Refusal::Jwt("its type is not that of an access token"));
        }
        Ok(Jwt { algorithm, kid: header.kid, claims, signed: signed.as_bytes(), signature: bytes(signature)? })
    }
}
