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
  "endpoint-selector" "router.modelServers.matchLabels" "endpoint-target-ports" "router.modelServers.targetPorts"
  "config-text" "router.epp.pluginsCustomConfig" }}
{{- if hasKey $.Values.router.epp.flags $flag }}
{{- fail (printf "value `router.epp.flags.%s`: set `%s` instead, which other objects depend on too" $flag $value) }}
{{- end }}
{{- end }}
{{- $known := .Files.Get "files/flags.yaml" | fromYaml }}
{{- range $flag, $value := .Values.router.epp.flags }}
{{- if not (or (has $flag $known.flags) (has $flag $known.withoutEffect)) }}
{{- fail (printf "value `router.epp.flags.%s`: Forebay has no flag `--%s`; docs/flags.md lists them" $flag $flag) }}
{{- end }}
{{- end }}
{{- if hasKey .Values.router.epp.flags "pool-namespace" }}
{{- fail "value `router.epp.flags.pool-namespace`: install the release in the pool's namespace instead, where its roles are" }}
{{- end }}
{{- if and .Values.router.networkPolicy.enabled (eq .Values.mode "gateway") (not .Values.router.networkPolicy.extProcFrom) }}
{{- fail "value `router.networkPolicy.extProcFrom` is empty: name the gateway's pods, or nobody could ask Forebay" }}
{{- end }}
{{- if and .Values.router.networkPolicy.enabled .Values.router.monitoring.prometheus.enabled (not .Values.router.networkPolicy.metricsFrom) }}
{{- fail "value `router.networkPolicy.metricsFrom` is empty, and `router.monitoring.prometheus.enabled` is true: name the pods of Prometheus, or the policy would keep it from all metrics" }}
{{- end }}
{{- $image := .Values.router.epp.image }}
{{- if and (not $image.registry) (eq $image.repository "forebay") (ne $image.pullPolicy "Never") }}
{{- fail "value `router.epp.image.registry` is empty, and there is no published image: push one of your own and name its registry (docs/kubernetes.md, \"The image\"), or set `router.epp.image.pullPolicy` to Never if `forebay` is on the nodes already" }}
{{- end }}
{{- range .Values.router.epp.env }}
{{- if has .name (list "NAMESPACE" "POD_NAME" "POD_IP") }}
{{- fail (printf "value `router.epp.env`: the chart sets `%s` itself, from the pod; leave it out" .name) }}
{{- end }}
{{- end }}
{{- range $label := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" }}
{{- if hasKey $.Values.router.epp.podLabels $label }}
{{- fail (printf "value `router.epp.podLabels`: the chart sets `%s` itself, and selects pods by it; leave it out" $label) }}
{{- end }}
{{- end }}
{{- if and (include "forebay.standalone" .) (include "forebay.failOpen" .) (eq (get .Values.router.epp.flags "health-checking" | toString) "false") }}
{{- fail "value `router.epp.flags.health-checking` is false, and `router.proxy.failOpen` is on: Envoy would take Forebay for dead and let every request through without a pick; leave the flag out" }}
{{- end }}
{{- if and (include "forebay.standalone" .) (include "forebay.failOpen" .) (not (include "forebay.fallbackList" .)) }}
{{- fail "value `router.proxy.fallbackList` is false, and `router.proxy.failOpen` is on: Envoy would know no model server to send requests to while Forebay is away; leave `fallbackList` at true" }}
{{- end }}
{{- $severalEndpoints := regexMatch "maxNumOfEndpoints\"?:\\s*([2-9]|[1-9][0-9])" (get .Values.router.epp.pluginsCustomConfig $file | toString) }}
{{- if and (include "forebay.standalone" .) (not (include "forebay.fallbackList" .)) $severalEndpoints }}
{{- fail (printf "value `router.epp.pluginsCustomConfig`: `%s` sets `maxNumOfEndpoints` above 1, and `router.proxy.fallbackList` is false: Envoy would answer 503 to a list; set `maxNumOfEndpoints` to 1, or `fallbackList` to true" $file) }}
{{- end }}
{{- if eq .Values.provider.name "agentgateway" }}
{{- if not (include "forebay.tls" .) }}
{{- fail "value `router.epp.tls.enabled` is false, and `provider.name` is `agentgateway`, which asks over TLS alone: no request would be served" }}
{{- end }}
{{- if $severalEndpoints }}
{{- fail (printf "value `router.epp.pluginsCustomConfig`: `%s` sets `maxNumOfEndpoints` above 1, and `provider.name` is `agentgateway`, which reads one endpoint alone and answers 503 to a list; set it to 1" $file) }}
{{- end }}
{{- end }}
{{- $drain := get .Values.router.epp.flags "drain-timeout" | default "30s" | toString }}
{{- if regexMatch "^[0-9]+s$" $drain }}
{{- $needed := add (int (include "forebay.preStopSleepSeconds" .)) (int (trimSuffix "s" $drain)) }}
{{- if lt (int .Values.router.epp.terminationGracePeriodSeconds) (int $needed) }}
{{- fail (printf "value `router.epp.terminationGracePeriodSeconds` is %v: the pod waits %s seconds before it begins to end, and requests have %s after that (`router.epp.flags.drain-timeout`); set it to %d at least" .Values.router.epp.terminationGracePeriodSeconds (include "forebay.preStopSleepSeconds" .) $drain (int $needed)) }}
{{- end }}
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

{{/* Values that were given and change nothing: one a line. Values that have a default can't be told from it. */}}
{{- define "forebay.withoutEffect" -}}
{{- $router := .Values.router }}
{{- if $router.tracing.enabled }}
- router.tracing: this version exports no traces.
{{- end }}
{{- $known := .Files.Get "files/flags.yaml" | fromYaml }}
{{- range $flag, $value := $router.epp.flags }}
{{- if has $flag $known.withoutEffect }}
- router.epp.flags.{{ $flag }}: accepted as the reference's flag; it has no effect.
{{- end }}
{{- end }}
{{- if ne $router.epp.pluginsConfigFile "default-plugins.yaml" }}
{{- if $router.epp.parsers }}
- router.epp.parsers: belongs to default-plugins.yaml; name parsers in {{ $router.epp.pluginsConfigFile }}.
{{- end }}
{{- if ne $router.modelServers.type "vllm" }}
- router.modelServers.type: belongs to default-plugins.yaml; name the engine in {{ $router.epp.pluginsConfigFile }}.
{{- end }}
{{- end }}
{{- if and $router.epp.tls.secretName (not (include "forebay.tls" .)) }}
- router.epp.tls.secretName: TLS is off, as the Envoy that asks is in the same pod or router.epp.tls.enabled is false.
{{- end }}
{{- if hasKey $router.proxy "enabled" }}
- router.proxy.enabled: of another chart; `mode` and router.proxy.mode say whether there is an Envoy.
{{- end }}
{{- if and $router.monitoring.prometheus.auth.secretName (not (include "forebay.metricsAuth" .)) }}
- router.monitoring.prometheus.auth.secretName: router.monitoring.prometheus.auth.enabled is false.
{{- end }}
{{- if and $router.monitoring.prometheus.extraLabels (not $router.monitoring.prometheus.enabled) }}
- router.monitoring.prometheus.extraLabels: router.monitoring.prometheus.enabled is false.
{{- end }}
{{- if and $router.monitoring.rules.extraLabels (not $router.monitoring.rules.enabled) }}
- router.monitoring.rules.extraLabels: router.monitoring.rules.enabled is false.
{{- end }}
{{- if and $router.monitoring.dashboard.annotations (not $router.monitoring.dashboard.enabled) }}
- router.monitoring.dashboard.annotations: router.monitoring.dashboard.enabled is false.
{{- end }}
{{- if not $router.networkPolicy.enabled }}
{{- range $key := list "extProcFrom" "metricsFrom" "proxyFrom" "apiServerTo" "extraEgress" }}
{{- if index $router.networkPolicy $key }}
- router.networkPolicy.{{ $key }}: router.networkPolicy.enabled is false.
{{- end }}
{{- end }}
{{- else if and $router.networkPolicy.proxyFrom (not (include "forebay.standalone" .)) }}
- router.networkPolicy.proxyFrom: mode is gateway, where the chart has no Envoy.
{{- end }}
{{- if not (include "forebay.standalone" .) }}
{{- range $key := list "serviceAnnotations" }}
{{- if index $router.proxy $key }}
- router.proxy.{{ $key }}: mode is gateway, where the chart has no Envoy.
{{- end }}
{{- end }}
{{- end }}
{{- if and $router.inferencePool.annotations (not $router.inferencePool.create) }}
- router.inferencePool.annotations: router.inferencePool.create is false.
{{- end }}
{{- if not .Values.httpRoute.create }}
{{- range $key := list "inferenceGatewayNamespace" "baseModel" "headerMatches" }}
{{- if index $.Values.httpRoute $key }}
- httpRoute.{{ $key }}: httpRoute.create is false.
{{- end }}
{{- end }}
{{- end }}
{{- if eq .Values.provider.name "agentgateway" }}
{{- if and $router.inferencePool.create (eq $router.inferencePool.failureMode "FailOpen") }}
- router.inferencePool.failureMode: agentgateway fails open only for requests without a body; while Forebay is away all others fail.
{{- end }}
{{- if regexMatch "enableEviction\"?:\\s*true" (get $router.epp.pluginsCustomConfig $router.epp.pluginsConfigFile | toString) }}
- enableEviction in {{ $router.epp.pluginsConfigFile }}: agentgateway does not tell the model server that a request was evicted.
{{- end }}
{{- end }}
{{- if and (ne .Values.provider.name "istio") (or .Values.provider.istio.destinationRule.host .Values.provider.istio.destinationRule.trafficPolicy) }}
- provider.istio.destinationRule: provider.name is {{ .Values.provider.name }}.
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
