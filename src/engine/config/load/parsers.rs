//! Parsers: who understands requests.

use super::super::catalog::Registered;
use super::super::document::Document;
use super::super::elsewhere::kind_elsewhere;
use super::super::report::Report;
use super::super::settings::ParserKind;
use super::super::settings::parsers::DEFAULTS;
use super::super::suggest;
use super::registry::{Part, Registry, Resolved, unregistered};

/// The parsers, in order (spec, config 3.4).
pub(super) fn planned(document: &Document, registry: &mut Registry, report: &mut Report) -> Vec<ParserKind> {
    if document.request_handler.propagate_priority == Some(true) {
        report.warning(
            "requestHandler.propagatePriority",
            "this has no effect: bodies of requests do not get the priority written into them",
        );
    }
    let mut parsers: Vec<(ParserKind, String)> = Vec::new();
    for (path, name) in references(document, report) {
        let Some(parser) = resolved(&path, &name, registry, report) else {
            continue;
        };
        let fallback = parsers.iter().find(|(parser, _)| parser.is_fallback());
        let same = parsers.iter().find(|(known, _)| *known == parser);
        if let Some((_, fallback)) = fallback {
            report.warning(
                &path,
                format!("parser `{name}` is left out: `{fallback}` before it takes everything"),
            );
        } else if let Some((_, first)) = same {
            report.warning(
                &path,
                format!("parser `{name}` is left out: `{first}` is of the same type"),
            );
        } else {
            parsers.push((parser, name));
        }
    }
    parsers.into_iter().map(|(parser, _)| parser).collect()
}

/// The names of the parsers, and where they are written.
fn references(document: &Document, report: &mut Report) -> Vec<(String, String)> {
    let listed = &document.request_handler.parsers;
    if let Some(parser) = &document.parser {
        let path = "parser.pluginRef";
        if listed.is_empty() {
            report.warning(
                path,
                "`parser` is deprecated; write it as an entry of `requestHandler.parsers`",
            );
            return vec![(path.to_owned(), parser.plugin_ref.clone())];
        }
        report.warning(
            path,
            "`parser` is deprecated, and has no effect beside `requestHandler.parsers`",
        );
    }
    if listed.is_empty() {
        let defaults = DEFAULTS.iter().map(|name| (String::new(), (*name).to_owned()));
        return defaults.collect();
    }
    let path = |at| format!("requestHandler.parsers[{at}].pluginRef");
    let listed = listed.iter().enumerate();
    listed
        .map(|(at, parser)| (path(at), parser.plugin_ref.clone()))
        .collect()
}

fn resolved(path: &str, name: &str, registry: &mut Registry, report: &mut Report) -> Option<ParserKind> {
    if matches!(registry.resolve(name, report), Resolved::Undefined) {
        if Registered::find(name).is_none() {
            report.error(path, unknown(name));
            return None;
        }
        registry.ensure(name, report);
    }
    match registry.resolve(name, report) {
        Resolved::Plugin(plugin) => match plugin.part {
            Part::Parser(parser) => return Some(parser),
            _ => {
                let kind = plugin.a_kind();
                report.error(
                    path,
                    format!(
                        "the plugin \"{name}\" is not a parser plugin but {kind}; parsers: {}",
                        suggest::listed(DEFAULTS.iter().copied())
                    ),
                );
            }
        },
        Resolved::Reported | Resolved::Undefined => {}
    }
    None
}

fn unknown(name: &str) -> String {
    let core = format!("plugin type '{name}' not found in registry");
    match kind_elsewhere(name) {
        Some(_) => format!("{core}: {}", unregistered(name)),
        None => format!(
            "{core}; {}",
            suggest::or_known(name, "parsers", DEFAULTS.iter().copied())
        ),
    }
}
