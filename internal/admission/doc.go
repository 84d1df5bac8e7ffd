// Package admission answers the API server: it hosts internal/mutate for Pods
// and internal/validate for ModelDeployments on controller-runtime's webhook
// server. It decides nothing itself; it decodes, asks, answers and counts.
package admission
