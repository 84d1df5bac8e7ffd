// Package certificate is where the webhook's serving certificate comes from.
//
// Serving holds the certificate that the server answers with, in memory. It is
// filled from one of two places and, whichever it is, refilled while the server
// runs:
//
//   - Files reads the directory where cert-manager's Secret is mounted. The
//     webhook then needs no access to the API at all.
//   - Rotator, on the one elected replica, makes a certificate, lets the webhook
//     configurations trust it, and only then stores it in a Secret; Follower, on
//     every replica, serves what the Secret holds. So a replica that has a
//     certificate is one that the API server trusts, and a rotation refuses
//     nobody.
//
// Until there is a certificate, and once it has expired, the process runs and is
// not ready.
package certificate
