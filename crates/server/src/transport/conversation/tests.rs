use serde_json::json;

use super::*;

const BOUNDS: Bounds = Bounds { requests: 4, bytes: 300_000 };

fn message(message: &serde_json::Value) -> Vec<u8> {
    serde_json::to_vec(message).unwrap()
}

fn ask(door: &Door, id: i64) -> Result<(), ErrorCode> {
    let asked = message(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"}));
    door.admit(&asked).map(|_| ()).map_err(|refused| refused.code)
}

fn cancel(door: &Door, id: i64) {
    let params = json!({"requestId": id});
    let word = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    door.admit(&message(&word)).unwrap();
}

fn answer(id: i64, length: usize) -> ServerJsonRpcMessage {
    let result = json!({"contents": [{"uri": "x:y", "text": "x".repeat(length)}]});
    serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "result": result})).unwrap()
}

#[tokio::test]
async fn an_answer_that_waits_counts_whatever_is_cancelled() {
    let (door, mut pipe, mut said) = begin(BOUNDS, CancellationToken::new());
    let mut sending = Vec::new();
    for id in 0..2 {
        ask(&door, id).unwrap();
        sending.push(pipe.send(answer(id, 140_000)));
        cancel(&door, id);
        assert_eq!(ask(&door, id), Err(ErrorCode::INVALID_REQUEST), "its answer still waits");
    }
    assert_eq!(ask(&door, 2), Err(TOO_MANY), "there is no room for another answer");
    for sending in sending {
        sending.await.unwrap();
        let Outgoing { answers, weight, .. } = said.queue.recv().await.unwrap();
        said.open.end(&answers.unwrap());
        drop(weight);
    }
    ask(&door, 0).unwrap();
}

#[tokio::test]
async fn an_answer_too_many_is_replaced_by_a_word_about_it() {
    let (door, mut pipe, mut said) = begin(BOUNDS, CancellationToken::new());
    (0..4).for_each(|id| ask(&door, id).unwrap());
    for id in 0..4 {
        // Whatever was expected of it. The first alone is longer than all should be.
        pipe.send(answer(id, 400_000)).await.unwrap();
    }
    let mut heard = Vec::new();
    let mut weights = Vec::new();
    for _ in 0..4 {
        let Outgoing { json, weight, .. } = said.queue.recv().await.unwrap();
        heard.push(serde_json::from_slice::<serde_json::Value>(&json).unwrap());
        weights.push(weight.unwrap());
    }
    assert!(heard[0]["result"].is_object());
    for (id, refused) in heard.iter().enumerate().skip(1) {
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(id), &json!(TOO_MANY.0)), "{refused}");
    }
    drop(weights);
    pipe.send(answer(9, 400_000)).await.unwrap();
    let kept = said.queue.recv().await.unwrap();
    assert!(kept.json.len() > 400_000, "read in time, as long as it likes");
}

#[tokio::test]
async fn what_is_cancelled_before_its_answer_makes_room() {
    let (door, _pipe, _said) = begin(BOUNDS, CancellationToken::new());
    (0..4).for_each(|id| ask(&door, id).unwrap());
    assert_eq!(ask(&door, 4), Err(TOO_MANY));
    cancel(&door, 3);
    ask(&door, 4).unwrap();
}
