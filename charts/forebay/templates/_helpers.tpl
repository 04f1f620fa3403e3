{{/* Prefix of names. A release's name may have dots, and that of a Service may not. */}}
{{- define "forebay.base" -}}
{{- .Values.nameOverride | default .Release.Name | lower | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* Name of what a gateway knows of: the route, and the pool unless that has a name of its own. */}}
{{- define "forebay.frontName" -}}
{{- .Values.nameOverride | default .Release.Name -}}
{{- end }}

{{- define "forebay.poolName" -}}
{{- .Values.router.inferencePool.name | default (include "forebay.frontName" .) -}}
{{- end }}

{{- define "forebay.poolGroup" -}}
{{- .Values.router.inferencePool.apiVersion | splitList "/" | first -}}
{{- end }}

{{/* Name of the picker's objects. */}}
{{- define "forebay.name" -}}
{{ include "forebay.base" . }}-epp
{{- end }}

{{- define "forebay.proxyName" -}}
{{ include "forebay.base" . }}-proxy
{{- end }}

{{/* Names of cluster-wide objects say of which namespace they are. */}}
{{- define "forebay.clusterName" -}}
{{ include "forebay.base" . }}-{{ .Release.Namespace }}-epp
{{- end }}

{{- define "forebay.metricsReader" -}}
{{ include "forebay.base" . }}-metrics-reader
{{- end }}

{{- define "forebay.metricsSecret" -}}
{{ .Values.router.monitoring.prometheus.auth.secretName | default (include "forebay.metricsReader" .) }}
{{- end }}

{{- define "forebay.selectorLabels" -}}
app.kubernetes.io/name: forebay
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: epp
{{- end }}

{{- define "forebay.proxySelectorLabels" -}}
app.kubernetes.io/name: forebay
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: proxy
{{- end }}

{{- define "forebay.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "forebay.labels" -}}
{{ include "forebay.selectorLabels" . }}
{{ include "forebay.commonLabels" . }}
{{- end }}

{{- define "forebay.proxyLabels" -}}
{{ include "forebay.proxySelectorLabels" . }}
{{ include "forebay.commonLabels" . }}
{{- end }}

{{/* Truth values below are `true` or nothing, so that they can stand in an `if`. */}}

{{- define "forebay.standalone" -}}
{{- if eq .Values.mode "standalone" }}true{{ end -}}
{{- end }}

{{- define "forebay.sidecar" -}}
{{- if and (include "forebay.standalone" .) (eq .Values.router.proxy.mode "sidecar") }}true{{ end -}}
{{- end }}

{{- define "forebay.proxyService" -}}
{{- if and (include "forebay.standalone" .) (eq .Values.router.proxy.mode "service") }}true{{ end -}}
{{- end }}

{{/* Whether a pool is followed, the chart's or one that is made elsewhere. A Gateway knows nothing else. */}}
{{- define "forebay.pool" -}}
{{- with .Values.router.inferencePool }}{{ if or .create .name (eq $.Values.mode "gateway") }}true{{ end }}{{ end -}}
{{- end }}

{{- define "forebay.poolElsewhere" -}}
{{- if and (include "forebay.pool" .) (not .Values.router.inferencePool.create) }}true{{ end -}}
{{- end }}

{{- define "forebay.leaderElection" -}}
{{- $asked := .Values.router.epp.leaderElection.enabled -}}
{{- $several := gt (int .Values.router.epp.replicas) 1 -}}
{{- if ternary $several $asked (kindIs "invalid" $asked) }}true{{ end -}}
{{- end }}

{{- define "forebay.tls" -}}
{{- $asked := .Values.router.epp.tls.enabled -}}
{{- $other := not (include "forebay.sidecar" .) -}}
{{- if ternary $other $asked (kindIs "invalid" $asked) }}true{{ end -}}
{{- end }}

{{- define "forebay.failOpen" -}}
{{- $asked := .Values.router.proxy.failOpen -}}
{{- $other := eq .Values.router.proxy.mode "service" -}}
{{- if ternary $other $asked (kindIs "invalid" $asked) }}true{{ end -}}
{{- end }}

{{/* Whether Envoy knows the model servers, and goes to the next one of Forebay's list if one cannot be reached. */}}
{{- define "forebay.fallbackList" -}}
{{- if and (include "forebay.standalone" .) .Values.router.proxy.fallbackList }}true{{ end -}}
{{- end }}

{{/* An Envoy in the same pod goes on to ask until it ends: Forebay is not told to end before it. */}}
{{- define "forebay.preStopSleepSeconds" -}}
{{- $envoy := ternary .Values.router.proxy.drainSeconds 0 (eq (include "forebay.sidecar" .) "true") -}}
{{ max (int .Values.router.epp.preStopSleepSeconds) (int $envoy) }}
{{- end }}

{{- define "forebay.metricsAuth" -}}
{{- if .Values.router.monitoring.prometheus.auth.enabled }}true{{ end -}}
{{- end }}

{{- define "forebay.monitoringProvider" -}}
{{- .Values.router.monitoring.provider.name | default "prometheusoperator" -}}
{{- end }}

{{/* prometheusoperator or gmp, if anything is to scrape. */}}
{{- define "forebay.scraper" -}}
{{- if .Values.router.monitoring.prometheus.enabled }}{{ include "forebay.monitoringProvider" . }}{{ end -}}
{{- end }}

{{- define "forebay.image" -}}
{{- with .Values.router.epp.image -}}
{{- if .registry }}{{ .registry }}/{{ end }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What the leader's Lease is called after: the pool, or the Deployment where there is none. */}}
{{- define "forebay.identity" -}}
{{- if include "forebay.pool" . }}{{ include "forebay.poolName" . }}{{ else }}{{ include "forebay.name" . }}{{ end -}}
{{- end }}

{{- define "forebay.lease" -}}
epp-{{ .Release.Namespace }}-{{ include "forebay.identity" . }}.llm-d.ai
{{- end }}

{{- define "forebay.targetPorts" -}}
{{- $numbers := list -}}
{{- range .Values.router.modelServers.targetPorts }}{{ $numbers = append $numbers (toString .number) }}{{ end -}}
{{- join "," $numbers -}}
{{- end }}

{{- define "forebay.endpointSelector" -}}
{{- $pairs := list -}}
{{- range $key, $value := .Values.router.modelServers.matchLabels }}{{ $pairs = append $pairs (printf "%s=%s" $key $value) }}{{ end -}}
{{- join "," $pairs -}}
{{- end }}

{{/* Where the Envoy of mode `service` finds Forebay. One leader is behind the Service's address: when another one leads, new
     connections lead to that, and the old leader closes those that it has. Several that all serve are told apart by the
     addresses behind the name of a headless Service, so that each request, and not each connection, is given to one. */}}
{{- define "forebay.pickerHost" -}}
{{- $headless := and (not (include "forebay.leaderElection" .)) (gt (int .Values.router.epp.replicas) 1) -}}
{{ include "forebay.name" . }}{{ if $headless }}-headless{{ end }}.{{ .Release.Namespace }}.svc.{{ .Values.router.clusterDomain }}
{{- end }}
