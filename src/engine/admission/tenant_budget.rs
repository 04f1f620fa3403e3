//! Turns away what may be shed of tenants that have more than their share of the pool.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::super::plugin::{Needs, Parameter, ParamsError, Plugin};
use super::super::request::Request;
use super::super::time::Timestamp;
use super::{Admission, AdmissionPolicy, TABLE, View};

/// A tenant with more than `budget · endpoints · maxNumSeqs` requests in flight gets nothing below priority 0 in.
/// Whatever passes is left to another policy (spec, simulator 7).
#[derive(Debug)]
pub(super) struct TenantBudget {
    /// The share of the pool that each tenant may have. Others may have all.
    budgets: BTreeMap<String, f64>,
    max_num_seqs: u32,
    policy: Box<dyn AdmissionPolicy>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    budgets: BTreeMap<String, f64>,
    max_num_seqs: i64,
    policy: Policy,
}

/// The policy for what passes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Policy {
    r#type: String,
    #[serde(default)]
    parameters: Option<Value>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            budgets: BTreeMap::new(),
            max_num_seqs: 256,
            policy: Policy {
                r#type: "always-admit".to_owned(),
                parameters: None,
            },
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("`budgets` are shares of the pool, at least 0 and at most 1; found `{value}` for `{tenant}`")]
    Budget { tenant: String, value: f64 },
    #[error("`maxNumSeqs` must be above 0, found `{0}`")]
    MaxNumSeqs(i64),
    #[error("`policy`: `{found}` is not an admission policy; known: {known}")]
    Unknown { found: String, known: String },
    #[error("`policy`: `parameters{}` of `{type_name}`: {error}", below(.error))]
    Inner {
        type_name: &'static str,
        error: ParamsError,
    },
}

fn below(error: &ParamsError) -> String {
    match error.path.as_str() {
        "" => String::new(),
        path => format!(".{path}"),
    }
}

impl Plugin for TenantBudget {
    const TYPE: &'static str = "tenant-budget";
    const SUMMARY: &'static str = "lets nothing below priority 0 in from a tenant that has more than its share of the \
                                   pool, and asks another policy about the rest";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "budgets",
            default: "{}",
            summary: "the share of the pool that each tenant, by its fairness id, may have, 0 to 1; others may have all",
        },
        Parameter {
            name: "maxNumSeqs",
            default: "256",
            summary: "requests that an endpoint can take; above 0",
        },
        Parameter {
            name: "policy",
            default: "{\"type\": \"always-admit\"}",
            summary: "what decides about requests within the budgets: `type` of an admission policy, and its \
                      `parameters`",
        },
    ];
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Error> {
        let over = params.budgets.iter().find(|(_, budget)| !(0.0..=1.0).contains(*budget));
        if let Some((tenant, &value)) = over {
            let tenant = tenant.clone();
            return Err(Error::Budget { tenant, value });
        }
        let max_num_seqs = match u32::try_from(params.max_num_seqs) {
            Ok(seqs) if seqs > 0 => seqs,
            _ => return Err(Error::MaxNumSeqs(params.max_num_seqs)),
        };
        let Policy { r#type, parameters } = params.policy;
        let Some(entry) = TABLE.iter().find(|entry| entry.type_name == r#type) else {
            let known: Vec<_> = TABLE.iter().map(|entry| format!("`{}`", entry.type_name)).collect();
            return Err(Error::Unknown {
                found: r#type,
                known: known.join(", "),
            });
        };
        let policy = entry
            .instance(parameters.as_ref(), needs)
            .map_err(|error| Error::Inner {
                type_name: entry.type_name,
                error,
            })?;
        Ok(Self {
            budgets: params.budgets,
            max_num_seqs,
            policy,
        })
    }
}

impl TenantBudget {
    fn is_over_budget(&self, request: &Request, view: &View<'_>) -> bool {
        let Some(budget) = self.budgets.get(&*request.fairness_id) else {
            return false;
        };
        let capacity = view.endpoints() as f64 * f64::from(self.max_num_seqs);
        f64::from(view.in_flight_of(&request.fairness_id)) > budget * capacity
    }
}

impl AdmissionPolicy for TenantBudget {
    fn admit(&mut self, now: Timestamp, request: &Request, view: View<'_>) -> Admission {
        if request.priority < 0 && self.is_over_budget(request, &view) {
            return Admission::Reject {
                reason: "tenant-budget-shed".into(),
                retry_after: None,
            };
        }
        self.policy.admit(now, request, view)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::plugin::instance;
    use super::super::super::request::Kind;
    use super::super::super::scheduling::testing::Scene;
    use super::*;

    fn policy(params: &Value) -> TenantBudget {
        instance(Some(params), &mut Needs::default()).unwrap()
    }

    fn of(tenant: &str, priority: i32) -> Request {
        Request {
            fairness_id: tenant.into(),
            priority,
            prompt_tokens: 100,
            ..Request::unknown(Kind::Inference)
        }
    }

    fn shed() -> Admission {
        Admission::Reject {
            reason: "tenant-budget-shed".into(),
            retry_after: None,
        }
    }

    #[test]
    fn what_may_be_shed_of_a_tenant_beyond_its_budget_is_turned_away() {
        // A quarter of two endpoints with four places each.
        let mut policy = policy(&json!({"budgets": {"a": 0.25}, "maxNumSeqs": 4}));
        let scene = |in_flight| Scene::new().waiting(&[0, 0]).tenant("a", in_flight);

        assert_eq!(scene(2).admits(&mut policy, &of("a", -1)), Admission::Admit, "not more");
        assert_eq!(scene(3).admits(&mut policy, &of("a", -1)), shed());
        assert_eq!(scene(3).admits(&mut policy, &of("a", 0)), Admission::Admit);
    }

    #[test]
    fn a_tenant_without_a_budget_may_have_all() {
        let mut policy = policy(&json!({"budgets": {"a": 0.0}, "maxNumSeqs": 1}));
        let scene = Scene::new().waiting(&[0]).tenant("b", 99);

        assert_eq!(scene.admits(&mut policy, &of("b", -1)), Admission::Admit);
    }

    #[test]
    fn what_is_within_the_budgets_is_left_to_the_other_policy() {
        let mut policy = policy(&json!({
            "budgets": {"a": 0.0},
            "policy": {"type": "token-bucket", "parameters": {"capacity": 150}},
        }));
        let scene = Scene::new().waiting(&[0]).tenant("a", 1);

        assert_eq!(scene.admits(&mut policy, &of("a", -1)), shed(), "and takes no tokens");
        assert_eq!(scene.admits(&mut policy, &of("b", -1)), Admission::Admit);
        let second = scene.admits(&mut policy, &of("b", -1));
        assert!(
            matches!(&second, Admission::Reject { reason, .. } if reason == "insufficient tokens"),
            "{second:?}"
        );
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let refusal = |params: Value| {
            instance::<TenantBudget>(Some(&params), &mut Needs::default())
                .unwrap_err()
                .message
        };

        assert_eq!(
            refusal(json!({"budgets": {"a": 1.5}})),
            "`budgets` are shares of the pool, at least 0 and at most 1; found `1.5` for `a`"
        );
        assert_eq!(
            refusal(json!({"maxNumSeqs": 0})),
            "`maxNumSeqs` must be above 0, found `0`"
        );
        assert!(
            refusal(json!({"policy": {"type": "fcfs"}}))
                .starts_with("`policy`: `fcfs` is not an admission policy; known: ")
        );
        assert_eq!(
            refusal(json!({"policy": {"type": "token-bucket", "parameters": {"capacity": 0}}})),
            "`policy`: `parameters` of `token-bucket`: `capacity` must be above 0, found `0`"
        );
    }
}
