{{/* What kube-scheduler is told. */}}
{{- define "migpool.schedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceName: migpool-kube-scheduler
  resourceNamespace: {{ .Release.Namespace }}
# Look at every node: a sample would leave out the one whose GPU fits best. The extender names that node itself, so
# scoring, which this setting is there to spare, does not happen.
percentageOfNodesToScore: 100
profiles:
  - schedulerName: migpool-scheduler
extenders:
  - urlPrefix: http://127.0.0.1:{{ .Values.scheduler.extenderPort }}
    filterVerb: filter
    prioritizeVerb: prioritize
    bindVerb: bind
    # Ten steps of 10 x 20 outvote the default plugins, whose weights sum to 12 x 100.
    weight: 20
    httpTimeout: {{ .Values.scheduler.kubeScheduler.extenderTimeout }}
    # Only node names are sent: the extender has its own watch.
    nodeCacheCapable: true
    # Without it no pod of this profile is bound: a slice handed out blindly may be another pod's.
    ignorable: false
{{- end }}
