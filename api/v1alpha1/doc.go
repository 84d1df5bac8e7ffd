// Package v1alpha1 is version v1alpha1 of the lastcall.dev API: the kind
// ModelDeployment.
//
// The comments on the fields are what `kubectl explain modeldeployment` shows.
// The CustomResourceDefinition and the deepcopy functions are made from this
// package by `make generate`.
//
// +kubebuilder:object:generate=true
// +groupName=lastcall.dev
package v1alpha1
