{{/* Everything is called after the release: "minder" gives the names of the plain manifests. A Service's name has no dots. */}}
{{- define "minder.name" -}}
{{ .Release.Name | replace "." "-" }}
{{- end }}

{{- define "minder.labels" -}}
app.kubernetes.io/name: minder
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "minder.subjects" -}}
subjects: [{kind: ServiceAccount, name: {{ include "minder.name" . | quote }}, namespace: {{ .Release.Namespace | quote }}}]
{{- end }}

{{- define "minder.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- {name: {{ . | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "minder.image" -}}
image: {{ .Values.image | quote }}
{{- with .Values.imagePullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- define "minder.claim" -}}
{{ .Values.ledger.existingClaim | default (include "minder.name" .) }}
{{- end }}

{{/* What both containers of the service's pod have. Mounts come last: a template may add its own below. */}}
{{- define "minder.closed" -}}
securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
{{- with .Values.ledger.urlSecret }}
env:
- {name: MINDER_LEDGER, valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: url}}}
{{- end }}
volumeMounts:
- {name: job, mountPath: /etc/minder, readOnly: true}
- {name: state, mountPath: /var/lib/minder}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{/* A certificate of callers is asked for over TLS only: without it, no one would be asked. Takes (name of the part, its values). */}}
{{- define "minder.callers" -}}
{{- $part := index . 0 }}{{ $values := index . 1 }}
{{- if and $values.clientCa (not $values.tlsSecret) }}
{{- fail (printf "%s.clientCa goes with %s.tlsSecret: certificates come over TLS only" $part $part) }}
{{- end }}
{{- end }}
