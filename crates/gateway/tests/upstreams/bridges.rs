//! What a server says to one client, through a connection of its own.

use belljar_gateway::upstream::{Bridge, Face, Step};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ErrorData, ProtocolVersion, ReadResourceRequest,
    ReadResourceRequestParams, RequestMetaObject, ServerResult,
};
use serde_json::{Value, json};

use super::mock::{Mock, settings};

async fn answer(bridge: &Bridge, request: ClientRequest) -> Result<ServerResult, ErrorData> {
    let mut exchange = bridge.request(request, RequestMetaObject::default()).await.unwrap();
    loop {
        if let Step::Answer(answer) = exchange.next().await {
            return answer.unwrap();
        }
    }
}

#[tokio::test]
async fn a_server_tells_its_own_key_in_no_kind_of_answer() {
    let mock = Mock::with(&[], json!({ "env": { "API_KEY": "own-key" } }), settings());
    let face = Face { version: ProtocolVersion::V_2025_11_25, capabilities: Default::default() };
    let bridge = mock.upstreams.bridge("mock", face).await.unwrap();
    let read = ReadResourceRequest::new(ReadResourceRequestParams::new("x://y"));
    let read: Value = serde_json::to_value(answer(&bridge, read.into()).await.unwrap()).unwrap();
    assert_eq!(read["contents"][0]["text"], "key [hidden]", "{read}");
    let arguments = json!({ "code": -32000, "message": "bad key own-key", "data": { "headers": ["own-key"] } });
    let call = CallToolRequestParams::new("fail").with_arguments(arguments.as_object().cloned().unwrap());
    let error = answer(&bridge, CallToolRequest::new(call).into()).await.unwrap_err();
    assert_eq!((&*error.message, &error.data.unwrap()), ("bad key [hidden]", &json!({ "headers": ["[hidden]"] })));
    mock.upstreams.end().await;
}
