package editor

import "context"

type authKey struct{}

// WithAuthenticated returns a context in which [Authenticated] calls f.
func WithAuthenticated(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, authKey{}, f)
}

// Authenticated reports to the server that the client of a request has
// authenticated, for handlers that check that themselves. The server closes the
// connections of other clients after a short time.
func Authenticated(ctx context.Context) {
	if f, ok := ctx.Value(authKey{}).(func()); ok {
		f()
	}
}
