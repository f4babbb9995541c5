{{/*
Writes a tree of settings as TOML: (dict "path" "" "tree" TREE). Values are written as JSON, because a JSON string,
number, boolean or list of them is the same in TOML. Helm's toToml would write whole numbers as floats.
*/}}
{{- define "volary.toml" -}}
{{- $path := .path -}}
{{- $values := list -}}
{{- range $key, $value := .tree -}}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) -}}
{{- $values = append $values (printf "%s = %s\n" $key (toRawJson $value)) -}}
{{- end -}}
{{- end -}}
{{- if $values -}}
{{- if $path }}
[{{ $path }}]
{{ end -}}
{{- join "" $values -}}
{{- end -}}
{{- range $key, $value := .tree -}}
{{- if kindIs "map" $value -}}
{{- include "volary.toml" (dict "path" (ternary (printf "%s.%s" $path $key) $key (ne $path "")) "tree" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The files of certificates, as the section `tls` of a node. */}}
{{- define "volary.tlsSettings" -}}
certificate: /etc/volary/tls/tls.crt
key: /etc/volary/tls/tls.key
authorities: /etc/volary/tls/ca.crt
{{- with .Values.tls.nodeName }}
node_name: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* The sections that the files of all nodes have. */}}
{{- define "volary.commonSettings" -}}
log:
  format: {{ .Values.log.format }}
  {{- with .Values.log.filter }}
  filter: {{ . | quote }}
  {{- end }}
{{- if .Values.operations.enabled }}
operations:
  listen: 0.0.0.0:7190
  {{- if .Values.operations.token.existingSecret }}
  token_file: /etc/volary/operations/token
  {{- end }}
  {{- if .Values.operations.tls }}
  tls:
    certificate: /etc/volary/tls/tls.crt
    key: /etc/volary/tls/tls.key
  {{- end }}
{{- end }}
{{- if .Values.traces.endpoint }}
traces:
  endpoint: {{ .Values.traces.endpoint | quote }}
  sample: {{ .Values.traces.sample }}
{{- end }}
{{- end -}}

{{/* The settings file of the gateway. */}}
{{- define "volary.gatewayToml" -}}
{{- $settings := include "volary.commonSettings" . | fromYaml -}}
{{- $gateway := dict "listen" "0.0.0.0:7100" "data_dir" "/var/lib/volary/gateway" -}}
{{- with .Values.gateway.allowedRoots -}}
{{- $_ := set $gateway "load" (dict "allowed_roots" .) -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- $tls := include "volary.tlsSettings" . | fromYaml -}}
{{- if .Values.tls.clients.authoritiesSecret -}}
{{- $_ := set $tls "client_authorities" "/etc/volary/clients/ca.crt" -}}
{{- end -}}
{{- if .Values.tls.clients.required -}}
{{- $_ := set $tls "require_client_certificates" true -}}
{{- end -}}
{{- $_ := set $gateway "tls" $tls -}}
{{- end -}}
{{- if not .Values.worker.clients.enabled -}}
{{- /* Without the listener for clients, no client reaches a worker, so none must be sent there. */ -}}
{{- $_ := set $gateway "query" (dict "max_direct_workers" 0) -}}
{{- end -}}
{{- $_ := set $settings "gateway" $gateway -}}
{{- $shared := omit .Values.config "worker" -}}
{{- include "volary.toml" (dict "path" "" "tree" (mustMergeOverwrite $settings (deepCopy $shared) (deepCopy .Values.gateway.config))) -}}
{{- end -}}

{{/* The settings file of all workers. What differs between them comes from the environment of their pods. */}}
{{- define "volary.workerToml" -}}
{{- $settings := include "volary.commonSettings" . | fromYaml -}}
{{- $scheme := ternary "grpc+tls" "grpc" .Values.tls.enabled -}}
{{- $gateway := include "volary.dnsName" (list . (include "volary.gatewayNodesName" .)) -}}
{{- $worker := dict "listen" "0.0.0.0:7200" "data_dir" "/var/lib/volary/worker" -}}
{{- $_ := set $worker "gateway" (printf "%s://%s:7100" $scheme $gateway) -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $worker "tls" (include "volary.tlsSettings" . | fromYaml) -}}
{{- end -}}
{{- if .Values.worker.clients.enabled -}}
{{- $_ := set $worker "clients" (dict "listen" "0.0.0.0:7300") -}}
{{- end -}}
{{- $_ := set $settings "worker" $worker -}}
{{- $shared := omit .Values.config "gateway" -}}
{{- include "volary.toml" (dict "path" "" "tree" (mustMergeOverwrite $settings (deepCopy $shared) (deepCopy .Values.worker.config))) -}}
{{- end -}}
