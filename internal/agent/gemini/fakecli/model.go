package fakecli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// asking ends the version of a fake that asks the model.
const asking = "+model"

// InstallAsking is [Install] for a fake that asks the model at GOOGLE_GEMINI_BASE_URL, as the
// CLI does, in place of the faults. It has no tools.
func InstallAsking(dir, version string) (string, error) { return install(dir, version, version+asking) }

// A content is a message of the user or the model.
type content struct {
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

type part struct {
	Text string `json:"text"`
}

func said(role, text string) content { return content{role, []part{{text}}} }

// defaultModel is the model that the environment names.
func defaultModel() string { return cmp.Or(os.Getenv("GEMINI_MODEL"), "gemini-2.5-flash") }

// A refusal is the status of a model that does not answer.
type refusal int

func (r refusal) Error() string { return fmt.Sprintf("the model answers %d", int(r)) }

// askModel asks the model to continue a conversation. It says each piece of the answer as it
// arrives, and returns the whole.
func askModel(ctx context.Context, model string, conversation []content, say func(string)) (string, error) {
	body, err := json.Marshal(map[string]any{"contents": conversation})
	if err != nil {
		return "", err
	}
	url := os.Getenv("GOOGLE_GEMINI_BASE_URL") + "/v1beta/models/" + model + ":streamGenerateContent?alt=sse"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("x-goog-api-key", os.Getenv("GEMINI_API_KEY"))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", refusal(res.StatusCode)
	}
	answer := ""
	in := bufio.NewReader(res.Body)
	for {
		line, err := in.ReadString('\n')
		if data, ok := strings.CutPrefix(line, "data:"); ok {
			var chunk struct {
				Candidates []struct{ Content content }
			}
			if err := json.Unmarshal([]byte(data), &chunk); err != nil {
				return answer, err
			}
			for _, c := range chunk.Candidates {
				for _, p := range c.Content.Parts {
					answer += p.Text
					say(p.Text)
				}
			}
		}
		if err == io.EOF {
			return answer, nil
		}
		if err != nil {
			return answer, err
		}
	}
}

// runAsking answers one prompt.
func runAsking() {
	model := defaultModel()
	for _, arg := range os.Args[1:] {
		if name, ok := strings.CutPrefix(arg, "--model="); ok {
			model = name
		}
	}
	prompt, _ := io.ReadAll(os.Stdin)
	event("init", "model", model)
	if _, err := askModel(context.Background(), model, []content{said("user", string(prompt))}, say); err != nil {
		panic(err)
	}
	result()
}
