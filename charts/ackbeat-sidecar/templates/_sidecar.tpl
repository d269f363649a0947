{{/*
Templates for charts that put the sidecar into a pod of their own. All take the root context; their values are those below
`ackbeat-sidecar` (README.md has a table, and an example).

ackbeat-sidecar.initContainers   items of a pod's initContainers: the sidecar, where it is a native one
ackbeat-sidecar.containers       items of a pod's containers: the sidecar, where the API server knows no native ones
ackbeat-sidecar.podLabels        labels of the pod
ackbeat-sidecar.podAnnotations   annotations of the pod
ackbeat-sidecar.volumes          items of a pod's volumes; none without `config`
ackbeat-sidecar.configMap        a manifest of its own; none without `config`
ackbeat-sidecar.container        the container alone
*/}}

{{- define "ackbeat-sidecar.isNative" -}}
{{- $values := index .Values "ackbeat-sidecar" -}}
{{- if or (eq $values.nativeSidecar "always") (and (eq $values.nativeSidecar "auto") (semverCompare ">=1.29.0-0" .Capabilities.KubeVersion.Version)) -}}
true
{{- end -}}
{{- end }}

{{- define "ackbeat-sidecar.initContainers" -}}
{{- $values := index .Values "ackbeat-sidecar" -}}
{{- if and $values.enabled (include "ackbeat-sidecar.isNative" .) -}}
- {{ include "ackbeat-sidecar.container" . | nindent 2 | trim }}
  # It starts before the other containers and ends after them: it sees their first and their last connections.
  restartPolicy: Always
  startupProbe:
    exec:
      command: [/ackbeat, ready, --within, 20s, --lenient]
    periodSeconds: 1
    timeoutSeconds: 30
    failureThreshold: 30
{{- end -}}
{{- end }}

{{- define "ackbeat-sidecar.containers" -}}
{{- $values := index .Values "ackbeat-sidecar" -}}
{{- if and $values.enabled (not (include "ackbeat-sidecar.isNative" .)) -}}
- {{ include "ackbeat-sidecar.container" . | nindent 2 | trim }}
{{- end -}}
{{- end }}

{{- define "ackbeat-sidecar.podLabels" -}}
{{- if (index .Values "ackbeat-sidecar").enabled -}}
ackbeat.dev/injected: "true"
{{- end -}}
{{- end }}

{{- define "ackbeat-sidecar.podAnnotations" -}}
{{- $values := index .Values "ackbeat-sidecar" -}}
{{- if $values.enabled -}}
# The sidecar is there: the injector has nothing to add.
ackbeat.dev/inject: disabled
{{- with $values.config }}
checksum/ackbeat-sidecar: {{ toYaml . | sha256sum }}
{{- end }}
{{- end -}}
{{- end }}

{{- define "ackbeat-sidecar.configMapName" -}}
{{- printf "%s-ackbeat-sidecar" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "ackbeat-sidecar.volumes" -}}
{{- $values := index .Values "ackbeat-sidecar" -}}
{{- if and $values.enabled $values.config -}}
- name: ackbeat-config
  configMap:
    name: {{ include "ackbeat-sidecar.configMapName" . }}
{{- end -}}
{{- end }}

{{- define "ackbeat-sidecar.configMap" -}}
{{- $values := index .Values "ackbeat-sidecar" -}}
{{- if and $values.enabled $values.config -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "ackbeat-sidecar.configMapName" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    app.kubernetes.io/name: {{ .Chart.Name }}
    app.kubernetes.io/instance: {{ .Release.Name }}
    app.kubernetes.io/component: ackbeat-sidecar
    app.kubernetes.io/part-of: ackbeat
    app.kubernetes.io/managed-by: {{ .Release.Service }}
data:
  ackbeat.yaml: |
    {{- toYaml $values.config | nindent 4 }}
{{- end -}}
{{- end }}

{{/* Who may run it and how; the reasons are in the README. */}}
{{- define "ackbeat-sidecar.securityContext" -}}
{{- $values := index .Values "ackbeat-sidecar" -}}
{{- if eq $values.mode "sock-diag" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
privileged: false
readOnlyRootFilesystem: true
runAsGroup: 65532
runAsNonRoot: true
runAsUser: 65532
seccompProfile:
  type: RuntimeDefault
{{- else -}}
{{- /* The API server refuses SYS_ADMIN beside a forbidden escalation. */ -}}
{{- if not (has "SYS_ADMIN" $values.extraCapabilities) }}
allowPrivilegeEscalation: false
{{- end }}
capabilities:
  add: {{ concat (list "BPF" "PERFMON" "NET_ADMIN") $values.extraCapabilities | toJson }}
  drop: [ALL]
privileged: false
readOnlyRootFilesystem: true
# A container's added capabilities reach root only.
runAsGroup: 0
runAsNonRoot: false
runAsUser: 0
seccompProfile:
  {{- toYaml $values.seccompProfile | nindent 2 }}
{{- end -}}
{{- end }}

{{/* A value of OTEL_RESOURCE_ATTRIBUTES: commas separate there, and $(NAME) would be another variable. */}}
{{- define "ackbeat-sidecar.attribute" -}}
{{- toString . | replace "%" "%25" | replace "," "%2C" | replace "$" "$$" -}}
{{- end }}

{{- define "ackbeat-sidecar.resourceAttributes" -}}
{{- $values := index .Values "ackbeat-sidecar" -}}
{{- $attributes := dict
  "k8s.namespace.name" "$(OTEL_RESOURCE_ATTRIBUTES_NAMESPACE)"
  "k8s.node.name" "$(OTEL_RESOURCE_ATTRIBUTES_NODE_NAME)"
  "k8s.pod.name" "$(OTEL_RESOURCE_ATTRIBUTES_POD_NAME)"
  "k8s.pod.uid" "$(OTEL_RESOURCE_ATTRIBUTES_POD_UID)"
  "service.namespace" "$(OTEL_RESOURCE_ATTRIBUTES_NAMESPACE)" -}}
{{- with .Chart.AppVersion }}{{ $_ := set $attributes "service.version" (include "ackbeat-sidecar.attribute" .) }}{{ end -}}
{{- with $values.clusterName }}{{ $_ := set $attributes "k8s.cluster.name" (include "ackbeat-sidecar.attribute" .) }}{{ end -}}
{{- range $key, $value := $values.resourceAttributes }}{{ $_ := set $attributes $key (include "ackbeat-sidecar.attribute" $value) }}{{ end -}}
{{- $pairs := list -}}
{{- range $key := keys $attributes | sortAlpha }}{{ $pairs = append $pairs (printf "%s=%s" $key (get $attributes $key)) }}{{ end -}}
{{- join "," $pairs -}}
{{- end }}

{{- define "ackbeat-sidecar.container" -}}
{{- $values := index .Values "ackbeat-sidecar" -}}
{{- $version := (index .Subcharts "ackbeat-sidecar").Chart.AppVersion -}}
name: ackbeat
image: {{ ternary (printf "%s@%s" $values.image.repository $values.image.digest) (printf "%s:%s" $values.image.repository ($values.image.tag | default $version)) (not (empty $values.image.digest)) | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
args: [run]
env:
  - name: ACKBEAT_MODE
    value: {{ ternary "best-effort" $values.mode (eq $values.mode "auto") }}
  - name: ACKBEAT_POLICY
    value: {{ $values.policy }}
  {{- with $values.ports }}
  {{- $ports := list }}
  {{- range . }}{{ $ports = append $ports (toString (int .)) }}{{ end }}
  - name: ACKBEAT_PORTS
    value: {{ join "," $ports | quote }}
  {{- end }}
  - name: ACKBEAT_LOG_LEVEL
    value: {{ $values.logLevel | quote }}
  - name: ACKBEAT_METRICS_LISTEN
    value: {{ ternary (printf "0.0.0.0:%d" (int $values.metricsPort)) "off" (gt (int $values.metricsPort) 0) | quote }}
  {{- if $values.config }}
  - name: ACKBEAT_CONFIG
    value: /etc/ackbeat/ackbeat.yaml
  {{- end }}
  {{- range $key, $value := $values.settings }}
  - name: ACKBEAT_{{ $key | replace "." "_" | upper }}
    value: {{ include "ackbeat-sidecar.setting" $value | quote }}
  {{- end }}
  - name: OTEL_RESOURCE_ATTRIBUTES_POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  - name: OTEL_RESOURCE_ATTRIBUTES_POD_UID
    valueFrom:
      fieldRef:
        fieldPath: metadata.uid
  - name: OTEL_RESOURCE_ATTRIBUTES_NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
  - name: OTEL_RESOURCE_ATTRIBUTES_NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
  - name: OTEL_SERVICE_NAME
    value: {{ $values.serviceName | default .Release.Name | quote }}
  - name: OTEL_RESOURCE_ATTRIBUTES
    value: {{ include "ackbeat-sidecar.resourceAttributes" . | quote }}
  {{- with $values.otlp.endpoint }}
  {{- if contains "$(NODE_IP)" . }}
  - name: NODE_IP
    valueFrom:
      fieldRef:
        fieldPath: status.hostIP
  {{- end }}
  - name: OTEL_EXPORTER_OTLP_ENDPOINT
    value: {{ . | quote }}
  - name: OTEL_EXPORTER_OTLP_PROTOCOL
    value: {{ $values.otlp.protocol }}
  {{- end }}
  {{- with $values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if $values.metricsPort }}
ports:
  - name: ackbeat-metrics
    containerPort: {{ int $values.metricsPort }}
    protocol: TCP
{{- end }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
securityContext:
  {{- include "ackbeat-sidecar.securityContext" . | trim | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
{{- if $values.config }}
volumeMounts:
  - name: ackbeat-config
    mountPath: /etc/ackbeat
    readOnly: true
{{- end }}
{{- end }}

{{/* A setting as the text of a variable. YAML values come through JSON, where 30000000 is printed as 3e+07. */}}
{{- define "ackbeat-sidecar.setting" -}}
{{- if kindIs "slice" . }}
{{- $words := list }}
{{- range . }}{{ $words = append $words (include "ackbeat-sidecar.setting" .) }}{{ end }}
{{- join "," $words }}
{{- else if and (kindIs "float64" .) (eq (toString .) (toString (floor .))) }}
{{- int64 . }}
{{- else }}
{{- toString . | replace "$" "$$" }}
{{- end }}
{{- end }}
