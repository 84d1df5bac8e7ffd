{{/* What the ServiceAccounts of all binaries share. Each takes (list $ "webhook"). */}}

{{- define "lastcall.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "lastcall.metadata" . | nindent 2 }}
  {{- with (index (index . 0).Values (index . 1)).serviceAccountAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}

{{/* The Role and the ClusterRole of that name for the ServiceAccount. */}}
{{- define "lastcall.bindings" -}}
{{- $name := include "lastcall.name" . -}}
{{- $namespace := (index . 0).Release.Namespace -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{- include "lastcall.metadata" . | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}}
subjects:
- {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $namespace }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{- include "lastcall.clusterMetadata" . | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects:
- {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $namespace }}}
{{- end -}}

{{/* It starts empty and is filled by the elected replica. It is here so that an
uninstall leaves nothing. */}}
{{- define "lastcall.lease" -}}
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {{- include "lastcall.metadata" . | nindent 2 }}
{{- end -}}
