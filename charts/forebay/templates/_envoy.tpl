{{/* Envoy's container, of the sidecar as of the Deployment. */}}
{{- define "forebay.envoyContainer" -}}
{{- $proxy := .Values.router.proxy -}}
- name: envoy
  image: {{ $proxy.image }}
  imagePullPolicy: {{ $proxy.imagePullPolicy }}
  args:
  - --config-path
  - /etc/envoy/envoy.yaml
  - --log-level
  - {{ $proxy.logLevel }}
  - --cpuset-threads
  - --disable-hot-restart
  ports:
  - name: http
    containerPort: {{ $proxy.port }}
  - name: envoy-ready
    containerPort: {{ $proxy.readyPort }}
  livenessProbe:
    tcpSocket:
      port: envoy-ready
    initialDelaySeconds: 5
    periodSeconds: 10
  readinessProbe:
    httpGet:
      path: /ready
      port: envoy-ready
    periodSeconds: 2
  # Envoy ends at once when it is told to.
  lifecycle:
    preStop:
      sleep:
        seconds: {{ $proxy.drainSeconds }}
  securityContext:
    {{- toYaml .Values.router.epp.securityContext | nindent 4 }}
  {{- with $proxy.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumeMounts:
  - name: envoy
    mountPath: /etc/envoy
    readOnly: true
{{- end }}

{{/* Envoy's configuration. docs/envoy.md explains each part. */}}
{{- define "forebay.envoy" -}}
{{- $proxy := .Values.router.proxy -}}
{{- $failOpen := include "forebay.failOpen" . -}}
{{- $fallbackList := include "forebay.fallbackList" . -}}
node:
  id: {{ include "forebay.proxyName" . }}
  cluster: {{ include "forebay.proxyName" . }}
admin:
  address:
    socket_address: {address: 127.0.0.1, port_value: 19000}
static_resources:
  listeners:
  - name: ready
    address:
      socket_address: {address: {{ $proxy.bindAddress | quote }}, port_value: {{ $proxy.readyPort }}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ready
          route_config:
            virtual_hosts:
            - name: stats
              domains: ['*']
              routes:
              - match: {path: /stats/prometheus}
                route: {cluster: admin}
          http_filters:
          - name: envoy.filters.http.health_check
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck
              pass_through_mode: false
              headers:
              - name: :path
                string_match: {exact: /ready}
          - name: envoy.filters.http.router
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  - name: inference
    address:
      socket_address: {address: {{ $proxy.bindAddress | quote }}, port_value: {{ $proxy.port }}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: inference
          codec_type: AUTO
          use_remote_address: true
          normalize_path: true
          merge_slashes: true
          server_header_transformation: PASS_THROUGH
          # A request may wait in a queue, and its answer may take minutes.
          stream_idle_timeout: {{ $proxy.streamIdleTimeout }}
          http_protocol_options:
            enable_trailers: true
          common_http_protocol_options:
            headers_with_underscores_action: REJECT_REQUEST
          {{- if $proxy.accessLog }}
          access_log:
          - name: envoy.access_loggers.stdout
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog
              log_format:
                json_format:
                  time: '%START_TIME%'
                  method: '%REQ(:METHOD)%'
                  path: '%REQ(:PATH)%'
                  status: '%RESPONSE_CODE%'
                  details: '%RESPONSE_CODE_DETAILS%'
                  flags: '%RESPONSE_FLAGS%'
                  duration_ms: '%DURATION%'
                  received_bytes: '%BYTES_RECEIVED%'
                  sent_bytes: '%BYTES_SENT%'
                  endpoint: '%UPSTREAM_HOST%'
                  request_id: '%REQ(X-REQUEST-ID)%'
          {{- end }}
          route_config:
            virtual_hosts:
            - name: all
              domains: ['*']
              routes:
              - match: {prefix: /}
                route:
                  cluster: model-servers
                  timeout: {{ $proxy.requestTimeout }}
                  {{- if $fallbackList }}
                  # The next endpoint of Forebay's list gets what no server has seen a byte of.
                  retry_policy:
                    retry_on: connect-failure,refused-stream,reset-before-request
                    num_retries: 3
                    retry_back_off: {base_interval: 0.025s, max_interval: 0.25s}
                  {{- end }}
          http_filters:
          # Where a request goes is Forebay's to say, not the client's. Forebay removes these headers too; this is for
          # requests that go on without it.
          - name: envoy.filters.http.header_mutation
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
              mutations:
                request_mutations:
                - remove: x-gateway-destination-endpoint
                - remove: x-llm-d-prefiller-host-port
                - remove: x-prefiller-host-port
                - remove: x-prefiller-url
                - remove: x-llm-d-encoder-hosts-ports
                - remove: x-encoder-hosts-ports
                - remove: x-data-parallel-host-port
                - remove: x-llm-d-kv-cache-source-host-port
                - remove: x-kv-cache-source-host-port
          - name: envoy.filters.http.ext_proc
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service:
                envoy_grpc: {cluster_name: picker}
                # A picker that is gone refuses connections, and has the fewest requests of all: without a retry most requests would
                # go there until a health check finds out. Nothing was sent to it, so another one can be asked.
                retry_policy:
                  retry_on: connect-failure
                  num_retries: 5
                  retry_back_off: {base_interval: 0.05s, max_interval: 1s}
                  retry_host_predicate:
                  - name: envoy.retry_host_predicates.previous_hosts
                    typed_config:
                      '@type': type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate
                  host_selection_retry_max_attempts: 5
              failure_mode_allow: {{ ternary true false (eq $failOpen "true") }}
              processing_mode:
                request_header_mode: SEND
                request_body_mode: FULL_DUPLEX_STREAMED
                request_trailer_mode: SEND
                response_header_mode: SEND
                response_body_mode: FULL_DUPLEX_STREAMED
                response_trailer_mode: SEND
              message_timeout: {{ $proxy.messageTimeout }}
              # Tells a server that cannot be reached from one that answers 503.
              response_attributes: [response.code_details]
              metadata_options:
                forwarding_namespaces:
                  untyped: [envoy.lb, envoy.lb.subset_hint]
                receiving_namespaces:
                  untyped: [envoy.lb]
          - name: envoy.filters.http.router
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
              suppress_envoy_headers: true
  clusters:
  - name: admin
    type: STATIC
    load_assignment:
      cluster_name: admin
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              socket_address: {address: 127.0.0.1, port_value: 19000}
  - name: picker
    {{- if include "forebay.sidecar" . }}
    type: STATIC
    {{- else }}
    type: STRICT_DNS
    dns_refresh_rate: 1s
    respect_dns_ttl: false
    {{- end }}
    lb_policy: LEAST_REQUEST
    connect_timeout: 1s
    circuit_breakers: &limits
      thresholds:
      - max_connections: {{ $proxy.maxRequests }}
        max_pending_requests: {{ $proxy.maxRequests }}
        max_requests: {{ $proxy.maxRequests }}
        max_retries: {{ $proxy.maxRequests }}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config:
          http2_protocol_options:
            # A node that is gone does not say so.
            connection_keepalive: {interval: 5s, timeout: 2s}
    {{- if $failOpen }}
    # In full duplex a request can go on unpicked only if none of it was sent to a picker: Envoy has to know beforehand.
    health_checks:
    # A connection of its own for each: the address of a Service leads to another pod when another one leads.
    - reuse_connection: false
      timeout: 1s
      interval: 1s
      no_traffic_interval: 1s
      unhealthy_threshold: 1
      healthy_threshold: 1
      grpc_health_check: {}
    common_lb_config:
      healthy_panic_threshold: {value: 0}
      # Else Envoy collects for a second what its health checks find before it goes by it.
      update_merge_window: 0s
    {{- end }}
    {{- if include "forebay.tls" . }}
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context: {alpn_protocols: [h2]}
    {{- end }}
    load_assignment:
      cluster_name: picker
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              {{- if include "forebay.sidecar" . }}
              socket_address: {address: 127.0.0.1, port_value: {{ .Values.router.epp.extProcPort }}}
              {{- else }}
              socket_address: {address: {{ include "forebay.pickerHost" . }}, port_value: {{ .Values.router.epp.extProcPort }}}
              {{- end }}
  - name: model-servers
    {{- if $fallbackList }}
    type: STRICT_DNS
    dns_refresh_rate: 1s
    respect_dns_ttl: false
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.override_host
          typed_config:
            '@type': type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost
            override_host_sources:
            - metadata:
                key: envoy.lb
                path:
                - key: x-gateway-destination-endpoint
            # Tells Forebay who served.
            selected_host_key:
              key: envoy.lb
              path:
              - key: x-gateway-destination-endpoint-served
            fallback_policy:
              policies:
              - typed_extension_config:
                  name: envoy.load_balancing_policies.least_request
                  typed_config:
                    '@type': type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest
    load_assignment:
      cluster_name: model-servers
      endpoints:
      - lb_endpoints:
        {{- range .Values.router.modelServers.targetPorts }}
        - endpoint:
            address:
              socket_address: {address: {{ include "forebay.base" $ }}-model-servers.{{ $.Release.Namespace }}.svc.{{ $.Values.router.clusterDomain }}, port_value: {{ .number }}}
        {{- end }}
    {{- else }}
    type: ORIGINAL_DST
    lb_policy: CLUSTER_PROVIDED
    original_dst_lb_config:
      use_http_header: true
      http_header_name: x-gateway-destination-endpoint
    {{- end }}
    connect_timeout: {{ ternary "1s" "5s" (eq $fallbackList "true") }}
    circuit_breakers: *limits
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config:
          {{- if eq .Values.router.modelServers.protocol "grpc" }}
          http2_protocol_options: {}
          {{- else }}
          http_protocol_options:
            enable_trailers: true
          {{- end }}
{{- end }}
