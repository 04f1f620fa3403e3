//! The plugin instances of a configuration, while it is loaded.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::super::super::admission::AdmissionPolicy;
use super::super::super::flow::fairness::FairnessPolicy;
use super::super::super::flow::ordering::OrderingPolicy;
use super::super::super::flow::usage::UsageLimitPolicy;
use super::super::super::plugin::{
    DEFAULT_PREFIX_PRODUCER, Entry, Needs, PRECISE_PREFIX_PRODUCER, PREFIX_AFFINITY_PRODUCER, Parameter, ParamsError,
    PrefixRef, Remark, Stability, UsualProducers,
};
use super::super::super::saturation::SaturationDetector;
use super::super::super::scheduling::scorers::{PRECISE_PREFIX_SCORER, PREFIX_AFFINITY_SCORER};
use super::super::super::scheduling::{InstanceRef, Instances, Named, PluginName, ProfileHandler};
use super::super::catalog::{ALIASES, CatalogEntry, PluginKind, Registered, catalog};
use super::super::data_layer::{FileDiscoveryParams, MetricsSource};
use super::super::document::PluginSpec;
use super::super::elsewhere::{kind_elsewhere, successor, unneeded_source};
use super::super::engine_metrics::EngineMapping;
use super::super::misfit::{UnknownField, reworded};
use super::super::report::Report;
use super::super::settings::{ParserKind, Producer, TokenEstimate};
use super::super::suggest;
use super::LoadOptions;
use super::moved::Moved;

/// The instances so far, in the order in which they were declared or added.
#[derive(Debug)]
pub(super) struct Registry {
    options: LoadOptions,
    list: Vec<Declared>,
    plugins: Plugins,
    needs: Needs,
    /// For each prefix producer that is needed, who asked for it first.
    prefix_consumers: Vec<usize>,
    /// The producers of load that are needed, each with who asked for it first.
    load_producers: Vec<(String, usize)>,
    /// An entry has neither name nor type, so that any name may have been meant for it.
    nameless: bool,
}

/// The instances that the engine works with, each where its reference says.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    pub(super) scheduling: Instances,
    pub(super) admission: Vec<Named<dyn AdmissionPolicy>>,
    pub(super) detectors: Vec<Named<dyn SaturationDetector>>,
    pub(super) fairness: Vec<Named<dyn FairnessPolicy>>,
    pub(super) ordering: Vec<Named<dyn OrderingPolicy>>,
    pub(super) usage: Vec<Named<dyn UsageLimitPolicy>>,
}

/// An instance.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) name: Arc<str>,
    pub(super) type_name: String,
    /// Where it was declared; `None` if it was added.
    pub(super) path: Option<String>,
    pub(super) part: Part,
    /// It reads what endpoints report in their metrics.
    reads_signals: bool,
    /// It takes for unknown what is older.
    fresh_within: Option<Duration>,
    used: bool,
}

/// What an instance is.
#[derive(Debug)]
pub(super) enum Part {
    ProfileHandler(Named<dyn ProfileHandler>),
    Filter(InstanceRef),
    Scorer(InstanceRef),
    Picker(InstanceRef),
    Producer(Producer),
    Parser(ParserKind),
    Source(MetricsSource),
    Extractor(EngineMapping),
    Discovery(FileDiscoveryParams),
    /// A detector, and the filter that it is in a profile.
    Detector(InstanceRef, Option<InstanceRef>),
    Admission(InstanceRef),
    Fairness(InstanceRef),
    Ordering(InstanceRef),
    UsageLimit(InstanceRef),
    /// A data source of llm-d that has no work to do here, which was told.
    UnneededSource,
    /// It could not be made, and the reason was reported. The kind is known if the type is.
    Unusable(Option<PluginKind>),
}

/// Where an instance is written.
#[derive(Clone, Debug, Default)]
struct Place {
    /// The entry of `plugins`; none for what is added.
    plugin: Option<String>,
    /// What its parameters stand below.
    parameters: String,
}

impl Place {
    fn declared(path: String) -> Self {
        Self {
            parameters: format!("{path}.parameters"),
            plugin: Some(path),
        }
    }

    fn of_type(&self) -> String {
        self.plugin
            .as_ref()
            .map(|path| format!("{path}.type"))
            .unwrap_or_default()
    }
}

/// What a reference leads to.
pub(super) enum Resolved<'r> {
    /// This instance.
    Plugin(&'r Declared),
    /// Something that was already reported.
    Reported,
    /// Nothing has this name.
    Undefined,
}

impl Declared {
    /// What it is, if that is known.
    pub(super) fn kind(&self) -> Option<PluginKind> {
        Some(match &self.part {
            Part::ProfileHandler(_) => PluginKind::ProfileHandler,
            Part::Filter(_) => PluginKind::Filter,
            Part::Scorer(_) => PluginKind::Scorer,
            Part::Picker(_) => PluginKind::Picker,
            Part::Producer(_) => PluginKind::DataProducer,
            Part::Parser(_) => PluginKind::Parser,
            Part::Source(_) | Part::UnneededSource => PluginKind::DataSource,
            Part::Extractor(_) => PluginKind::Extractor,
            Part::Discovery(_) => PluginKind::Discovery,
            Part::Detector(..) => PluginKind::SaturationDetector,
            Part::Admission(_) => PluginKind::AdmissionPolicy,
            Part::Fairness(_) => PluginKind::FairnessPolicy,
            Part::Ordering(_) => PluginKind::OrderingPolicy,
            Part::UsageLimit(_) => PluginKind::UsageLimitPolicy,
            Part::Unusable(kind) => return *kind,
        })
    }

    /// What it is, for messages.
    pub(super) fn kind_name(&self) -> &'static str {
        self.kind().map_or("plugin", PluginKind::name)
    }

    /// [`Self::kind_name`] with its article.
    pub(super) fn a_kind(&self) -> String {
        let name = self.kind_name();
        let article = if name.starts_with(['a', 'e', 'i', 'o']) {
            "an"
        } else {
            "a"
        };
        format!("{article} {name}")
    }

    /// Where it is kept, if it says what may come in, wait or go on.
    pub(super) fn policy(&self) -> Option<InstanceRef> {
        match self.part {
            Part::Admission(at)
            | Part::Detector(at, _)
            | Part::Fairness(at)
            | Part::Ordering(at)
            | Part::UsageLimit(at) => Some(at),
            _ => None,
        }
    }

    /// True if it takes part in flow control, and in nothing else.
    fn is_of_flow_control(&self) -> bool {
        matches!(self.part, Part::Fairness(_) | Part::Ordering(_) | Part::UsageLimit(_))
    }

    /// Where it was declared; the document if it was added.
    pub(super) fn path(&self) -> &str {
        self.path.as_deref().unwrap_or("")
    }

    /// Name and type, as the reference prints them.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.name, self.type_name)
    }
}

impl Registry {
    pub(super) fn new(options: LoadOptions) -> Self {
        Self {
            options,
            list: Vec::new(),
            plugins: Plugins::default(),
            needs: Needs::default(),
            prefix_consumers: Vec::new(),
            load_producers: Vec::new(),
            nameless: false,
        }
    }

    /// Makes an instance of each entry of `plugins`.
    pub(super) fn declare(&mut self, specs: &[PluginSpec], report: &mut Report) {
        self.needs = Needs::with(usual_producers(specs));
        let mut moved = Moved::default();
        for (at, spec) in specs.iter().enumerate() {
            let path = format!("plugins[{at}]");
            let name = spec.instance_name();
            let spec = &moved.taken_from(spec, &path);
            if let Some(first) = self.position(name) {
                let field = if spec.name.is_empty() { "type" } else { "name" };
                let first = self.list[first].path();
                report.error(
                    &format!("{path}.{field}"),
                    format!("duplicate plugin name '{name}'; {first} has it already: give one of them another `name`"),
                );
            } else if spec.type_name.is_empty() {
                report.error(
                    &format!("{path}.type"),
                    format!("plugin '{name}' is missing a type; every plugin needs one, such as `type: queue-scorer`"),
                );
                self.nameless |= name.is_empty();
                self.push(name, "", Some(path), Part::Unusable(None));
            } else {
                let at = Place::declared(path);
                self.make(&spec.type_name, name, spec.parameters.as_ref(), &at, report);
            }
        }
        moved.add_to(self, report);
    }

    /// Adds an instance under the name of its type, which is made of parameters that stand below `parameters`. False if
    /// something has that name.
    pub(super) fn add(&mut self, type_name: &str, params: &Value, parameters: &str, report: &mut Report) -> bool {
        let is_free = self.position(type_name).is_none();
        if is_free {
            let at = Place {
                plugin: None,
                parameters: parameters.to_owned(),
            };
            self.make(type_name, type_name, Some(params), &at, report);
        }
        is_free
    }

    /// Adds an instance of this type under the type's name, unless something has that name.
    pub(super) fn ensure(&mut self, type_name: &str, report: &mut Report) {
        if self.position(type_name).is_none() {
            self.make(type_name, type_name, None, &Place::default(), report);
        }
    }

    /// Looks up a name that something refers to.
    pub(super) fn resolve(&mut self, name: &str, report: &Report) -> Resolved<'_> {
        match self.position(name) {
            Some(at) => {
                let declared = &mut self.list[at];
                declared.used = true;
                match declared.part {
                    Part::Unusable(_) => Resolved::Reported,
                    _ => Resolved::Plugin(declared),
                }
            }
            None if self.nameless || !report.names_are_certain() => Resolved::Reported,
            None => Resolved::Undefined,
        }
    }

    /// Says what a name that nothing has may have meant.
    pub(super) fn meant(&self, name: &str) -> String {
        if Registered::find(name).is_some() {
            return format!("`{name}` is a plugin type: declare it with `- type: {name}` under `plugins`");
        }
        let declared = self.list.iter().filter(|declared| declared.path.is_some());
        suggest::or_known(name, "declared", declared.map(|declared| &*declared.name))
    }

    /// All instances, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Declared> {
        self.list.iter()
    }

    /// True if an instance is of this kind, or may be meant to be.
    pub(super) fn may_have(&self, kind: PluginKind) -> bool {
        self.iter().any(|declared| declared.kind().is_none_or(|of| of == kind))
    }

    /// True if an instance could not be made, so that what is missing may be that.
    pub(super) fn may_have_unusable(&self) -> bool {
        self.iter().any(|declared| matches!(declared.part, Part::Unusable(_)))
    }

    /// Says that everything of these kinds is in use.
    pub(super) fn use_all(&mut self, kinds: &[PluginKind]) {
        for declared in &mut self.list {
            declared.used |= declared.kind().is_some_and(|kind| kinds.contains(&kind));
        }
    }

    /// The filters, scorers and pickers.
    pub(super) fn instances(&self) -> &Instances {
        &self.plugins.scheduling
    }

    /// The prefix producers that are needed, each with who asked for it first.
    pub(super) fn prefix_producers(&self) -> Vec<(String, usize)> {
        let names = self.needs.prefix_producers().iter().cloned();
        names.zip(self.prefix_consumers.iter().copied()).collect()
    }

    /// The instance at this place.
    pub(super) fn at(&self, place: usize) -> &Declared {
        &self.list[place]
    }

    /// The settings of the first token producer, or the defaults.
    pub(super) fn token_estimate(&self) -> TokenEstimate {
        let mut producers = self.iter().filter_map(|declared| match &declared.part {
            Part::Producer(Producer::Token(producer)) => Some(producer.estimate.clone()),
            _ => None,
        });
        producers.next().unwrap_or_default()
    }

    /// The producers of load that are needed, each with who asked for it first.
    pub(super) fn load_producers(&self) -> &[(String, usize)] {
        &self.load_producers
    }

    /// The prefix matches of the producer of this name, if something reads them, or if it is declared; then the plugin at
    /// `consumer` reads them.
    pub(super) fn prefix_matches_for(&mut self, name: &str, consumer: Option<usize>) -> Option<PrefixRef> {
        let is_read = self.needs.prefix_producers().iter().any(|needed| needed == name);
        let is_declared = || {
            let declared = self.list.iter().find(|declared| *declared.name == *name);
            declared.is_some_and(|declared| matches!(declared.part, Part::Producer(_)))
        };
        match consumer {
            _ if is_read => Some(self.needs.prefix_matches(name)),
            Some(consumer) if is_declared() => {
                self.prefix_consumers.push(consumer);
                Some(self.needs.prefix_matches(name))
            }
            _ => None,
        }
    }

    /// The plugins at work that take metrics for unknown when they are older than so long.
    pub(super) fn readers_of_fresh_signals(&self) -> impl Iterator<Item = (&Declared, Duration)> {
        let readers = self.iter().filter(|declared| declared.used);
        readers.filter_map(|declared| Some((declared, declared.fresh_within?)))
    }

    /// The names of the plugins at work that read what endpoints report.
    pub(super) fn readers_of_signals(&self) -> Vec<&str> {
        let readers = self.iter().filter(|declared| declared.reads_signals && declared.used);
        readers.map(|declared| &*declared.name).collect()
    }

    /// What was added and has an effect.
    pub(super) fn added(&self) -> Vec<PluginName> {
        let added = self
            .iter()
            .filter(|declared| declared.path.is_none() && (declared.used || !declared.is_of_flow_control()));
        added
            .filter_map(|declared| {
                Some(PluginName {
                    name: declared.name.clone(),
                    type_name: Registered::find(&declared.type_name)?.described().type_name,
                })
            })
            .collect()
    }

    /// The first profile handler, and what the engine works with.
    pub(super) fn finish(self) -> (Option<Named<dyn ProfileHandler>>, Plugins) {
        let handler = self.list.into_iter().find_map(|declared| match declared.part {
            Part::ProfileHandler(handler) => Some(handler),
            _ => None,
        });
        (handler, self.plugins)
    }

    /// Warns of declared instances that have no effect.
    pub(super) fn warn_of_the_unused(&self, with_flow_control: bool, report: &mut Report) {
        for declared in self.iter().filter(|declared| !declared.used) {
            let Some(path) = &declared.path else { continue };
            let name = &declared.name;
            let message = match &declared.part {
                Part::Unusable(_) | Part::UnneededSource | Part::ProfileHandler(_) => continue,
                Part::Filter(_) | Part::Scorer(_) | Part::Picker(_) => {
                    format!(
                        "{} `{name}` has no effect: no profile refers to it",
                        declared.kind_name()
                    )
                }
                Part::Detector(..) => format!(
                    "saturation detector `{name}` has no effect: nothing refers to it; name it in \
                     `flowControl.saturationDetector`, or in a profile to keep requests from endpoints that are full"
                ),
                Part::Producer(_) => format!("data producer `{name}` has no effect: no plugin reads what it produces"),
                _ if declared.is_of_flow_control() && !with_flow_control => format!(
                    "{} `{name}` has no effect without flow control, which is switched on with `featureGates: \
                     [flowControl]`",
                    declared.kind_name()
                ),
                _ => format!("{} `{name}` has no effect: nothing refers to it", declared.kind_name()),
            };
            report.warning(path, message);
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        let named = |declared: &Declared| !name.is_empty() && *declared.name == *name;
        self.list.iter().position(named)
    }

    fn push(&mut self, name: &str, type_name: &str, path: Option<String>, part: Part) {
        let reads_signals = self.needs.take_signals();
        let fresh_within = self.needs.take_freshness();
        for producer in self.needs.take_load_producers() {
            if !self.load_producers.iter().any(|(known, _)| *known == producer) {
                self.load_producers.push((producer, self.list.len()));
            }
        }
        self.list.push(Declared {
            name: name.into(),
            type_name: type_name.to_owned(),
            path,
            part,
            reads_signals,
            fresh_within,
            used: false,
        });
    }

    fn make(&mut self, written_type: &str, name: &str, params: Option<&Value>, at: &Place, report: &mut Report) {
        let type_name = match ALIASES.iter().find(|(old, _)| *old == written_type) {
            Some((_, current)) => {
                report.warning(
                    &at.of_type(),
                    format!("plugin type `{written_type}` is deprecated; write `{current}`"),
                );
                current
            }
            None => written_type,
        };
        let Some(registered) = Registered::find(type_name) else {
            if let Some(why) = unneeded_source(type_name) {
                let message =
                    format!("`{type_name}` has no effect: {why}; leave it out, and its entry in `dataLayer.sources`");
                report.warning(&at.of_type(), message);
                return self.push(name, type_name, at.plugin.clone(), Part::UnneededSource);
            }
            report.error(&at.of_type(), unregistered(type_name));
            let kind = kind_elsewhere(type_name);
            let kind = kind.and_then(|kind| PluginKind::ALL.into_iter().find(|known| known.name() == kind));
            return self.push(name, type_name, at.plugin.clone(), Part::Unusable(kind));
        };
        let described = registered.described();
        if let Some(message) = too_experimental(name, &described, self.options) {
            report.error(&at.of_type(), message);
        }
        let known_needs = self.needs.prefix_producers().len();
        let made = match params {
            Some(Value::Null | Value::Object(_)) | None => self.part(registered, name, params),
            Some(_) if described.parameters.is_empty() => self.part(registered, name, None),
            Some(other) => Err(ParamsError {
                path: String::new(),
                message: format!("expected a mapping, found {}", shape(other)),
            }),
        };
        let part = made.unwrap_or_else(|error| {
            let (below, reason) = explained(&error, described.parameters);
            report.error(
                &format!("{}{below}", at.parameters),
                format!("failed to create plugin '{name}' (type: {type_name}): {reason}"),
            );
            Part::Unusable(Some(described.kind))
        });
        let mut remarks = self.needs.take_remarks();
        // A detector is made twice: as such and as a filter.
        remarks.dedup();
        for Remark { parameter, message } in remarks {
            report.warning(&format!("{}.{parameter}", at.parameters), message);
        }
        if described.parameters.is_empty()
            && !matches!(part, Part::Unusable(_))
            && params.is_some_and(|given| {
                !matches!(given, Value::Null) && given.as_object().is_none_or(|fields| !fields.is_empty())
            })
        {
            report.warning(
                &at.parameters,
                format!("`{type_name}` has no parameters; these are ignored"),
            );
        }
        let new_needs = self.needs.prefix_producers().len() - known_needs;
        self.prefix_consumers
            .extend(std::iter::repeat_n(self.list.len(), new_needs));
        self.push(name, type_name, at.plugin.clone(), part);
    }

    fn part(&mut self, registered: Registered, name: &str, params: Option<&Value>) -> Result<Part, ParamsError> {
        fn named<T: ?Sized>(
            entry: &Entry<T>,
            name: &str,
            params: Option<&Value>,
            needs: &mut Needs,
        ) -> Result<Named<T>, ParamsError> {
            Ok(Named {
                plugin: entry.instance(params, needs)?,
                name: PluginName {
                    name: name.into(),
                    type_name: entry.type_name,
                },
            })
        }
        fn added<T: ?Sized>(list: &mut Vec<Named<T>>, plugin: Named<T>) -> InstanceRef {
            list.push(plugin);
            InstanceRef(list.len() - 1)
        }
        let Self { plugins, needs, .. } = self;
        Ok(match registered {
            Registered::ProfileHandler(entry) => Part::ProfileHandler(named(entry, name, params, needs)?),
            Registered::Filter(entry) => Part::Filter(added(
                &mut plugins.scheduling.filters,
                named(entry, name, params, needs)?,
            )),
            Registered::Scorer(entry) => Part::Scorer(added(
                &mut plugins.scheduling.scorers,
                named(entry, name, params, needs)?,
            )),
            Registered::Picker(entry) => Part::Picker(added(
                &mut plugins.scheduling.pickers,
                named(entry, name, params, needs)?,
            )),
            Registered::DataProducer(entry) => Part::Producer(*entry.instance(params, needs)?),
            Registered::Parser(entry) => Part::Parser(*entry.instance(params, needs)?),
            Registered::DataSource(entry) => Part::Source(*entry.instance(params, needs)?),
            Registered::Extractor(entry) => Part::Extractor(*entry.instance(params, needs)?),
            Registered::Discovery(entry) => Part::Discovery(*entry.instance(params, needs)?),
            Registered::Detector(entry, filter) => {
                let filter = filter.map(|filter| named(filter, name, params, needs)).transpose()?;
                Part::Detector(
                    added(&mut plugins.detectors, named(entry, name, params, needs)?),
                    filter.map(|filter| added(&mut plugins.scheduling.filters, filter)),
                )
            }
            Registered::Admission(entry) => {
                Part::Admission(added(&mut plugins.admission, named(entry, name, params, needs)?))
            }
            Registered::Fairness(entry) => {
                Part::Fairness(added(&mut plugins.fairness, named(entry, name, params, needs)?))
            }
            Registered::Ordering(entry) => {
                Part::Ordering(added(&mut plugins.ordering, named(entry, name, params, needs)?))
            }
            Registered::UsageLimit(entry) => {
                Part::UsageLimit(added(&mut plugins.usage, named(entry, name, params, needs)?))
            }
        })
    }
}

/// The prefix producers for plugins that name none: what knows is preferred to what guesses, and among those that guess,
/// the one that is there because somebody asked for it.
fn usual_producers(specs: &[PluginSpec]) -> UsualProducers {
    let of_type = |type_name: &'static str| specs.iter().find(|spec| spec.type_name == type_name);
    let name_or =
        |declared: Option<&PluginSpec>, usual: &str| declared.map_or(usual, PluginSpec::instance_name).to_owned();
    let has = |types: [&'static str; 2]| types.into_iter().any(|type_name| of_type(type_name).is_some());

    let precise = name_or(of_type(PRECISE_PREFIX_PRODUCER), PRECISE_PREFIX_PRODUCER);
    let any = if has([PRECISE_PREFIX_PRODUCER, PRECISE_PREFIX_SCORER]) {
        precise.clone()
    } else if has([PREFIX_AFFINITY_PRODUCER, PREFIX_AFFINITY_SCORER]) {
        name_or(of_type(PREFIX_AFFINITY_PRODUCER), PREFIX_AFFINITY_PRODUCER)
    } else {
        DEFAULT_PREFIX_PRODUCER.to_owned()
    };
    UsualProducers { precise, any }
}

/// Says that a type is not there, and what there is.
pub(super) fn unregistered(type_name: &str) -> String {
    let catalog = catalog();
    if let Some(successor) = successor(type_name) {
        return format!("plugin type '{type_name}' is not registered: llm-d does not have it any more; {successor}");
    }
    let Some(kind) = kind_elsewhere(type_name) else {
        let types = || catalog.iter().map(|entry| entry.type_name);
        let known = match suggest::closest(type_name, types()) {
            // All of them beside it would hide what else is wrong.
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("known types: {}", suggest::listed(types())),
        };
        return format!("plugin type '{type_name}' is not registered; {known}");
    };
    let alike = catalog.iter().filter(|entry| entry.kind.name() == kind);
    let alike: Vec<&str> = alike.map(|entry| entry.type_name).collect();
    let here = match alike.as_slice() {
        [] => format!("this version has no {kind} at all"),
        alike => format!("available here: {}", suggest::listed(alike.iter().copied())),
    };
    format!(
        "plugin type '{type_name}' is not registered: this {kind} exists in llm-d but not in this version of forebay; \
         {here}"
    )
}

/// Why a plugin may not be used, if it is experimental and such plugins are not allowed.
fn too_experimental(name: &str, plugin: &CatalogEntry, options: LoadOptions) -> Option<String> {
    let refused = plugin.stability == Stability::Alpha && !options.allow_experimental_plugins;
    refused.then(|| {
        format!(
            "plugin '{name}' (type: '{}') has Alpha stability level, but command line flag \
             --allow-experimental-plugins is not set",
            plugin.type_name
        )
    })
}

fn shape(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        Value::String(text) => format!("the text `{text}`"),
        scalar => format!("`{scalar}`"),
    }
}

/// Where below `parameters` an error is, and what it says in an operator's words.
fn explained(error: &ParamsError, parameters: &[Parameter]) -> (String, String) {
    let below = |path: &str| match path {
        "" => String::new(),
        path if path.starts_with('[') => path.to_owned(),
        path => format!(".{path}"),
    };
    if let Some(unknown) = UnknownField::of(&error.message) {
        let reason = format!("json: unknown field \"{}\"; {}", unknown.name, unknown.remedy());
        return (below(&error.path), reason);
    }
    let path = match error.path.as_str() {
        "" => first_named(&error.message, parameters),
        path => path,
    };
    (below(path), reworded(&error.message))
}

/// The parameter that a message speaks of first, with the list index behind it if there is one.
fn first_named<'m>(message: &'m str, parameters: &[Parameter]) -> &'m str {
    let is_named_at = |at: usize, name: &str| {
        let inside_word = |c: char| c.is_alphanumeric() || c == '_';
        message[at..].starts_with(name)
            && !message[..at].ends_with(inside_word)
            && !message[at + name.len()..].starts_with(inside_word)
    };
    for (at, _) in message.char_indices() {
        if let Some(parameter) = parameters.iter().find(|parameter| is_named_at(at, parameter.name)) {
            let end = at + parameter.name.len();
            let index = message[end..].strip_prefix('[').and_then(|rest| rest.find(']'));
            return &message[at..index.map_or(end, |index| end + index + 2)];
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: &[Parameter] = &[
        Parameter {
            name: "port",
            default: "1",
            summary: "",
        },
        Parameter {
            name: "engines",
            default: "[]",
            summary: "",
        },
    ];

    #[test]
    fn an_error_is_placed_at_the_parameter_that_it_speaks_of() {
        assert_eq!(first_named("port 0 is too small", PARAMETERS), "port");
        assert_eq!(first_named("engines[2] (`x`): port", PARAMETERS), "engines[2]");
        assert_eq!(first_named("all ports are taken", PARAMETERS), "");
    }

    #[test]
    fn an_alpha_plugin_needs_leave() {
        let plugin = CatalogEntry {
            kind: PluginKind::Filter,
            type_name: "t",
            summary: "",
            parameters: &[],
            stability: Stability::Alpha,
        };
        let with_leave = LoadOptions {
            allow_experimental_plugins: true,
            ..LoadOptions::default()
        };

        let refusal = "plugin 'n' (type: 't') has Alpha stability level, but command line flag \
                       --allow-experimental-plugins is not set";
        assert_eq!(
            too_experimental("n", &plugin, LoadOptions::default()),
            Some(refusal.to_owned())
        );
        assert_eq!(too_experimental("n", &plugin, with_leave), None);
    }
}
