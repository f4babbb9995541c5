{{/* Parts of the pods of gateway and workers. */}}

{{- define "volary.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: {{ int .Values.image.user }}
runAsGroup: {{ int .Values.image.user }}
# The volume belongs to this group, so that the node can create its data directory there. The node keeps that directory
# to itself. So Kubernetes must not open all its files to the group again at each start.
fsGroup: {{ int .Values.image.user }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "volary.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/*
Environment of all containers of a node: (list $ ROLE ZONE). Kubernetes writes the name of the pod in place of
$(POD_NAME).
*/}}
{{- define "volary.env" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $zone := index . 2 -}}
{{- $secret := include "volary.secretName" $root -}}
- name: VOLARY_CONFIG
  value: /etc/volary/config/{{ $role }}.toml
- name: VOLARY_SECRET
  valueFrom:
    secretKeyRef: {name: {{ $secret }}, key: secret}
{{- if eq $role "gateway" }}
- name: VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD
  valueFrom:
    # Without the password, the first user is created with SQL from within the pod.
    secretKeyRef: {name: {{ $secret }}, key: admin-password, optional: true}
{{- else }}
{{- $host := printf "$(POD_NAME).%s" (include "volary.dnsName" (list $root (include "volary.workersName" $root))) }}
- name: POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
- name: VOLARY_WORKER__ADVERTISE
  value: {{ $host }}:7200
{{- if $root.Values.worker.clients.enabled }}
- name: VOLARY_WORKER__CLIENTS__ADVERTISE
  value: {{ $host }}:7300
{{- end }}
{{- with $zone }}
- name: VOLARY_WORKER__ZONE
  value: {{ . }}
{{- end }}
{{- end }}
{{ include "volary.clientEnv" $root }}
{{- with (index $root.Values $role).extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What the clients of the command line need in a pod, for `kubectl exec … -- volary status`. */}}
{{- define "volary.clientEnv" -}}
{{- $host := include "volary.dnsName" (list . (include "volary.gatewayNodesName" .)) -}}
- name: VOLARY_URI
  value: {{ ternary "grpc+tls" "grpc" .Values.tls.enabled }}://{{ $host }}:7100
{{- if .Values.tls.enabled }}
- name: VOLARY_TLS_CA
  value: /etc/volary/tls/ca.crt
{{- if .Values.tls.clients.required }}
- name: VOLARY_TLS_CERTIFICATE
  value: /etc/volary/tls/tls.crt
- name: VOLARY_TLS_KEY
  value: /etc/volary/tls/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{/* The containers' mounts: (list $ ROLE). */}}
{{- define "volary.volumeMounts" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
- name: data
  mountPath: /var/lib/volary
- name: config
  mountPath: /etc/volary/config
  readOnly: true
{{- if $root.Values.tls.enabled }}
- name: tls
  mountPath: /etc/volary/tls
  readOnly: true
{{- end }}
{{- if and (eq $role "gateway") $root.Values.tls.clients.authoritiesSecret }}
- name: client-authorities
  mountPath: /etc/volary/clients
  readOnly: true
{{- end }}
{{- if $root.Values.operations.token.existingSecret }}
- name: operations-token
  mountPath: /etc/volary/operations
  readOnly: true
{{- end }}
{{- with (index $root.Values $role).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
The pods' volumes: (list $ ROLE). Secrets are mounted as directories and not file by file, because only directories show
renewed certificates, which nodes load by themselves.
*/}}
{{- define "volary.volumes" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
- name: config
  configMap:
    name: {{ include "volary.fullname" $root }}-{{ $role }}
{{- if $root.Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "volary.tlsSecretName" $root }}
    defaultMode: 0440
{{- end }}
{{- if and (eq $role "gateway") $root.Values.tls.clients.authoritiesSecret }}
- name: client-authorities
  secret:
    secretName: {{ $root.Values.tls.clients.authoritiesSecret }}
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- with $root.Values.operations.token }}
{{- if .existingSecret }}
- name: operations-token
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
    items: [{key: {{ .key }}, path: token}]
{{- end }}
{{- end }}
{{- with (index $root.Values $role).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The claim for a node's volume: (list $ ROLE). */}}
{{- define "volary.volumeClaim" -}}
{{- $root := index . 0 -}}
{{- $storage := (index $root.Values (index . 1)).storage -}}
metadata:
  name: data
  labels:
    {{- include "volary.selectorLabels" $root | nindent 4 }}
spec:
  accessModes: {{ toJson $storage.accessModes }}
  {{- with $storage.className }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ $storage.size }}
{{- end -}}

{{/* The ports of a node: (list $ ROLE). */}}
{{- define "volary.ports" -}}
{{- $root := index . 0 -}}
{{- $isWorker := eq (index . 1) "worker" -}}
- name: flight
  containerPort: {{ ternary 7200 7100 $isWorker }}
{{- if and $isWorker $root.Values.worker.clients.enabled }}
- name: clients
  containerPort: 7300
{{- end }}
{{- if $root.Values.operations.enabled }}
- name: operations
  containerPort: 7190
{{- end }}
{{- end -}}

{{/*
The probes of a node. A node may take minutes to start, because a worker checks the sizes of all its segments. Without
the operations listener, the probes only see that the node accepts connections.
*/}}
{{- define "volary.probes" -}}
startupProbe:
  {{- include "volary.probe" (list . "/healthz") | nindent 2 }}
  periodSeconds: 5
  failureThreshold: 120
livenessProbe:
  {{- include "volary.probe" (list . "/healthz") | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  {{- include "volary.probe" (list . "/readyz") | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{- define "volary.probe" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.operations.enabled -}}
httpGet:
  path: {{ index . 1 }}
  port: operations
  scheme: {{ ternary "HTTPS" "HTTP" $root.Values.operations.tls }}
{{- else -}}
tcpSocket:
  port: flight
{{- end -}}
{{- end -}}

{{/* What the container of a node and that of its doctor have in common: (list $ ROLE ZONE). */}}
{{- define "volary.container" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $values := index $root.Values $role -}}
image: {{ include "volary.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
env:
  {{- include "volary.env" . | nindent 2 }}
{{- with $values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
securityContext:
  {{- include "volary.securityContext" $root | nindent 2 }}
volumeMounts:
  {{- include "volary.volumeMounts" (list $root $role) | nindent 2 }}
{{- end -}}

{{/* The specification of a node's pod: (list $ ROLE ZONE). */}}
{{- define "volary.podSpec" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $zone := index . 2 -}}
{{- $values := index $root.Values $role -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
serviceAccountName: {{ include "volary.serviceAccountName" $root }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ int $values.terminationGracePeriodSeconds }}
securityContext:
  {{- include "volary.podSecurityContext" $root | nindent 2 }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if or $zone $values.nodeSelector }}
nodeSelector:
  {{- with $zone }}
  topology.kubernetes.io/zone: {{ . | quote }}
  {{- end }}
  {{- with $values.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $root.Values.doctor.enabled }}
initContainers:
  - name: doctor
    # Without --offline, a pod would wait for nodes that do not run.
    command: [/usr/bin/volary, doctor, {{ $role }}, --offline]
    {{- include "volary.container" . | nindent 4 }}
{{- end }}
containers:
  - name: {{ $role }}
    command: [/usr/bin/volary, {{ $role }}]
    ports:
      {{- include "volary.ports" (list $root $role) | nindent 6 }}
    {{- include "volary.probes" $root | nindent 4 }}
    {{- include "volary.container" . | nindent 4 }}
volumes:
  {{- include "volary.volumes" (list $root $role) | nindent 2 }}
{{- end -}}
