// Package shared lets all bridges of a user share the processes of one runner.
//
// A pool is a process that owns the runner: a [Server] on a socket in the user's
// private directory. Each bridge has a [Client], an [agent.Runner] that reaches the
// server over one connection. The first client that needs a pool starts it. It ends
// when no request has come for a while.
//
// A connection begins with a [Hello] from the bridge and a [Welcome] from the pool, one
// line each. After that, both sides exchange JSON-RPC messages, one per line. The pool
// serves only processes of the same user.
//
// A call never fails because of the pool on this machine: a client that cannot reach it
// answers with its own runner, and sends a request again if the pool ended meanwhile. A
// client of a pool on another machine has no other runner.
package shared
