{{/* A binary that works on the cluster's objects: replicas of which one is elected.
The two take (list $ "operator") and, the Deployment, its own arguments beyond
those of every controller: (list $ "operator" (list "--workers=8")). */}}

{{- define "lastcall.controllerDeployment" -}}
{{- $values := index (index . 0).Values (index . 1) -}}
apiVersion: apps/v1
kind: Deployment
metadata: {{- include "lastcall.metadata" . | nindent 2 }}
spec:
  replicas: {{ $values.replicas }}
  strategy:
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  selector:
    matchLabels: {{- include "lastcall.selectorLabels" . | nindent 6 }}
  template:
    metadata: {{- include "lastcall.podMetadata" . | nindent 6 }}
    spec:
      {{- include "lastcall.podSpec" . | nindent 6 }}
      automountServiceAccountToken: true
      terminationGracePeriodSeconds: 30
      containers:
      - {{ include "lastcall.container" . | nindent 8 | trim }}
        args:
        - --name={{ include "lastcall.name" . }}
        - --namespace={{ (index . 0).Release.Namespace }}
        - --metrics-address=:8080
        - --health-address=:8081
        - --log-level={{ $values.logLevel }}
        {{- range index . 2 }}
        - {{ . }}
        {{- end }}
        ports:
        - {name: metrics, containerPort: 8080}
        - {name: health, containerPort: 8081}
{{- end -}}

{{/* All its access but the ClusterRole. */}}
{{- define "lastcall.controllerAccess" -}}
{{- $name := include "lastcall.name" . -}}
{{ include "lastcall.serviceAccount" . }}
---
{{ include "lastcall.lease" . }}
---
# No rule can name an object that is yet to be created: without the first one a
# Lease that somebody deleted would end all work until the next upgrade.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{- include "lastcall.metadata" . | nindent 2 }}
rules:
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ $name }}]
  verbs: [get, update]
---
{{ include "lastcall.bindings" . }}
{{- end -}}
