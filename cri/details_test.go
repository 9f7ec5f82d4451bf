package cri_test

import (
	"encoding/json"
	"testing"

	"github.com/heraldnode/herald/cri"
)

func TestWithoutEnvironment(t *testing.T) {
	var value any
	text := `{"config":{"envs":[{"key":"PASSWORD","value":"x"}],"args":["a"]},"runtimeSpec":{"process":{"env":["PASSWORD=x"],"cwd":"/"}},"l":[{"env":1}]}`
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(cri.WithoutEnvironment(value))
	if want := `{"config":{"args":["a"]},"l":[{}],"runtimeSpec":{"process":{"cwd":"/"}}}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}
