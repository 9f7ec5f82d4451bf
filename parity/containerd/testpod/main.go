// Command testpod is the one program in the containers of the tests: each subcommand is a behaviour that a test needs
// of a container. It is static and alone in its image, so it also stands in for the shell tools that images usually
// have. A command that waits prints a line once it handles signals.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const usage = `usage: testpod COMMAND

  pause                                    wait for SIGTERM
  sleep DURATION [--ignore-term]           wait, or until SIGTERM
  exit CODE [--after D] [--message TEXT] [--print TEXT]
                                           end with CODE, TEXT in /dev/termination-log or on standard output
  work FILE NAME [--exit CODE] [--after D] [--on-term D] [--ignore-term]
                                           append "NAME started" and "NAME ended" to FILE; end after D, or D after SIGTERM
  note FILE TEXT                           append TEXT to FILE
  flip FILE                                fail and make FILE; succeed if it is there
  serve [--port N] [--tls N] [--tcp N] [--grpc N]
                                           HTTP: /healthz and /readyz answer 200, or what POST ?code=N asked for; over TLS
                                           the same; the TCP port is open, and gRPC's health SERVING, while /readyz is well
  cat FILE                                 print a file
  env                                      print the environment`

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "testpod: %v\n", err)
	}
	os.Exit(code)
}

// run returns the exit code; 2 is for a wrong command line, 1 for what did not work.
func run(args []string) (int, error) {
	commands := map[string]func(args []string) (int, error){
		"pause": pause,
		"sleep": sleep,
		"exit":  exit,
		"serve": serve,
		"cat":   cat,
		"env":   env,
		"work":  work,
		"note":  note,
		"flip":  flip,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return 2, fmt.Errorf("no such command\n%s", usage)
	}
	return commands[args[0]](args[1:])
}

// pause holds a sandbox's namespaces. Where they include the processes', the kernel gives it the orphans to bury.
func pause([]string) (int, error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	fmt.Println("pausing")
	for received := range signals {
		if received != syscall.SIGCHLD {
			break
		}
		for pid := 1; pid > 0; {
			pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
	}
	return 0, nil
}

func sleep(args []string) (int, error) {
	duration, err := time.ParseDuration(first(args))
	if err != nil {
		return 2, err
	}
	flags := flag.NewFlagSet("sleep", flag.ContinueOnError)
	ignore := flags.Bool("ignore-term", false, "live on after SIGTERM")
	if err := flags.Parse(args[1:]); err != nil {
		return 2, err
	}
	terminated := make(chan os.Signal, 1)
	if *ignore {
		signal.Ignore(syscall.SIGTERM)
	} else {
		signal.Notify(terminated, syscall.SIGTERM)
	}
	fmt.Println("sleeping")
	select {
	case <-terminated:
	case <-time.After(duration):
	}
	return 0, nil
}

func exit(args []string) (int, error) {
	code, err := strconv.Atoi(first(args))
	if err != nil {
		return 2, fmt.Errorf("the exit code: %w", err)
	}
	flags := flag.NewFlagSet("exit", flag.ContinueOnError)
	after := flags.Duration("after", 0, "how long to run before")
	message := flags.String("message", "", "what to leave in /dev/termination-log")
	words := flags.String("print", "", "what to print")
	if err := flags.Parse(args[1:]); err != nil {
		return 2, err
	}
	time.Sleep(*after)
	if *words != "" {
		fmt.Println(*words)
	}
	if *message != "" {
		if err := os.WriteFile("/dev/termination-log", []byte(*message), 0o644); err != nil {
			return 1, err
		}
	}
	return code, nil
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func cat(args []string) (int, error) {
	if len(args) != 1 {
		return 2, fmt.Errorf("cat takes one file")
	}
	file, err := os.Open(args[0])
	if err != nil {
		return 1, err
	}
	defer file.Close()
	if _, err := io.Copy(os.Stdout, file); err != nil {
		return 1, err
	}
	return 0, nil
}

func env([]string) (int, error) {
	for _, variable := range os.Environ() {
		fmt.Println(variable)
	}
	return 0, nil
}
