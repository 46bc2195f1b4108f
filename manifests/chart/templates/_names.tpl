{{/* Labels of every object. Call with (dict "root" $ "part" "device-plugin"). */}}
{{- define "migpool.labels" -}}
{{ include "migpool.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* Labels that find a part's pods; they may never change. */}}
{{- define "migpool.selector" -}}
app.kubernetes.io/name: migpool
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{/* An image's full name. Call with (dict "root" $ "image" .Values.x.image). */}}
{{- define "migpool.image" -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* Where the agent sees the driver: the host's own root is mounted at /host, any other at its own path. */}}
{{- define "migpool.driverRoot" -}}
{{ eq .Values.devicePlugin.driverRoot "/" | ternary "/host" .Values.devicePlugin.driverRoot }}
{{- end }}

{{- define "migpool.devRoot" -}}
{{ .Values.devicePlugin.devRoot | default .Values.devicePlugin.driverRoot }}
{{- end }}
