//! What is seen to before anything is run.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelfTest {
    pub(crate) enabled: Value<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSelfTest {
    /// Whether a server tries its walls from inside before it runs anything.
    enabled: Option<bool>,
}

impl SelfTest {
    pub(super) fn resolve(raw: RawSelfTest) -> SelfTest {
        SelfTest { enabled: Value::of(true, raw.enabled) }
    }
}
