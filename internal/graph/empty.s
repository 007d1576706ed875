// This file lets the package declare functions without bodies; see typelinks.go.
