// Package review is the browser page.
package review

import (
	"io"
	"net/http"
)

type Server struct{}

func New(attach func(io.ReadWriteCloser), base string) *Server     { return &Server{} }
func (s *Server) Link() string                                     { return "" }
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {}
