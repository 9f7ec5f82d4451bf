package deed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/action"
	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/notify"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
	"github.com/heraldnode/herald/remedy"
	"github.com/heraldnode/herald/view"
	"github.com/heraldnode/herald/worker"
)

// Config configures Deeds. NodeName and Inspector are required. What is missing makes the actions that need it fail.
type Config struct {
	NodeName  string
	Inspector Inspector
	// API is the API server, for evictions and the cordon. Default: none.
	API API
	// SnapshotDir is the directory of snapshots, which is created with mode 0700. Its parent must exist.
	SnapshotDir string
	// History, Logs and Details add to snapshots. Logs returns the last lines of the log of an instance of a container, Details what the
	// runtime knows about one.
	History *history.Log
	Logs    func(pod *v1.Pod, container string, attempt, lines, bytes int) (string, error)
	Details func(ctx context.Context, id string) (cri.Details, error)
	// Webhooks and Programs are the targets that rules may name.
	Webhooks []notify.Webhook
	Programs []Program
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
}

// Inspector is what deeds need of *inspect.Inspector.
type Inspector interface {
	Pod(ctx context.Context, name podid.FullName) (view.PodView, bool)
	Facts(ctx context.Context, name podid.FullName) (explain.Facts, bool)
	Node(ctx context.Context) view.NodeView
	AddLoads(views []view.PodView)
	RestartByAction(ctx context.Context, name podid.FullName, container, reason string) (view.Restart, error)
	CheckProbe(ctx context.Context, name podid.FullName, container string, kind explain.ProbeKind) ([]view.ProbeCheck, error)
}

// API is what deeds need of *kubeapi.Client.
type API interface {
	EvictPod(ctx context.Context, namespace, name string, uid types.UID) error
	GetNode(ctx context.Context, name string) (*v1.Node, error)
	PatchNodeAs(ctx context.Context, name, manager string, patch []byte) (*v1.Node, error)
}

// Deeds implements action.Deeds.
type Deeds struct {
	config    Config
	snapshots *snapshots
	posters   map[string]*notify.Poster
	programs  map[string]Program
}

// New returns Deeds. It checks webhooks and programs.
func New(config Config) (*Deeds, error) {
	var errs []error
	if config.NodeName == "" || config.Inspector == nil {
		errs = append(errs, errors.New("deed.Config: NodeName and Inspector are required"))
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Deeds{config: config, posters: map[string]*notify.Poster{}, programs: map[string]Program{}}
	if config.SnapshotDir != "" {
		d.snapshots = &snapshots{dir: config.SnapshotDir}
	}
	for _, receiver := range config.Webhooks {
		poster, err := notify.NewPoster(receiver)
		if err != nil {
			errs = append(errs, fmt.Errorf("deed.Config: %w", err))
			continue
		}
		d.posters[receiver.Name] = poster
	}
	for _, program := range config.Programs {
		if err := program.Check(); err != nil {
			errs = append(errs, fmt.Errorf("deed.Config: %w", err))
		}
		if _, found := d.programs[program.Name]; found {
			errs = append(errs, fmt.Errorf("deed.Config: program %q is there twice", program.Name))
		}
		d.programs[program.Name] = program
	}
	return d, errors.Join(errs...)
}

// Do implements action.Deeds.
func (d *Deeds) Do(ctx context.Context, request action.Request) (string, error) {
	switch request.Type {
	case remedy.Snapshot:
		return d.snapshot(ctx, request)
	case remedy.Probe:
		return d.probe(ctx, request)
	case remedy.RestartContainer:
		return d.restartContainer(ctx, request)
	case remedy.RestartPod:
		return d.restartPod(ctx, request)
	case remedy.Cordon:
		return d.cordon(ctx, request)
	case remedy.Uncordon:
		return d.uncordon(ctx)
	case remedy.Webhook:
		return d.post(ctx, request)
	case remedy.Run:
		return d.run(ctx, request)
	default:
		return "", fmt.Errorf("unknown action %q", request.Type)
	}
}

func nameOf(object remedy.Object) podid.FullName {
	return podid.FullName{Namespace: object.Namespace, Name: object.Pod}
}

// probe checks the probes once. Their results do not change.
func (d *Deeds) probe(ctx context.Context, request action.Request) (string, error) {
	checks, err := d.config.Inspector.CheckProbe(ctx, nameOf(request.Object), request.Object.Container, "")
	if errors.Is(err, probe.ErrNoProbe) {
		return "", fmt.Errorf("%w: %w", action.ErrRefused, err)
	}
	if err != nil {
		return "", err
	}
	text := ""
	for _, check := range checks {
		answer := "failed"
		if check.Answer.OK {
			answer = "succeeded"
		}
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("%s %s %s after %dms", check.Container, check.ProbeKind, answer, check.Answer.TookMs)
		if check.Answer.Message != "" {
			text += ": " + check.Answer.Message
		}
	}
	return text, nil
}

func (d *Deeds) restartContainer(ctx context.Context, request action.Request) (string, error) {
	restarted, err := d.config.Inspector.RestartByAction(ctx, nameOf(request.Object), request.Object.Container, request.Reason())
	if errors.Is(err, worker.ErrNotRestartable) {
		return "", fmt.Errorf("%w: %w", action.ErrRefused, err)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("stopped after %dms with exit code %d", restarted.TookMs, restarted.ExitCode), nil
}

// facts is what webhooks and programs are told.
type facts struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"` // ActionRequest
	ID         uint64        `json:"id"`
	Type       remedy.Type   `json:"type"`
	Target     string        `json:"target"`
	Node       string        `json:"node"`
	At         time.Time     `json:"at"`
	Object     remedy.Object `json:"object,omitzero"`
	Alert      alert.Alert   `json:"alert"`
	Pod        *view.PodView `json:"pod,omitempty"`
}

func (d *Deeds) facts(ctx context.Context, request action.Request) ([]byte, error) {
	f := facts{
		APIVersion: view.APIVersion, Kind: "ActionRequest", ID: request.ID, Type: request.Type, Target: request.Target, Node: d.config.NodeName,
		At: time.Now().UTC(), Object: request.Object, Alert: request.Alert,
	}
	if request.Object.Pod != "" {
		if pod, found := d.config.Inspector.Pod(ctx, nameOf(request.Object)); found {
			f.Pod = &pod
		}
	}
	return json.Marshal(f)
}

// post tells a webhook. Its answer is not read: it is never an instruction.
func (d *Deeds) post(ctx context.Context, request action.Request) (string, error) {
	poster, found := d.posters[request.Target]
	if !found {
		return "", fmt.Errorf("%w: the agent's configuration has no webhook %q", action.ErrRefused, request.Target)
	}
	body, err := d.facts(ctx, request)
	if err != nil {
		return "", err
	}
	if err := poster.Post(ctx, body); err != nil {
		return "", err
	}
	return "accepted", nil
}
