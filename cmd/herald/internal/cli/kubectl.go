package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/heraldnode/herald/cmd/herald/internal/config"
	"github.com/heraldnode/herald/localapi"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/server"
)

// kubectlServer serves the node to kubectl. Without a listener it does nothing.
type kubectlServer struct {
	api         *localapi.Server
	credentials *localapi.Credentials
	listener    net.Listener
	logger      *slog.Logger
}

func newKubectlServer(ctx context.Context, c *config.Config, node *nodeagent.NodeAgent, logger *slog.Logger) (*kubectlServer, error) {
	if c.KubectlListen == "" {
		return &kubectlServer{}, nil
	}
	api, err := localapi.New(localapi.Config{
		Agent: node.Agent, Node: node.Node.Watch, Events: node.Events.Watch, Stats: node.Stats, Containers: node.Containers,
	})
	if err != nil {
		return nil, err
	}
	credentials, err := localapi.CreateCredentials(c.KubectlDir())
	if err != nil {
		return nil, err
	}
	listener, err := server.Listen(ctx, c.KubectlListen)
	if err != nil {
		return nil, fmt.Errorf("%w\nUse another address with --kubectl-listen", err)
	}
	return &kubectlServer{
		api: api, credentials: credentials, listener: listener, logger: logger,
	}, nil
}

func (s *kubectlServer) run(ctx context.Context) error {
	if s.listener == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { _ = s.api.Run(ctx) })
	defer cancel()
	s.logger.Info("Serving kubectl", "address", s.listener.Addr().String())
	return server.Serve(ctx, s.listener, s.credentials.TLSConfig(), s.credentials.Require(s.api), s.logger)
}

func newKubeconfigCommand() *cobra.Command {
	var flags configFlags
	var file string
	command := &cobra.Command{
		Use: "kubeconfig", Short: "Print a kubeconfig for kubectl on this node", GroupID: groupCheck, Args: noArguments,
		Long: `Print a kubeconfig with which kubectl reads the pods, events and Node of this machine from its agent, reads logs, runs
commands in containers and connects to their ports, without an API server. The agent must run with --kubectl-listen.

The kubeconfig contains a token: anyone who has it can read everything that this node knows of its pods, including their
environment variables, and run commands in their containers. It stays valid until the directory "kubectl" in the data
directory is removed and the agent restarted.`,
		Example: `  # Let kubectl read this node.
  sudo herald run --manifests /etc/kubernetes/manifests --kubectl-listen 127.0.0.1:10260
  sudo herald kubeconfig --kubectl-listen 127.0.0.1:10260 --write ~/.kube/herald
  kubectl --kubeconfig ~/.kube/herald get pods -A -w`,
	}
	flags.bind(command)
	command.Flags().StringVar(&file, "write", "", "write the kubeconfig to this file, readable only to its owner, instead of printing it")
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.load()
		if err != nil {
			return err
		}
		content, err := newKubeconfig(&c)
		if err != nil {
			return err
		}
		if file == "" {
			_, err = cmd.OutOrStdout().Write(content)
			return err
		}
		return writePrivateFile(file, content)
	}
	return command
}

func newKubeconfig(c *config.Config) ([]byte, error) {
	if c.KubectlListen == "" {
		return nil, usageErrorf("kubectlListen is not set: run the agent with --kubectl-listen 127.0.0.1:10260, and pass the same flags here")
	}
	credentials, err := localapi.LoadCredentials(c.KubectlDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no credentials yet: start the agent with --kubectl-listen first", c.KubectlDir())
	}
	if err != nil {
		return nil, err
	}
	name := "herald-" + c.NodeName
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{
		Server: "https://" + c.KubectlListen, CertificateAuthorityData: credentials.CertificatePEM,
	}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: credentials.Token}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	return clientcmd.Write(*kubeconfig)
}

// writePrivateFile replaces the file with one that only its owner can read.
func writePrivateFile(path string, content []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".herald-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // fails after the rename
	_, err = temporary.Write(content)
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}
