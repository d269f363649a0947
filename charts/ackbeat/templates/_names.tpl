{{/* Names and labels, as https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/ has them. */}}

{{/* Name of the chart, for labels. */}}
{{- define "ackbeat.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Name of the release's objects. At most 49 characters: "-sidecar-events" and the like must fit into 63. */}}
{{- define "ackbeat.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 49 | trimSuffix "-" }}
{{- else if contains (include "ackbeat.name" .) .Release.Name }}
{{- .Release.Name | trunc 49 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "ackbeat.name" .) | trunc 49 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "ackbeat.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* What never changes while a release lives: selectors are immutable. */}}
{{- define "ackbeat.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ackbeat.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of every object. Argument: dict "root" $ "component" "injector". */}}
{{- define "ackbeat.labels" -}}
helm.sh/chart: {{ include "ackbeat.chart" .root }}
{{ include "ackbeat.selectorLabels" .root }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: ackbeat
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* metadata of every object. Argument: dict "root" $ "name" NAME "component" COMPONENT, and if wanted "annotations" MAP, "labels" MAP, "cluster" true. */}}
{{- define "ackbeat.metadata" -}}
name: {{ .name }}
{{- if not .cluster }}
namespace: {{ .namespace | default .root.Release.Namespace }}
{{- end }}
labels:
  {{- include "ackbeat.labels" (dict "root" .root "component" .component) | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Argument: dict "root" $ "image" an object with repository, tag, digest. A digest is stronger than a tag. */}}
{{- define "ackbeat.image" -}}
{{- if .image.digest }}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else }}
{{- printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- define "ackbeat.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "ackbeat.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* "true" where the API server understands native sidecars: initContainers with restartPolicy (on by default since 1.29). */}}
{{- define "ackbeat.hasNativeSidecars" -}}
{{- if semverCompare ">=1.29.0-0" .Capabilities.KubeVersion.Version }}true{{- end }}
{{- end }}

{{/* "true" where the API server understands matchConditions of webhooks (on by default since 1.28). */}}
{{- define "ackbeat.hasMatchConditions" -}}
{{- if semverCompare ">=1.28.0-0" .Capabilities.KubeVersion.Version }}true{{- end }}
{{- end }}

{{/* The restricted level of the Pod Security Standards, for containers of this chart that need no privilege. */}}
{{- define "ackbeat.restrictedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "ackbeat.restrictedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
