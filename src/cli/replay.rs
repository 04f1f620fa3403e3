//! `forebay replay`: what happened once, again.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail, ensure};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use forebay::engine::Engine;
use forebay::engine::config::{LoadOptions, load};
use forebay::engine::journal::{self, Agreement, Entry, FORMAT, Header};
use forebay::engine::scheduling::{Explain, NoProbe};
use forebay::engine::seed::Seed;
use forebay::sim::trace::SessionMode;
use forebay::sim::workload::think::Think;
use serde::Deserialize;

use super::print::print;
use super::simulate::args::{ClusterArgs, Format, OutputArgs};
use super::simulate::output::Outputs;
use super::simulate::requests::Requests;
use super::simulate::{Prepared, effect, exit, setup};
use super::source;

/// Simulates the requests of a trace, or makes the decisions of a journal again
///
/// A trace (`--trace-header` and `--trace-data`) is what `observe` or `simulate --trace-output` wrote: its requests are
/// sent to a simulated cluster. A journal (`--from-journal`) is what a service with `--journal` wrote: everything that its
/// picker was asked. It is asked again, by the same configuration or by the one of `--config`, and the answers are
/// compared.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Before the others, which take what is theirs from the command line.
    #[command(flatten)]
    _journals_have_few: JournalsHaveFew,
    /// The header of the trace
    #[arg(long, value_name = "FILE", required_unless_present = "from_journal")]
    trace_header: Option<PathBuf>,
    /// The requests of the trace
    #[arg(long, value_name = "FILE", required_unless_present = "from_journal")]
    trace_data: Option<PathBuf>,
    /// The journal of a service, or of a simulated run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trace_header", "trace_data"])]
    from_journal: Option<PathBuf>,
    /// Whether later turns of a conversation come when they came (`fixed`) or when the turn before is answered
    /// (`closed-loop`)
    #[arg(long, value_name = "MODE", default_value = "fixed")]
    session_mode: SessionMode,
    /// Milliseconds that users think between two turns; 0 is as long as recorded
    #[arg(long, value_name = "MS", default_value_t = 0)]
    think_time_ms: u64,
    /// How long users think, such as `constant:value=500ms` or `lognormal:mu=0.5,sigma=1,min=1s,max=60s`
    #[arg(long, value_name = "DISTRIBUTION", conflicts_with = "think_time_ms")]
    think_time_dist: Option<Think>,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// That a journal is given no flag that is for simulated clusters and their requests.
#[derive(Clone, Copy, Debug)]
struct JournalsHaveFew;

impl JournalsHaveFew {
    const FLAGS: [&str; 5] = ["from_journal", "config", "allow_experimental_plugins", "seed", "output"];
}

impl Args for JournalsHaveFew {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for JournalsHaveFew {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        if !matches.contains_id("from_journal") {
            return Ok(Self);
        }
        let is_given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        // Groups have the names of types.
        let is_flag = |name: &str| name.starts_with(|first: char| first.is_ascii_lowercase());
        let mut given = matches
            .ids()
            .map(clap::Id::as_str)
            .filter(|name| is_flag(name) && is_given(name));
        match given.find(|name| !Self::FLAGS.contains(name)) {
            None => Ok(Self),
            Some(name) => Err(Error::raw(
                ErrorKind::ArgumentConflict,
                format!(
                    "`--{}` is for a simulated cluster; a journal is asked again by its own configuration, or by that of \
                     `--config`\n",
                    name.replace('_', "-")
                ),
            )),
        }
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), Error> {
        Ok(())
    }
}

/// Replays.
pub(crate) fn run(args: &ReplayArgs) -> ExitCode {
    match &args.from_journal {
        Some(path) => exit(
            Journal::open(path, args)
                .and_then(Journal::ask_again)
                .map(|agreement| print(&told(&agreement, &args.output))),
        ),
        None => exit(prepare(args).map(Prepared::run)),
    }
}

fn prepare(args: &ReplayArgs) -> anyhow::Result<Prepared> {
    let (Some(header), Some(data)) = (&args.trace_header, &args.trace_data) else {
        bail!("`--trace-header` and `--trace-data` belong together");
    };
    ensure!(
        args.session_mode == SessionMode::ClosedLoop || (args.think_time_dist.is_none() && args.think_time_ms == 0),
        "`--think-time-dist` and `--think-time-ms` are for `--session-mode closed-loop`: in `fixed`, turns come when they came"
    );
    let think = match (args.think_time_dist, args.think_time_ms) {
        (Some(think), _) => think,
        (None, 0) => Think::Recorded,
        (None, ms) => Think::Constant(ms.saturating_mul(1000)),
    };
    let requests = Requests::traced(header, data, args.session_mode, think, args.cluster.seed)?;
    let requests = match &args.cluster.model {
        Some(model) => requests.for_model(model),
        None => requests,
    };
    let setup = setup::setup(&args.cluster, &requests)?;
    requests.workload(&setup.scenario)?;
    let outputs = Outputs::open(&args.output, &requests)?;
    let of_output = effect::of_output(&args.output);
    let warnings = requests.warnings().iter().chain(&setup.warnings).chain(&of_output);
    warnings.for_each(|warning| eprintln!("warning: {warning}"));
    if args.output.fitness_weights.is_some() {
        eprintln!(
            "warning: the score of `--fitness-weights` says little of a replay: its throughput follows from the trace"
        );
    }
    Ok(Prepared {
        setup,
        requests,
        outputs,
    })
}

/// The part of a header that all formats have.
#[derive(Debug, Deserialize)]
struct Version {
    format: u32,
}

/// A journal, and the engine that is asked again.
#[derive(Debug)]
struct Journal {
    path: PathBuf,
    lines: Lines<BufReader<File>>,
    engine: Engine,
}

impl Journal {
    fn open(path: &Path, args: &ReplayArgs) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("`--from-journal`: cannot read {}", path.display()))?;
        let mut lines = BufReader::new(file).lines();
        let place = || {
            format!(
                "{}:1: a journal begins with a line that says how it was made",
                path.display()
            )
        };
        let first = lines.next().with_context(place)?.with_context(place)?;
        let Version { format } = serde_json::from_str(&first).with_context(place)?;
        ensure!(
            format == FORMAT,
            "{}:1: the journal has format {format}, and this version reads format {FORMAT}; replay it with the version of \
             Forebay that wrote it",
            path.display(),
        );
        let header: Header = serde_json::from_str(&first).with_context(place)?;
        let (text, source) = match &args.cluster.policy.config {
            Some(path) => source::configuration(path)?,
            None => (header.config, source::name(path)),
        };
        let options = LoadOptions {
            allow_experimental_plugins: true,
            cache_source: header.cache_source,
            ..LoadOptions::default()
        };
        let loaded =
            load(&text, &source, &options).map_err(|errors| anyhow!("the configuration cannot be used\n{errors}"))?;
        let seed = Seed(args.cluster.seed.unwrap_or(header.seed));
        Ok(Self {
            path: path.to_owned(),
            lines,
            engine: Engine::new(loaded.plan.engine, seed, Box::new(NoProbe), Explain::Best(0)),
        })
    }

    /// Asks the engine all that is in the journal. The last line may be cut off: so a service leaves it that was killed.
    fn ask_again(self) -> anyhow::Result<Agreement> {
        let Self {
            path,
            lines,
            mut engine,
        } = self;
        let mut failed = None;
        let mut lines = lines.zip(2..);
        let entries = lines.by_ref().map_while(|(line, number)| {
            let entry = line
                .map_err(anyhow::Error::from)
                .and_then(|line| Ok(serde_json::from_str::<Entry>(&line)?));
            entry.map_err(|error| failed = Some((number, error))).ok()
        });
        let agreement = journal::replay(&mut engine, entries);
        if let Some((number, error)) = failed {
            ensure!(
                lines.next().is_none(),
                "{}:{number}: the line is no entry of a journal, and others follow: {error:#}",
                path.display()
            );
            eprintln!("warning: {}:{number}: the journal ends here: {error:#}", path.display());
        }
        Ok(agreement)
    }
}

fn told(agreement: &Agreement, outputs: &OutputArgs) -> String {
    let Agreement {
        submitted,
        same_endpoint,
        other_endpoint,
        both_refused,
        refused_now,
        routed_now,
        unanswered,
    } = agreement;
    if outputs.output == Format::Json {
        let document = serde_json::json!({
            "requests": submitted,
            "same_endpoint": same_endpoint,
            "other_endpoint": other_endpoint,
            "both_refused": both_refused,
            "refused_now": refused_now,
            "routed_now": routed_now,
            "unanswered": unanswered,
            "answered_both_times": agreement.answered(),
            "agreement": (agreement.answered() > 0).then(|| agreement.share()),
        });
        return format!("{document:#}\n");
    }
    format!(
        "requests:                     {submitted}\n\
         the same endpoint again:      {same_endpoint}\n\
         another endpoint:             {other_endpoint}\n\
         refused both times:           {both_refused}\n\
         had an endpoint, refused now: {refused_now}\n\
         was refused, has one now:     {routed_now}\n\
         without an answer:            {unanswered}\n\
         agreement:                    {}\n",
        match agreement.answered() {
            0 => "none was answered both times".to_owned(),
            answered => format!(
                "{:.2} % of {answered} that were answered both times",
                100.0 * agreement.share()
            ),
        }
    )
}
