{{/* What the Pods of all binaries share. Each takes (list $ "webhook"): the root and
the name of the binary, which is also the key of its values. */}}

{{- define "lastcall.podMetadata" -}}
{{- $values := index (index . 0).Values (index . 1) -}}
labels:
  {{- include "lastcall.selectorLabels" . | nindent 2 }}
  app.kubernetes.io/part-of: lastcall
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  kubectl.kubernetes.io/default-container: {{ index . 1 }}
  {{- with $values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Of a Pod, where it runs and as what. */}}
{{- define "lastcall.podSpec" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
serviceAccountName: {{ include "lastcall.name" . }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext: {{- toYaml $values.podSecurityContext | nindent 2 }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  {{- with $values.affinity }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "lastcall.selectorLabels" . | nindent 12 }}
  {{- end }}
topologySpreadConstraints:
{{- with $values.topologySpreadConstraints }}
{{- toYaml . | nindent 0 }}
{{- else }}
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "lastcall.selectorLabels" . | nindent 6 }}
{{- end }}
{{- end -}}

{{/* Of the binary's container, all but its arguments and ports. */}}
{{- define "lastcall.container" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
name: {{ index . 1 }}
image: {{ $values.image | default (include "lastcall.image" .) }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
env:
- name: GOMEMLIMIT
  valueFrom: {resourceFieldRef: {resource: limits.memory}}
# What a replica lacks makes it not ready; only a process that does not answer is
# restarted.
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
livenessProbe:
  httpGet: {path: /livez, port: health}
  periodSeconds: 10
resources: {{- toYaml $values.resources | nindent 2 }}
securityContext: {{- toYaml $values.containerSecurityContext | nindent 2 }}
{{- end -}}

{{- define "lastcall.poddisruptionbudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{- include "lastcall.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  # A replica that is not ready is of no use; let a node drain take it.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "lastcall.selectorLabels" . | nindent 6 }}
{{- end -}}

{{/* Lets in nothing but the ports in (list $ "webhook" (list "health")), by name. */}}
{{- define "lastcall.networkPolicy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{- include "lastcall.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels: {{- include "lastcall.selectorLabels" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
  - ports:
    {{- range index . 2 }}
    - {port: {{ . }}}
    {{- end }}
{{- end -}}
