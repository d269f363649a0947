{{/* The configuration file of the injector. Its keys are the injector's; it refuses unknown ones. */}}
{{- define "ackbeat.injectorConfig" -}}
{{- $sidecar := .Values.sidecar -}}
{{- $image := ternary $sidecar.image .Values.image (not (empty $sidecar.image.repository)) -}}
image: {{ include "ackbeat.image" (dict "root" . "image" $image) | quote }}
imagePullPolicy: {{ $sidecar.image.pullPolicy | default .Values.image.pullPolicy }}
imagePullSecrets: {{ toJson $sidecar.imagePullSecrets }}
injectByDefault: {{ $sidecar.injectByDefault }}
nativeSidecar: {{ $sidecar.nativeSidecar }}
allowHostNetwork: {{ $sidecar.allowHostNetwork }}
defaultPodSecurity: {{ $sidecar.defaultPodSecurity }}
mode: {{ $sidecar.mode }}
policy: {{ $sidecar.policy }}
ports: {{ include "ackbeat.numbers" $sidecar.ports }}
logLevel: {{ $sidecar.logLevel | quote }}
peers: {{ $sidecar.peers | quote }}
metricsPort: {{ int $sidecar.metricsPort }}
otlp:
  endpoint: {{ .Values.otlp.endpoint | quote }}
  protocol: {{ .Values.otlp.protocol }}
resources:
  {{- toYaml $sidecar.resources | nindent 2 }}
seccompProfile:
  {{- toYaml $sidecar.seccompProfile | nindent 2 }}
extraCapabilities: {{ toJson $sidecar.extraCapabilities }}
clusterName: {{ .Values.clusterName | quote }}
settings:
  {{- range $key, $value := $sidecar.settings }}
  {{ $key }}: {{ include "ackbeat.setting" $value | quote }}
  {{- else }} {}
  {{- end }}
env:
  {{- toYaml $sidecar.env | nindent 2 }}
{{- end }}

{{/* A list of whole numbers. YAML values that come through JSON are floating-point: 8080 may be printed as 8.08e+03. */}}
{{- define "ackbeat.numbers" -}}
{{- $numbers := list -}}
{{- range . }}{{ $numbers = append $numbers (int .) }}{{ end -}}
{{- toJson $numbers -}}
{{- end }}

{{/*
Name of the Secret with the webhook's certificate. Each mode has its own: whoever changes the mode keeps nothing of the old
one, and the type of a Secret cannot be changed.
*/}}
{{- define "ackbeat.tlsSecretName" -}}
{{- if and (eq .Values.tls.mode "secret") (not .Values.tls.secretName) }}
{{- fail "tls.mode is secret: set tls.secretName to the Secret with tls.crt and tls.key" }}
{{- end }}
{{- $ending := get (dict "self" "tls" "helm" "helm-tls" "certManager" "cert-manager-tls" "secret" "") .Values.tls.mode }}
{{- .Values.tls.secretName | default (printf "%s-%s" (include "ackbeat.fullname" .) $ending) }}
{{- end }}

{{/* Names that the webhook's certificate is for, as JSON. */}}
{{- define "ackbeat.certificateNames" -}}
{{- $service := printf "%s.%s" (include "ackbeat.fullname" .) .Release.Namespace -}}
{{- list (printf "%s.svc" $service) $service (printf "%s.svc.cluster.local" $service) | toJson -}}
{{- end }}

{{/* A setting as the text of a variable. YAML values come through JSON, where 30000000 is printed as 3e+07. */}}
{{- define "ackbeat.setting" -}}
{{- if kindIs "slice" . }}
{{- $words := list }}
{{- range . }}{{ $words = append $words (include "ackbeat.setting" .) }}{{ end }}
{{- join "," $words }}
{{- else if and (kindIs "float64" .) (eq (toString .) (toString (floor .))) }}
{{- int64 . }}
{{- else }}
{{- toString . }}
{{- end }}
{{- end }}
