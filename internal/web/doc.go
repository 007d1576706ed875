// Package web shows a run in a browser, live: a page, its data as server-sent
// events, metrics for Prometheus, and requests to the supervisor for visitors
// who have a token.
//
//	GET  /            the page, with its style and script in it
//	GET  /stream      the history, then every event and every change of the
//	                  state
//	GET  /output      the last lines of a rank's output
//	GET  /metrics     Prometheus text
//	POST /checkpoint  \
//	POST /stop         } with "Authorization: Bearer TOKEN"
//	POST /migrate     /
//
// It reads the run directory and asks the supervisor by its control socket, so
// it works in 'cairn run' and in another process alike.
package web
