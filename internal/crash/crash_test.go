package crash

import "testing"

func TestReport(t *testing.T) {
	called := ""
	cancel := Before(func() { called += "canceled" })
	defer Before(func() { called += "kept" })()
	cancel()
	func() { defer Report() }()
	if called != "" {
		t.Errorf("without a panic it calls %s", called)
	}
	func() {
		defer func() {
			if r := recover(); r != "why" {
				t.Errorf("the panic continues as %v", r)
			}
		}()
		defer Report()
		panic("why")
	}()
	if called != "kept" {
		t.Errorf("it calls %q", called)
	}
}
