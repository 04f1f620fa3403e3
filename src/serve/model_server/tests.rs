use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::sim::instance::Scheduler;

#[tokio::test]
async fn an_answer_has_the_tokens_that_were_asked_for_and_says_what_it_used() {
    let server = Server::start(quick()).await;

    let reply = server
        .post(
            "/v1/completions",
            &json!({"model": "base", "prompt": "12 bytes txt", "max_tokens": 5}),
        )
        .await;
    let without_limit = server
        .post("/v1/completions", &json!({"model": "base", "prompt": "short"}))
        .await;

    let answer = reply.json();
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["model"], "base");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["choices"][0]["text"].as_str().unwrap().len(), 5 * 4);
    let usage = json!({
        "prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8, "prompt_tokens_details": {"cached_tokens": 0},
    });
    assert_eq!(answer["usage"], usage);
    assert_eq!(without_limit.json()["usage"]["completion_tokens"], 16);
}

#[tokio::test]
async fn a_chat_is_answered_with_a_message_of_the_assistant() {
    let server = Server::start(quick()).await;
    let ask = json!({
        "model": "base",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hello"}, {"type": "image_url", "image_url": {}}]},
            {"role": "assistant", "content": null, "tool_calls": []},
        ],
        "max_tokens": 100,
        "max_completion_tokens": 4,
    });

    let answer = server.post("/v1/chat/completions", &ask).await.json();

    assert_eq!(answer["object"], "chat.completion");
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["role"], "assistant");
    assert_eq!(message["content"].as_str().unwrap().len(), 4 * 4);
}

#[tokio::test]
async fn a_stream_has_the_words_of_the_whole_answer_one_event_each_and_ends_with_usage_and_done() {
    let server = Server::start(quick()).await;
    let mut ask = json!({"model": "base", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 9});
    let whole = server.post("/v1/chat/completions", &ask).await.json();
    ask["stream"] = true.into();
    ask["stream_options"] = json!({"include_usage": true});

    let reply = server.post("/v1/chat/completions", &ask).await;

    assert_eq!(reply.headers["content-type"], "text/event-stream");
    let mut events = reply.events();
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let chunks: Vec<Value> = events
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    assert_eq!(chunks.len(), 1 + 9 + 1, "the role, the tokens, the usage");
    assert_eq!(
        chunks[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    let words = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    assert_eq!(
        words.collect::<String>(),
        whole["choices"][0]["message"]["content"].as_str().unwrap()
    );
    assert_eq!(chunks[8]["choices"][0]["finish_reason"], Value::Null);
    assert_eq!(chunks[9]["choices"][0]["finish_reason"], "length");
    assert_eq!(chunks[10]["choices"], json!([]));
    assert_eq!(chunks[10]["usage"]["completion_tokens"], 9);
    assert!(chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk"));
}

#[tokio::test]
async fn a_stream_has_no_usage_unless_asked_for() {
    let server = Server::start(quick()).await;
    let ask = json!({"model": "base", "prompt": "hello", "max_tokens": 2, "stream": true});

    let events = server.post("/v1/completions", &ask).await.events();

    assert_eq!(events.len(), 2 + 1);
    assert!(!events.concat().contains("usage"));
}

#[tokio::test]
async fn numbers_and_booleans_may_be_written_as_texts() {
    let server = Server::start(quick()).await;
    let whole = json!({"model": "base", "prompt": "hello", "max_tokens": "5", "stream": "false", "n": 2.0});
    let streamed = json!({
        "model": "base", "prompt": "hello", "max_tokens": "2", "stream": 1, "priority": "3",
        "stream_options": {"include_usage": "true"},
    });

    let whole = server.post("/v1/completions", &whole).await.json();
    let events = server.post("/v1/completions", &streamed).await.events();

    assert_eq!(whole["usage"]["completion_tokens"], 2 * 5);
    assert_eq!(events.len(), 2 + 1 + 1, "the tokens, the usage, the end");
}

#[tokio::test]
async fn several_prompts_and_answers_have_an_index_each_and_words_of_their_own() {
    let server = Server::start(quick()).await;
    let mut ask = json!({"model": "base", "prompt": [[1, 2, 3], [4]], "n": 2, "max_tokens": 8});

    let whole = server.post("/v1/completions", &ask).await.json();
    ask["stream"] = true.into();
    let events = server.post("/v1/completions", &ask).await.events();

    let texts: Vec<&str> = whole["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| choice["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts.iter().collect::<BTreeSet<_>>().len(), 4);
    assert_eq!(
        whole["usage"]["prompt_tokens"], 4,
        "a prompt counts once, however many answers it gets"
    );
    assert_eq!(whole["usage"]["completion_tokens"], 32);
    let mut streamed = vec![String::new(); 4];
    for event in events.iter().filter(|event| *event != "[DONE]") {
        let choice = &serde_json::from_str::<Value>(event).unwrap()["choices"][0];
        let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
        streamed[index].push_str(choice["text"].as_str().unwrap());
    }
    assert_eq!(streamed, texts);
}

#[tokio::test]
async fn the_next_turn_of_a_conversation_is_cached_up_to_the_last_answer() {
    let server = Server::start(quick()).await;
    let question = json!({"role": "user", "content": "tell me something long. ".repeat(20)});
    let first = json!({"model": "base", "messages": [question], "max_tokens": 64});
    let first = server.post("/v1/chat/completions", &first).await.json();
    let turns = json!([question, first["choices"][0]["message"], {"role": "user", "content": "go on"}]);
    let second = json!({"model": "base", "messages": turns, "max_tokens": 1});

    let cached = |answer: &Value| {
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
    };
    let second = server.post("/v1/chat/completions", &second).await.json();

    assert_eq!(cached(&first), 0);
    let known = first["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(
        cached(&second),
        (known - 1) / 16 * 16,
        "all full blocks of what was computed"
    );
    assert_eq!(
        server.metric("vllm:prefix_cache_hits_total").await,
        cached(&second) as f64
    );
}

#[tokio::test]
async fn the_base_model_and_its_adapters_are_listed() {
    let server = Server::start(with_adapters()).await;

    let models = server.get("/v1/models").await.json();

    let cards: Vec<_> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|card| (card["id"].clone(), card["parent"].clone()))
        .collect();
    let base = json!("base");
    assert_eq!(
        cards,
        [
            (base.clone(), Value::Null),
            (json!("one"), base.clone()),
            (json!("two"), base)
        ]
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said_in_the_shape_of_openai() {
    const COMPLETIONS: &str = "/v1/completions";
    const CHAT: &str = "/v1/chat/completions";
    let server = Server::start(quick()).await;

    for (path, body, status, message) in [
        (
            COMPLETIONS,
            "{",
            400,
            "the body: EOF while parsing an object at line 1 column 1",
        ),
        (
            COMPLETIONS,
            "{} x",
            400,
            "the body: trailing characters at line 1 column 4",
        ),
        (
            COMPLETIONS,
            "{}",
            400,
            "`model` is missing; the name of a model is needed",
        ),
        (
            COMPLETIONS,
            r#"{"model": 1}"#,
            400,
            "`model`: invalid type: integer `1`, expected a string at line 1 column 11",
        ),
        (
            COMPLETIONS,
            r#"{"model": "x"}"#,
            404,
            "the model `x` does not exist; served here: base",
        ),
        (
            COMPLETIONS,
            r#"{"model": "base"}"#,
            400,
            "`prompt` is missing; a string, a list of token ids, or a list of either is needed",
        ),
        (
            COMPLETIONS,
            r#"{"model": "base", "prompt": {}}"#,
            400,
            "`prompt` is an object; a string, a list of token ids, or a list of either is needed",
        ),
        (
            COMPLETIONS,
            r#"{"model": "base", "prompt": [1, "a"]}"#,
            400,
            r#"in `prompt`, `[1]`: invalid type: string "a", expected u32 at line 1 column 7"#,
        ),
        (
            COMPLETIONS,
            r#"{"model": "base", "prompt": ""}"#,
            400,
            "the prompt has no tokens, and at least one is needed",
        ),
        (
            COMPLETIONS,
            r#"{"model": "base", "prompt": "a", "max_tokens": 0}"#,
            400,
            "`max_tokens`: invalid value: integer `0`, expected a nonzero u32 at line 1 column 49",
        ),
        (
            COMPLETIONS,
            r#"{"model": "base", "prompt": "a", "max_tokens": 999999999}"#,
            400,
            "the prompt has `1` tokens and the answer up to `999999999`, and together they may have `524288`",
        ),
        (
            COMPLETIONS,
            r#"{"model": "base", "prompt": ["a", "b"], "n": 65}"#,
            400,
            "the request asks for `130` answers; at most 128 are given at once",
        ),
        (
            CHAT,
            r#"{"model": "base"}"#,
            400,
            "`messages` is missing; a list of messages is needed",
        ),
        (
            CHAT,
            r#"{"model": "base", "messages": []}"#,
            400,
            "`messages` is empty; one is needed at least",
        ),
        (
            CHAT,
            r#"{"model": "base", "messages": [{"content": "x"}]}"#,
            400,
            "`messages[0]`: missing field `role` at line 1 column 47",
        ),
        ("/v1/nothing", "{}", 404, "there is nothing at `/v1/nothing`"),
        ("/v1/models", "{}", 405, "`/v1/models` does not take `POST`"),
    ] {
        let reply = server.post_bytes(path, body).await;

        let error = &reply.json()["error"];
        assert_eq!(error["message"], message, "{body}");
        assert_eq!(reply.status, status, "{body}");
        assert_eq!(error["code"], status, "{body}");
        assert!(error["type"].is_string() && error.get("param").is_some(), "{error}");
        assert_eq!(reply.headers["x-served-by"], "test", "{body}");
    }
}

#[tokio::test]
async fn a_prompt_of_many_mebibytes_is_answered_and_a_body_beyond_the_bound_is_not() {
    let mut config = quick();
    config.instance.kv_blocks = count(1 << 20);
    config.instance.max_num_batched_tokens = count(1 << 22);
    config.max_body_bytes = (8 << 20) + 100;
    let server = Server::start(config).await;
    let ask = |bytes: usize| json!({"model": "base", "prompt": "x".repeat(bytes), "max_tokens": 1});

    let large = server.post("/v1/completions", &ask(8 << 20)).await;
    let too_large = server.post("/v1/completions", &ask((8 << 20) + 100)).await;

    assert_eq!(large.json()["usage"]["prompt_tokens"], 2 << 20);
    assert_eq!(too_large.status, StatusCode::PAYLOAD_TOO_LARGE);
    let message = "the body has more than `8388708` bytes, which is the most that is read";
    assert_eq!(too_large.json()["error"]["message"], message);
}

#[tokio::test]
async fn who_runs_and_who_waits_shows_and_one_more_than_may_wait_is_refused() {
    let mut config = with_adapters();
    config.step_time.base = Duration::from_secs(3600);
    config.instance.max_num_seqs = count(1);
    config.instance.max_waiting = count(1);
    let server = Server::start(config).await;
    let running = server.post_in_background("/v1/completions", &json!({"model": "one", "prompt": "x"}));
    server.until("vllm:num_requests_running", 1.0).await;
    let waiting = server.post_in_background("/v1/completions", &json!({"model": "two", "prompt": "x"}));
    server.until("vllm:num_requests_waiting", 1.0).await;

    let refused = server
        .post("/v1/completions", &json!({"model": "base", "prompt": "x"}))
        .await;
    let page = server.get("/metrics").await.body;

    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        refused.json()["error"]["message"],
        "`1` sequences wait already, and no more may"
    );
    let lora = r#"vllm:lora_requests_info{max_lora="4",running_lora_adapters="one",waiting_lora_adapters="two"} "#;
    let line = page
        .lines()
        .find(|line| line.starts_with(lora))
        .unwrap_or_else(|| panic!("no such line in {page}"));
    let date: f64 = line[lora.len()..].parse().unwrap();
    assert!((unix_time().as_secs_f64() - date).abs() < 60.0, "{date}");
    assert_eq!(server.metric("vllm:kv_cache_usage_perc").await, 1.0 / 32768.0);
    assert_eq!(server.metric("vllm:gpu_cache_usage_perc").await, 1.0 / 32768.0);

    waiting.abort();
    server.until("vllm:num_requests_waiting", 0.0).await;
    running.abort();
    server.until("vllm:num_requests_running", 0.0).await;
    assert_eq!(server.metric("vllm:kv_cache_usage_perc").await, 0.0);
}

#[tokio::test]
async fn a_client_that_goes_away_in_the_middle_of_a_stream_frees_its_sequence() {
    let mut config = quick();
    config.step_time.base = Duration::from_millis(1);
    let server = Server::start(config).await;
    let ask = json!({"model": "base", "prompt": "x", "max_tokens": 500_000, "stream": true});
    let mut stream = server.send("/v1/completions", ask.to_string()).await.into_body();
    stream.frame().await.unwrap().unwrap();
    assert_eq!(server.metric("vllm:num_requests_running").await, 1.0);

    drop(stream);

    server.until("vllm:num_requests_running", 0.0).await;
    assert_eq!(server.metric("vllm:kv_cache_usage_perc").await, 0.0);
    let page = server.get("/metrics").await.body;
    let aborted = r#"vllm:request_success_total{engine="0",finished_reason="abort",model_name="base"} 1"#;
    assert!(page.contains(aborted), "{page}");
}

#[tokio::test]
async fn the_metrics_have_the_names_types_and_labels_of_vllm() {
    let server = Server::start(with_adapters()).await;
    server
        .post(
            "/v1/completions",
            &json!({"model": "base", "prompt": "two toks", "max_tokens": 3}),
        )
        .await;

    let page = server.get("/metrics").await;

    assert!(
        page.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    let types: BTreeSet<&str> = page
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE vllm:"))
        .collect();
    let expected = BTreeSet::from([
        "cache_config_info gauge",
        "e2e_request_latency_seconds histogram",
        "generation_tokens_total counter",
        "gpu_cache_usage_perc gauge",
        "inter_token_latency_seconds histogram",
        "kv_cache_usage_perc gauge",
        "lora_requests_info gauge",
        "num_preemptions_total counter",
        "num_requests_running gauge",
        "num_requests_waiting gauge",
        "prefix_cache_hits_total counter",
        "prefix_cache_queries_total counter",
        "prompt_tokens_total counter",
        "request_queue_time_seconds histogram",
        "request_success_total counter",
        "time_per_output_token_seconds histogram",
        "time_to_first_token_seconds histogram",
    ]);
    assert_eq!(types, expected);
    for line in [
        r#"vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",num_gpu_blocks="32768"} 1"#,
        r#"vllm:num_requests_waiting{engine="0",model_name="base"} 0"#,
        r#"vllm:prompt_tokens_total{engine="0",model_name="base"} 2"#,
        r#"vllm:generation_tokens_total{engine="0",model_name="base"} 3"#,
        r#"vllm:request_success_total{engine="0",finished_reason="length",model_name="base"} 1"#,
        r#"vllm:time_to_first_token_seconds_count{engine="0",model_name="base"} 1"#,
        r#"vllm:inter_token_latency_seconds_count{engine="0",model_name="base"} 2"#,
        r#"vllm:time_per_output_token_seconds_count{engine="0",model_name="base"} 2"#,
        r#"vllm:e2e_request_latency_seconds_count{engine="0",model_name="base"} 1"#,
    ] {
        assert!(
            page.body.lines().any(|found| found == line),
            "no `{line}` in {}",
            page.body
        );
    }
}

#[tokio::test]
async fn health_and_version_are_answered() {
    let server = Server::start(quick()).await;

    assert_eq!(server.get("/health").await.status, StatusCode::OK);
    assert_eq!(
        server.get("/version").await.json()["version"],
        env!("CARGO_PKG_VERSION")
    );
}

#[tokio::test]
async fn a_shutdown_lets_an_answer_under_way_finish() {
    let mut config = quick();
    config.step_time.base = Duration::from_millis(2);
    config.grace = Duration::from_secs(3600);
    let mut server = Server::start(config).await;
    let ask = json!({"model": "base", "prompt": "x", "max_tokens": 50, "stream": true});
    let mut stream = server.send("/v1/completions", ask.to_string()).await.into_body();
    stream.frame().await.unwrap().unwrap();

    server.shut_down();
    let rest = stream.collect().await.unwrap().to_bytes();

    assert!(rest.ends_with(b"data: [DONE]\n\n"));
    server.ended().await.unwrap();
}

#[tokio::test]
async fn what_outlasts_the_grace_is_cut_with_an_error_event() {
    let mut config = quick();
    config.step_time.base = Duration::from_millis(1);
    config.grace = Duration::ZERO;
    let mut server = Server::start(config).await;
    let ask = json!({"model": "base", "prompt": "x", "max_tokens": 500_000, "stream": true});
    let mut stream = server.send("/v1/completions", ask.to_string()).await.into_body();
    stream.frame().await.unwrap().unwrap();

    server.shut_down();
    server.ended().await.unwrap();
    let rest = stream.collect().await.unwrap().to_bytes();

    let last = String::from_utf8_lossy(&rest[rest.len().saturating_sub(200)..]).into_owned();
    assert!(last.contains("the server is shutting down"), "{last}");
    assert!(!last.contains("[DONE]"), "{last}");
}

#[tokio::test]
async fn a_name_that_no_header_can_carry_is_refused() {
    let config = ModelServerConfig {
        name: "two\nlines".to_owned(),
        ..quick()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();

    let error = serve(config, listener, std::future::pending()).await.unwrap_err();

    assert!(matches!(error, ServeError::Name(name) if name == "two\nlines"));
}

#[tokio::test]
async fn the_longest_request_is_what_the_flag_says_and_may_not_exceed_the_cache() {
    let limited = |max_model_len| {
        let mut config = quick();
        config.instance.max_model_len = Some(count(max_model_len));
        config
    };
    let server = Server::start(limited(10)).await;
    let ask = |max_tokens: u32| json!({"model": "base", "prompt": "four", "max_tokens": max_tokens});

    let taken = server.post("/v1/completions", &ask(9)).await;
    let refused = server.post("/v1/completions", &ask(10)).await;
    let mut too_long = Server::start(limited(524_289)).await;

    assert_eq!(taken.json()["usage"]["completion_tokens"], 9);
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(server.get("/v1/models").await.json()["data"][0]["max_model_len"], 10);
    assert_eq!(
        too_long.ended().await.unwrap_err().to_string(),
        "requests of `524289` tokens cannot be served: the kv cache holds `524288`"
    );
}

#[tokio::test]
async fn with_the_scheduler_for_it_the_more_urgent_request_passes_who_waits() {
    let mut config = with_adapters();
    config.step_time.base = Duration::from_millis(1);
    config.instance.max_num_seqs = count(1);
    config.instance.scheduler = Scheduler::PriorityFcfs;
    let server = Server::start(config).await;
    let ask = |model: &str, priority: i32| {
        let body = json!({"model": model, "prompt": "x", "max_tokens": 500_000, "priority": priority});
        server.post_in_background("/v1/completions", &body)
    };
    let running = ask("base", 9);
    server.until("vllm:num_requests_running", 1.0).await;
    let _later = ask("one", 1);
    server.until("vllm:num_requests_waiting", 1.0).await;
    let _sooner = ask("two", -1);
    server.until("vllm:num_requests_waiting", 2.0).await;

    running.abort();
    server.until("vllm:num_requests_waiting", 1.0).await;

    let page = server.get("/metrics").await.body;
    let lora = r#"running_lora_adapters="two",waiting_lora_adapters="one""#;
    assert!(page.contains(lora), "{page}");
}

/// A server of which a step takes a microsecond.
fn quick() -> ModelServerConfig {
    ModelServerConfig {
        name: "test".to_owned(),
        model: Arc::from("base"),
        step_time: LinearStepTime {
            base: Duration::ZERO,
            prefill_token: Duration::ZERO,
            decode_sequence: Duration::ZERO,
        },
        ..ModelServerConfig::default()
    }
}

fn with_adapters() -> ModelServerConfig {
    ModelServerConfig {
        adapters: vec![Arc::from("one"), Arc::from("two")],
        ..quick()
    }
}

fn count(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).unwrap()
}

/// A running server and a client of it.
struct Server {
    address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ServeError>>,
}

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Server {
    async fn start(config: ModelServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(config, listener, async {
            let _ = stopped.await;
        }));
        Self {
            address,
            client: Client::builder(TokioExecutor::new()).build_http(),
            stop: Some(stop),
            task,
        }
    }

    fn shut_down(&mut self) {
        self.stop.take();
    }

    async fn ended(&mut self) -> Result<(), ServeError> {
        (&mut self.task).await.unwrap()
    }

    async fn send(&self, path: &str, body: String) -> http::Response<Incoming> {
        self.client.request(self.request("POST", path, body)).await.unwrap()
    }

    async fn post(&self, path: &str, body: &Value) -> Reply {
        Reply::read(self.send(path, body.to_string()).await).await
    }

    async fn post_bytes(&self, path: &str, body: &str) -> Reply {
        Reply::read(self.send(path, body.to_owned()).await).await
    }

    /// A request on a connection that is closed when the task is aborted.
    fn post_in_background(&self, path: &str, body: &Value) -> JoinHandle<()> {
        let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let request = self.request("POST", path, body.to_string());
        tokio::spawn(async move {
            let _ = client.request(request).await;
        })
    }

    async fn get(&self, path: &str) -> Reply {
        Reply::read(
            self.client
                .request(self.request("GET", path, String::new()))
                .await
                .unwrap(),
        )
        .await
    }

    fn request(&self, method: &str, path: &str, body: String) -> Request<Full<Bytes>> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address));
        request.body(Full::new(Bytes::from(body))).unwrap()
    }

    /// The value of the only series called `name`.
    async fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").await.body;
        let line = page.lines().find(|line| line.starts_with(&format!("{name}{{")));
        line.and_then(|line| line.rsplit(' ').next())
            .unwrap_or_else(|| panic!("no `{name}` in {page}"))
            .parse()
            .unwrap()
    }

    /// Asks again and again until the metric has this value.
    async fn until(&self, name: &str, value: f64) {
        let reached = async { while self.metric(name).await != value {} };
        tokio::time::timeout(Duration::from_secs(20), reached)
            .await
            .unwrap_or_else(|_| panic!("{name} is not {value}"));
    }
}

impl Reply {
    async fn read(response: http::Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self {
            status: head.status,
            headers: head.headers,
            body: String::from_utf8(body.into()).unwrap(),
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The data of the events, in order.
    fn events(&self) -> Vec<String> {
        let events = self.body.split_terminator("\n\n");
        events
            .map(|event| event.strip_prefix("data: ").unwrap().to_owned())
            .collect()
    }
}
