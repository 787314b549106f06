// A crawler that asks `fetchwise serve` what to fetch with, and tells it what came. It needs nothing but Go's standard library.
//
//	fetchwise serve &
//	go run . https://example.org/ https://example.org/about
//
// The server decides; this program fetches. It has one fetcher, direct_access (a plain request). FETCHWISE_URL is where the server
// is, FETCHWISE_TOKEN the token that it wants.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// API is where a server is, and what opens it.
type API struct {
	URL    string
	Token  string
	Client *http.Client
}

// Step is what a visit wants done next.
type Step struct {
	Kind string `json:"kind"`
	// Of kind fetch.
	Number     uint32 `json:"number,omitempty"`
	URL        string `json:"url,omitempty"`
	Fetcher    string `json:"fetcher,omitempty"`
	DeadlineMs int64  `json:"deadline_ms,omitempty"`
	// Of kind wait.
	Until  string `json:"until,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Of kind end.
	End         string `json:"end,omitempty"`
	ErrorType   string `json:"error_type,omitempty"`
	PausedUntil string `json:"paused_until,omitempty"`
	Error       string `json:"error,omitempty"`
}

// At is a visit with the step that it is at.
type At struct {
	Visit string `json:"visit"`
	Step  Step   `json:"step"`
}

// Report says what a request came to: a whole response to be judged, or an outcome by its name.
type Report struct {
	Number     uint32      `json:"number"`
	Outcome    string      `json:"outcome,omitempty"`
	Message    string      `json:"message,omitempty"`
	Status     int         `json:"status,omitempty"`
	Headers    [][2]string `json:"headers,omitempty"`
	Body       []byte      `json:"body_base64,omitempty"`
	DurationMs int64       `json:"duration_ms"`
}

func (api *API) call(method, path string, body, into any) error {
	var data io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		data = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, api.URL+path, data)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if api.Token != "" {
		request.Header.Set("Authorization", "Bearer "+api.Token)
	}
	response, err := api.Client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		var problem struct {
			ErrorType string `json:"error_type"`
			Error     string `json:"error"`
		}
		if err := json.NewDecoder(response.Body).Decode(&problem); err != nil {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		return fmt.Errorf("%s: %s", problem.ErrorType, problem.Error)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// fetch makes one request, within the step's deadline.
func fetch(step Step) Report {
	begun := time.Now()
	report := Report{Number: step.Number}
	defer func() { report.DurationMs = time.Since(begun).Milliseconds() }()
	within, cancel := context.WithTimeout(context.Background(), time.Duration(step.DeadlineMs)*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(within, http.MethodGet, step.URL, nil)
	if err != nil {
		report.Outcome, report.Message = "invalid_url", err.Error()
		return report
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		report.Outcome, report.Message = outcome(err), err.Error()
		return report
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		report.Outcome, report.Message = outcome(err), err.Error()
		return report
	}
	report.Status, report.Body = response.StatusCode, body
	for name, values := range response.Header {
		for _, value := range values {
			report.Headers = append(report.Headers, [2]string{name, value})
		}
	}
	return report
}

func outcome(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return "dns_error"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	default:
		return "network_error"
	}
}

// Visit takes a URL from the first decision to the end.
func (api *API) Visit(url string) (Step, error) {
	var at At
	wish := map[string]any{"url": url, "fetchers": []string{"direct_access"}}
	if err := api.call(http.MethodPost, "/v1/visits", wish, &at); err != nil {
		return Step{}, err
	}
	for at.Step.Kind != "end" {
		var err error
		step := at.Step
		at.Step = Step{}
		if step.Kind == "wait" {
			err = api.call(http.MethodGet, "/v1/visits/"+at.Visit+"?wait_s=30", nil, &at)
		} else {
			report := fetch(step)
			err = api.call(http.MethodPost, "/v1/visits/"+at.Visit+"/report", report, &at)
		}
		if err != nil {
			return Step{}, err
		}
	}
	return at.Step, nil
}

func main() {
	url := os.Getenv("FETCHWISE_URL")
	if url == "" {
		url = "http://127.0.0.1:7117"
	}
	api := &API{strings.TrimRight(url, "/"), os.Getenv("FETCHWISE_TOKEN"), &http.Client{Timeout: 90 * time.Second}}
	exit := 0
	for _, url := range os.Args[1:] {
		end, err := api.Visit(url)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if end.End != "delivered" {
			exit = 1
		}
		text, _ := json.Marshal(struct {
			URL string `json:"url"`
			Step
		}{url, end})
		fmt.Println(string(text))
	}
	os.Exit(exit)
}
