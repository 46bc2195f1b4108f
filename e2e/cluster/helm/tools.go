//go:build tools

// Package tools pins the helm program that installs the chart in the local cluster.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
