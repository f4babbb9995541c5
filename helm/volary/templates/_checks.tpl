{{/* Checks what the schema cannot say. Each message names the value, and says what to do. */}}
{{- define "volary.checks" -}}
{{- if ne (int .Values.gateway.replicas) 1 -}}
{{- fail (printf "gateway.replicas is %v: the catalog belongs to one gateway, so set it to 1. More workers (worker.replicas) make queries faster" .Values.gateway.replicas) -}}
{{- end -}}
{{- include "volary.checkSecret" . -}}
{{- include "volary.checkTls" . -}}
{{- if not .Values.worker.allowFewer -}}
{{- include "volary.checkFewerWorkers" . -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.operations.enabled) -}}
{{- fail "serviceMonitor.enabled needs operations.enabled: without it, there are no metrics" -}}
{{- end -}}
{{- if and .Values.operations.token.existingSecret (not .Values.operations.enabled) -}}
{{- fail "operations.token.existingSecret needs operations.enabled" -}}
{{- end -}}
{{- range $set := include "volary.workerSets" . | fromJsonArray -}}
{{- /* Kubernetes writes the name and a hash of 11 characters into a label, which has at most 63. */ -}}
{{- if gt (len $set.name) 52 -}}
{{- fail (printf "the StatefulSet %s would have a name of %d characters, and at most 52 are possible; set fullnameOverride to a shorter prefix" $set.name (len $set.name)) -}}
{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range .Values.worker.zones -}}
{{- if has .name $names -}}
{{- fail (printf "worker.zones has %s twice" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- range $role, $other := dict "gateway" "worker" "worker" "gateway" -}}
{{- if hasKey (index $.Values $role).config $other -}}
{{- fail (printf "%s.config has the section %s, which the file of the %s does not need; write it into config or %s.config" $role $other $role $other) -}}
{{- end -}}
{{- include "volary.checkConfig" (list (printf "%s.config" $role) (index $.Values $role).config) -}}
{{- end -}}
{{- include "volary.checkConfig" (list "config" .Values.config) -}}
{{- end -}}

{{/*
Refuses to remove workers of the running release. A rendering without a cluster finds none.
*/}}
{{- define "volary.checkFewerWorkers" -}}
{{- $wanted := dict -}}
{{- range include "volary.workerSets" . | fromJsonArray -}}
{{- $_ := set $wanted .name (int .replicas) -}}
{{- end -}}
{{- range (lookup "apps/v1" "StatefulSet" .Release.Namespace "").items -}}
{{- $labels := default dict .metadata.labels -}}
{{- if and (eq (get $labels "app.kubernetes.io/instance") $.Release.Name) (eq (get $labels "app.kubernetes.io/component") "worker") -}}
{{- $after := int (default 0 (get $wanted .metadata.name)) -}}
{{- if lt $after (int .spec.replicas) -}}
{{- fail (printf "the StatefulSet %s has %d workers, and would have %d: a worker has the only copy of its shards. Drop or copy their tables, and set worker.allowFewer to true" .metadata.name (int .spec.replicas) $after) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "volary.checkSecret" -}}
{{- if not (or .Values.secret.existing .Values.secret.generate) -}}
{{- fail "the nodes have no secret: set secret.existing to the name of a Secret with the keys secret (from `volary secret new`) and admin-password, or secret.generate to true" -}}
{{- end -}}
{{- end -}}

{{- define "volary.checkTls" -}}
{{- $hasSecret := ne .Values.tls.existingSecret "" -}}
{{- $hasIssuer := .Values.tls.certManager.enabled -}}
{{- if and .Values.tls.enabled (not $hasSecret) (not $hasIssuer) -}}
{{- fail "tls.enabled needs a certificate: set tls.existingSecret to the name of a Secret with the keys tls.crt, tls.key and ca.crt, or tls.certManager.enabled to true" -}}
{{- end -}}
{{- if and $hasSecret $hasIssuer -}}
{{- fail "tls.existingSecret and tls.certManager.enabled exclude each other: the certificate comes from one of them" -}}
{{- end -}}
{{- if and (or $hasSecret $hasIssuer) (not .Values.tls.enabled) -}}
{{- fail "tls has a certificate, but tls.enabled is false; set it to true" -}}
{{- end -}}
{{- if and $hasIssuer (not .Values.tls.certManager.issuer.name) -}}
{{- fail "tls.certManager.enabled needs tls.certManager.issuer.name, the name of an Issuer or ClusterIssuer" -}}
{{- end -}}
{{- if and (not .Values.tls.enabled) (or .Values.operations.tls .Values.tls.clients.authoritiesSecret .Values.tls.clients.required) -}}
{{- fail "operations.tls and tls.clients need tls.enabled" -}}
{{- end -}}
{{- end -}}

{{/* Refuses settings that belong to the chart: (list NAME-OF-VALUE TREE). */}}
{{- define "volary.checkConfig" -}}
{{- $value := index . 0 -}}
{{- $tree := index . 1 -}}
{{- $pods := "the chart sets it to fit the pods" -}}
{{- $secrets := "a ConfigMap is no place for secrets; use the Secret that secret.existing names" -}}
{{- $tls := "use the values below tls" -}}
{{- $operations := "use the values below operations" -}}
{{- $zones := "use worker.zones" -}}
{{- $owned := dict "local" "no pod runs a local cluster" "gateway.listen" $pods "gateway.data_dir" $pods "gateway.secret" $secrets "gateway.security.admin_password" $secrets "gateway.tls" $tls -}}
{{- $owned = merge $owned (dict "worker.listen" $pods "worker.advertise" $pods "worker.gateway" $pods "worker.data_dir" $pods "worker.secret" $secrets "worker.tls" $tls "worker.zone" $zones) -}}
{{- $owned = merge $owned (dict "worker.clients" "use worker.clients.enabled" "operations.listen" $operations "operations.token_file" $operations "operations.tls" $operations) -}}
{{- $present := splitList "\n" (include "volary.settingNames" (dict "path" "" "tree" $tree)) -}}
{{- range $key, $why := $owned -}}
{{- if has $key $present -}}
{{- fail (printf "%s has the setting %s: %s" $value $key $why) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The names of all settings and sections in a tree, one a line: (dict "path" "" "tree" TREE). */}}
{{- define "volary.settingNames" -}}
{{- $path := .path -}}
{{- range $key, $value := .tree -}}
{{- $name := ternary (printf "%s.%s" $path $key) $key (ne $path "") }}
{{ $name }}
{{- if kindIs "map" $value -}}
{{- include "volary.settingNames" (dict "path" $name "tree" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
