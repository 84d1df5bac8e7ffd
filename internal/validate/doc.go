// Package validate says what is wrong with a ModelDeployment, and with the
// lastcall.dev annotations of a Pod.
//
// Errors name the field, its value, what is allowed and why. Warnings are
// sentences that start with the field: what will not work as written, and the
// way out.
//
// The schema of the CustomResourceDefinition has most of the same rules, so each
// holds without the other: the schema where the webhook is down, this package
// where there is no API server. Where the schema's rule is a CEL rule, its message
// is the one in messages.go; a test evaluates every rule of the schema and
// compares.
//
// The package is pure.
package validate
