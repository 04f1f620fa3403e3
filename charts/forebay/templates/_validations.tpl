{{/* What cannot be said in values.schema.json, and what deserves a hint. */}}
{{- define "forebay.validate" -}}
{{- $moved := dict
  "inferenceExtension" "most of it is `router.epp` now; its `monitoring`, `tracing` and `extraServicePorts` are `router.monitoring`, `router.tracing` and `router.extraServicePorts`, and its `failureMode` is `router.inferencePool.failureMode`"
  "inferencePool" "`inferencePool.modelServers.matchLabels` is `router.modelServers.matchLabels` now; `targetPorts`, `modelServerType` and `modelServerProtocol` are `router.modelServers.targetPorts`, `.type` and `.protocol`, and `apiVersion` is `router.inferencePool.apiVersion`"
  "inferenceObjectives" "it is `router.inferenceObjectives` now"
  "experimentalHttpRoute" "it is `httpRoute` now, and its `enabled` is `httpRoute.create`" -}}
{{- range $key, $hint := $moved }}
{{- if hasKey $.Values $key }}
{{- fail (printf "value `%s` is not one of this chart: %s (docs/migration.md)" $key $hint) }}
{{- end }}
{{- end }}
{{- range $key := list "latencyPredictor" "tokenizer" }}
{{- if (index $.Values.router $key | default dict).enabled }}
{{- fail (printf "value `router.%s.enabled`: Forebay has no %s; leave it out (docs/migration.md)" $key $key) }}
{{- end }}
{{- end }}
{{- if ((.Values.provider.gke.preferredBackends) | default dict).enabled }}
{{- fail "value `provider.gke.preferredBackends.enabled`: not supported; use `router.epp.replicas` (docs/migration.md)" }}
{{- end }}
{{- $needless := and (include "forebay.poolElsewhere" .) (eq .Values.mode "gateway") (not .Values.router.networkPolicy.enabled) }}
{{- if not (or .Values.router.modelServers.matchLabels $needless) }}
{{- fail "value `router.modelServers.matchLabels` is empty: give the labels of the pods that serve models, such as `--set router.modelServers.matchLabels.app=vllm-qwen3-32b`" }}
{{- end }}
{{- $pool := .Values.router.inferencePool }}
{{- if and (ne $pool.apiVersion "inference.networking.k8s.io/v1") $pool.create }}
{{- fail (printf "value `router.inferencePool.apiVersion` is `%s`, of which the chart makes no pools; for one that is made elsewhere, set `router.inferencePool.create` to false and its `router.inferencePool.name`" $pool.apiVersion) }}
{{- end }}
{{- if and (ne $pool.apiVersion "inference.networking.k8s.io/v1") (not (include "forebay.pool" .)) }}
{{- fail (printf "value `router.inferencePool.apiVersion` is `%s`, and no pool is followed; set `router.inferencePool.name`" $pool.apiVersion) }}
{{- end }}
{{- if and .Values.router.inferenceObjectives (not (include "forebay.pool" .)) }}
{{- fail "value `router.inferenceObjectives` needs a pool, which objectives belong to: set `router.inferencePool.create`, or the `router.inferencePool.name` of one that is made elsewhere" }}
{{- end }}
{{- if and (include "forebay.standalone" .) .Values.httpRoute.create }}
{{- fail "value `httpRoute.create` is true in mode `standalone`, where no Gateway routes; use `mode: gateway`" }}
{{- end }}
{{- if and (include "forebay.standalone" .) (ne .Values.provider.name "none") }}
{{- fail (printf "value `provider.name` is `%s` in mode `standalone`, where no Gateway routes; use `none`" .Values.provider.name) }}
{{- end }}
{{- $file := .Values.router.epp.pluginsConfigFile }}
{{- if and (ne $file "default-plugins.yaml") (not (hasKey .Values.router.epp.pluginsCustomConfig $file)) }}
{{- fail (printf "value `router.epp.pluginsConfigFile` is `%s`, which is neither `default-plugins.yaml` nor a key of `router.epp.pluginsCustomConfig`" $file) }}
{{- end }}
{{- range $flag, $value := dict
  "grpc-port" "router.epp.extProcPort" "grpc-health-port" "router.epp.grpcHealthPort" "metrics-port" "router.metricsPort"
  "config-file" "router.epp.pluginsConfigFile" "config-object" "router.epp.configObject"
  "pool-name" "router.inferencePool.name" "pool-group" "router.inferencePool.apiVersion"
  "secure-serving" "router.epp.tls.enabled" "cert-path" "router.epp.tls.secretName"
  "ha-enable-leader-election" "router.epp.leaderElection.enabled"
  "metrics-endpoint-auth" "router.monitoring.prometheus.auth.enabled" "tracing" "router.tracing.enabled"
  "endpoint-selector" "router.modelServers.matchLabels" "endpoint-target-ports" "router.modelServers.targetPorts" }}
{{- if hasKey $.Values.router.epp.flags $flag }}
{{- fail (printf "value `router.epp.flags.%s`: set `%s` instead, which other objects depend on too" $flag $value) }}
{{- end }}
{{- end }}
{{- if hasKey .Values.router.epp.flags "pool-namespace" }}
{{- fail "value `router.epp.flags.pool-namespace`: install the release in the pool's namespace instead, where its roles are" }}
{{- end }}
{{- if and .Values.router.networkPolicy.enabled (eq .Values.mode "gateway") (not .Values.router.networkPolicy.extProcFrom) }}
{{- fail "value `router.networkPolicy.extProcFrom` is empty: name the gateway's pods, or nobody could ask Forebay" }}
{{- end }}
{{- if le (int .Values.router.epp.terminationGracePeriodSeconds) (int (include "forebay.preStopSleepSeconds" .)) }}
{{- fail (printf "value `router.epp.terminationGracePeriodSeconds` is %v, and the pod is to wait %s seconds before it begins to end (`router.epp.preStopSleepSeconds`, or `router.proxy.drainSeconds` of the Envoy in it); set it higher" .Values.router.epp.terminationGracePeriodSeconds (include "forebay.preStopSleepSeconds" .)) }}
{{- end }}
{{- $proxy := .Values.router.proxy }}
{{- $ports := list
  (dict "value" "router.epp.extProcPort" "port" .Values.router.epp.extProcPort)
  (dict "value" "router.epp.grpcHealthPort" "port" .Values.router.epp.grpcHealthPort)
  (dict "value" "router.metricsPort" "port" .Values.router.metricsPort) }}
{{- $proxyPorts := list
  (dict "value" "router.proxy.port" "port" $proxy.port)
  (dict "value" "router.proxy.readyPort" "port" $proxy.readyPort) }}
{{- if include "forebay.sidecar" . }}
{{- $ports = concat $ports $proxyPorts }}
{{- end }}
{{- include "forebay.distinct" $ports }}
{{- if include "forebay.proxyService" . }}
{{- include "forebay.distinct" $proxyPorts }}
{{- end }}
{{- $service := list "grpc-ext-proc" "http-metrics" }}
{{- $numbers := list .Values.router.epp.extProcPort .Values.router.metricsPort }}
{{- if include "forebay.sidecar" . }}
{{- $service = append $service "http" }}
{{- $numbers = append $numbers $proxy.port }}
{{- end }}
{{- range .Values.router.extraServicePorts }}
{{- $number := int .port }}
{{- range $own := $numbers }}
{{- if eq $number (int $own) }}
{{- fail (printf "value `router.extraServicePorts`: the Service has port %d without being told; take it out of the list" $number) }}
{{- end }}
{{- end }}
{{- if has .name $service }}
{{- fail (printf "value `router.extraServicePorts`: `%s` is the name of a port that the Service has without being told; give another one" .name) }}
{{- end }}
{{- end }}
{{- end }}

{{/* That no two of these ports of one pod, each with the `value` that sets it, are the same. */}}
{{- define "forebay.distinct" -}}
{{- $taken := dict }}
{{- range . }}
{{- $port := toString (int .port) }}
{{- if hasKey $taken $port }}
{{- fail (printf "values `%s` and `%s` are both %s; the ports of a pod have to differ" (get $taken $port) .value $port) }}
{{- end }}
{{- $_ := set $taken $port .value }}
{{- end }}
{{- end }}
