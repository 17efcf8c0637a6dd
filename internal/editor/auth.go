package editor

import "context"

type authKey struct{}

// WithAuthenticated returns a context in which [Authenticated] calls f.
func WithAuthenticated(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, authKey{}, f)
}

// Authenticated tells the server that the client behind a request's context has
// proved who it is, for handlers that authenticate by themselves. The server
// soon closes connections of clients that do not.
func Authenticated(ctx context.Context) {
	if f, ok := ctx.Value(authKey{}).(func()); ok {
		f()
	}
}
