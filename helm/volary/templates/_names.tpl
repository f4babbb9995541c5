{{- define "volary.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The prefix of the names of all objects. */}}
{{- define "volary.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains (include "volary.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "volary.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "volary.selectorLabels" -}}
app.kubernetes.io/name: {{ include "volary.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "volary.labels" -}}
{{ include "volary.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of a pod. They have no version of the chart, so that a new one alone restarts no node. */}}
{{- define "volary.podLabels" -}}
{{ include "volary.selectorLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "volary.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "volary.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "volary.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the secret of the nodes and the password of the administrator. */}}
{{- define "volary.secretName" -}}
{{- default (include "volary.fullname" .) .Values.secret.existing -}}
{{- end -}}

{{/* The Secret with the certificate of the nodes. */}}
{{- define "volary.tlsSecretName" -}}
{{- default (printf "%s-tls" (include "volary.fullname" .)) .Values.tls.existingSecret -}}
{{- end -}}

{{/* The service at which clients find the gateway. */}}
{{- define "volary.gatewayName" -}}
{{ include "volary.fullname" . }}-gateway
{{- end -}}

{{/* The name of a service in the cluster's DNS: (list $ SERVICE). */}}
{{- define "volary.dnsName" -}}
{{- $root := index . 0 -}}
{{ index . 1 }}.{{ $root.Release.Namespace }}.svc.{{ $root.Values.clusterDomain }}
{{- end -}}

{{/*
The service at which nodes find a gateway that is not ready for clients yet. Its name leads to the pod and not to a
virtual address, which lives as long as the service: a worker looks the name up whenever it connects.
*/}}
{{- define "volary.gatewayNodesName" -}}
{{ include "volary.fullname" . }}-gateway-nodes
{{- end -}}

{{- define "volary.workersName" -}}
{{ include "volary.fullname" . }}-workers
{{- end -}}

{{/* The StatefulSets of workers as a JSON list of objects: name, zone (empty without zones), replicas. */}}
{{- define "volary.workerSets" -}}
{{- $name := printf "%s-worker" (include "volary.fullname" .) -}}
{{- $sets := list -}}
{{- range .Values.worker.zones -}}
{{- $replicas := default $.Values.worker.replicas .replicas -}}
{{- $sets = append $sets (dict "name" (printf "%s-%s" $name .name) "zone" .name "replicas" $replicas) -}}
{{- else -}}
{{- $sets = append $sets (dict "name" $name "zone" "" "replicas" .Values.worker.replicas) -}}
{{- end -}}
{{- toJson $sets -}}
{{- end -}}
