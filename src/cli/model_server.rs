//! `forebay model-server`: the stand-in for a vLLM server.

use std::io::Write;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use forebay::serve::model_server::{ModelServerConfig, serve};
use forebay::sim::instance::{InstanceConfig, LinearStepTime, PreemptionPolicy, Scheduler};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::units;

/// Behaves like a vLLM server without a GPU: OpenAI requests in, words without meaning out, in a GPU's time
#[derive(Debug, Args)]
pub(crate) struct ModelServerArgs {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on; 0 takes any that is free
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// The base model
    #[arg(long, default_value = "stand-in")]
    model: Arc<str>,
    /// A LoRA adapter to serve beside the base model; may be repeated
    #[arg(long, value_name = "NAME")]
    lora: Vec<Arc<str>>,
    /// Different adapters that may run at once [default: 4]
    #[arg(long, value_parser = units::count::<NonZeroU32>)]
    max_loras: Option<NonZeroU32>,
    /// Requests that may run at once
    #[arg(long, default_value_t = InstanceConfig::default().max_num_seqs, value_parser = units::count::<NonZeroU32>)]
    max_num_seqs: NonZeroU32,
    /// Tokens that one step may process
    #[arg(long, default_value_t = InstanceConfig::default().max_num_batched_tokens, value_parser = units::count::<NonZeroU32>)]
    max_num_batched_tokens: NonZeroU32,
    /// Tokens of one prompt that one step may process; no limit but that of the step unless set
    #[arg(long, value_name = "TOKENS", value_parser = units::count::<NonZeroU32>)]
    long_prefill_token_threshold: Option<NonZeroU32>,
    /// Tokens that prompt and answer of a request may have together; what the KV cache holds unless set
    #[arg(long, value_name = "TOKENS", value_parser = units::count::<NonZeroU32>)]
    max_model_len: Option<NonZeroU32>,
    /// The order in which waiting requests are taken: `fcfs`, `priority-fcfs` (by the field `priority` of the body, the
    /// smallest first), `sjf` (the shortest prompt first) or `reverse-priority`
    #[arg(long, default_value_t)]
    scheduler: Scheduler,
    /// Who is evicted when KV blocks run out: `fcfs` (who came in last) or `priority` (the least urgent)
    #[arg(long, default_value_t, value_name = "POLICY")]
    preemption_policy: PreemptionPolicy,
    /// Requests that may wait; one more is answered with 503
    #[arg(long, default_value_t = InstanceConfig::default().max_waiting, value_parser = units::count::<NonZeroU32>)]
    max_waiting: NonZeroU32,
    /// Tokens of a KV block
    #[arg(long, default_value_t = InstanceConfig::default().block_tokens, value_parser = units::count::<NonZeroU32>)]
    block_size: NonZeroU32,
    /// KV blocks; with the block size, the most that the longest request may have
    #[arg(long, default_value_t = InstanceConfig::default().kv_blocks, value_parser = units::count::<NonZeroU32>)]
    kv_blocks: NonZeroU32,
    /// Time of a step beside its tokens
    #[arg(long, default_value = "8ms", value_parser = units::duration, value_name = "DURATION")]
    step_base: Duration,
    /// Time of a step for each prompt token that it processes
    #[arg(long, default_value = "40us", value_parser = units::duration, value_name = "DURATION")]
    prefill_token_time: Duration,
    /// Time of a step for each request that it adds a token to
    #[arg(long, default_value = "50us", value_parser = units::duration, value_name = "DURATION")]
    decode_seq_time: Duration,
    /// Runs this many times as fast as the times say
    #[arg(long, default_value = "1", value_parser = units::factor, value_name = "FACTOR")]
    speed: f64,
    /// Chooses the words of the answers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// What the server calls itself in the header `x-served-by`; its address unless set
    #[arg(long)]
    name: Option<String>,
}

/// Serves until SIGTERM or Ctrl-C.
///
/// Prints `listening on <address>` when it is ready. Answers under way have a short time to finish; a second signal ends
/// them at once.
pub(crate) fn run(args: ModelServerArgs) -> anyhow::Result<()> {
    // One thread is enough: the instance is one task, and the rest copies bytes.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(listen(args));
    runtime.shutdown_background();
    result
}

async fn listen(args: ModelServerArgs) -> anyhow::Result<()> {
    if let Some(name) = first_repeated(std::iter::once(&args.model).chain(&args.lora)) {
        bail!("the model name `{name}` is given twice; the base model and each adapter need a name of their own");
    }
    args.check()?;
    args.without_effect()
        .iter()
        .for_each(|warning| eprintln!("warning: {warning}"));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = TcpListener::bind((args.host, args.port))
        .await
        .with_context(|| format!("cannot listen on `{}` port `{}`", args.host, args.port))?;
    let address = listener.local_addr()?;
    let config = args.into_config(address.to_string());
    writeln!(std::io::stdout(), "listening on {address}")?;

    let (stop, stopping) = tokio::sync::oneshot::channel();
    let server = serve(config, listener, async {
        // A sender that is gone means that the process is ending anyway.
        let _ = stopping.await;
    });
    let signals = async {
        signalled(&mut terminate, &mut interrupt).await;
        // The server may have ended on its own.
        let _ = stop.send(());
        signalled(&mut terminate, &mut interrupt).await;
    };
    tokio::select! {
        result = server => Ok(result?),
        () = signals => Ok(()),
    }
}

async fn signalled(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// The most KV blocks of a stand-in: each takes some 20 bytes.
const MOST_KV_BLOCKS: u32 = 1 << 28;

impl ModelServerArgs {
    /// Fails if there cannot be such a server.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !std::iter::once(&self.model)
                .chain(&self.lora)
                .any(|name| name.is_empty()),
            "`--model` and `--lora` need names, and one of them is empty"
        );
        ensure!(
            self.kv_blocks.get() <= MOST_KV_BLOCKS,
            "`--kv-blocks` is {}; {MOST_KV_BLOCKS} at most can be kept",
            self.kv_blocks
        );
        Ok(())
    }

    /// A warning for each flag that is given and has no effect beside the others.
    fn without_effect(&self) -> Vec<String> {
        let step = self.max_num_batched_tokens;
        let flags = [
            (
                "max-loras",
                self.max_loras.is_some() && self.lora.is_empty(),
                "without `--lora`",
            ),
            (
                "long-prefill-token-threshold",
                self.long_prefill_token_threshold.is_some_and(|most| most >= step),
                "unless it is below `--max-num-batched-tokens`",
            ),
        ];
        let idle = flags.iter().filter(|(_, is_idle, _)| *is_idle);
        idle.map(|(flag, _, why)| format!("`--{flag}` has no effect {why}"))
            .collect()
    }

    fn into_config(self, address: String) -> ModelServerConfig {
        let step_time = LinearStepTime {
            base: self.step_base,
            prefill_token: self.prefill_token_time,
            decode_sequence: self.decode_seq_time,
        };
        ModelServerConfig {
            name: self.name.unwrap_or(address),
            model: self.model,
            adapters: self.lora,
            instance: InstanceConfig {
                max_num_seqs: self.max_num_seqs,
                max_num_batched_tokens: self.max_num_batched_tokens,
                long_prefill_token_threshold: self.long_prefill_token_threshold,
                max_model_len: self.max_model_len,
                scheduler: self.scheduler,
                preemption_policy: self.preemption_policy,
                max_waiting: self.max_waiting,
                block_tokens: self.block_size,
                kv_blocks: self.kv_blocks,
                max_loras: self.max_loras.unwrap_or(InstanceConfig::default().max_loras),
            },
            step_time: step_time.faster(self.speed),
            seed: self.seed,
            ..ModelServerConfig::default()
        }
    }
}

fn first_repeated<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> Option<&'a str> {
    let mut seen = std::collections::BTreeSet::new();
    names.map(AsRef::as_ref).find(|name| !seen.insert(*name))
}
