{{/* The release's name, with the chart's in it once. Helm allows names that a
Service cannot have. */}}
{{- define "lastcall.fullname" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name) -}}
{{ fail (printf "the release name %q must start with a letter, end with a letter or digit, and hold only lower-case letters, digits and dashes: it becomes the name of a Service; choose another" .Release.Name) }}
{{- end -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{/* The name of all objects of one binary: (list $ "webhook"). */}}
{{- define "lastcall.name" -}}
{{ include "lastcall.fullname" (index . 0) }}-{{ index . 1 }}
{{- end -}}

{{/* Labels that find the Pods of one binary; they never change. */}}
{{- define "lastcall.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of every object. part-of on a Pod keeps it away from the webhook. */}}
{{- define "lastcall.labels" -}}
{{- $root := index . 0 -}}
{{ include "lastcall.selectorLabels" . }}
app.kubernetes.io/part-of: lastcall
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Metadata of a binary's object; the second is for one without a namespace. */}}
{{- define "lastcall.metadata" -}}
name: {{ include "lastcall.name" . }}
namespace: {{ (index . 0).Release.Namespace }}
labels: {{- include "lastcall.labels" . | nindent 2 }}
{{- end -}}

{{- define "lastcall.clusterMetadata" -}}
name: {{ include "lastcall.name" . }}
labels: {{- include "lastcall.labels" . | nindent 2 }}
{{- end -}}

{{- define "lastcall.image" -}}
{{- $image := (index . 0).Values.image -}}
{{ $image.registry }}/{{ index . 1 }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end -}}

{{/* "true" where cert-manager makes the certificate, else empty. A release that
made its own stays with it, so that an upgrade never replaces one by the other. */}}
{{- define "lastcall.certManager" -}}
{{- $mode := .Values.certificates.mode -}}
{{- if eq $mode "cert-manager" -}}
true
{{- else if and (eq $mode "auto") (.Capabilities.APIVersions.Has "cert-manager.io/v1") -}}
{{- $own := lookup "v1" "Secret" .Release.Namespace (include "lastcall.name" (list . "webhook")) -}}
{{- if not $own.data -}}
true
{{- end -}}
{{- end -}}
{{- end -}}
