// Command testpod runs in the containers of the tests. Each subcommand is a behavior that tests need of a container. The program
// is static and alone in its image, so it also replaces the usual shell tools. A command that waits prints a line when its signal
// handlers are installed.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: testpod COMMAND

  pause                                    wait for SIGTERM
  sleep DURATION [--ignore-term]           wait, or until SIGTERM
  exit CODE [--after D] [--message TEXT] [--print TEXT] [--print-file FILE] [--print-ids]
                                           exit with CODE; write TEXT to /dev/termination-log or standard output; print
                                           the file; print the user, the group and the supplementary groups
  await FILE                               ignore SIGTERM and wait until FILE exists
  hold MEBIBYTES                           fill memory and wait for SIGTERM
  store FILE MEBIBYTES                     write a file and wait for SIGTERM
  spin                                     use a CPU until SIGTERM
  exhaust MEBIBYTES                        fill memory in a child process; exit with 3 if the child is killed
  work FILE NAME [--exit CODE] [--after D] [--on-term D] [--ignore-term]
                                           append "NAME started" and "NAME ended" to FILE; exit after D, or D after SIGTERM
  note FILE TEXT                           append TEXT to FILE
  obey FILE                                wait until FILE has a line, and run the command in its first; the line is removed
                                           unless it begins with "always"; append times to FILE.started and FILE.ended
  flip FILE                                fail and create FILE; succeed if it exists
  serve [--port N] [--tls N] [--tcp N] [--grpc N]
                                           HTTP and TLS: /healthz and /readyz return 200, or the code of the last POST
                                           ?code=N; the TCP port is open and gRPC health SERVING while /readyz succeeds
  count N [--every D]                      print the numbers up to N, each on a line of 60 bytes, and exit
  cat FILE                                 print a file
  env                                      print the environment`

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "testpod: %v\n", err)
	}
	os.Exit(code)
}

// run returns the exit code: 2 for an invalid command line, 1 for other errors.
func run(args []string) (int, error) {
	commands := map[string]func(args []string) (int, error){
		"pause":   pause,
		"sleep":   sleep,
		"exit":    exit,
		"await":   await,
		"exhaust": exhaust,
		"fill":    fill,
		"hold":    hold,
		"store":   store,
		"spin":    spin,
		"serve":   serve,
		"cat":     cat,
		"count":   count,
		"env":     env,
		"work":    work,
		"note":    note,
		"obey":    obey,
		"flip":    flip,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return 2, fmt.Errorf("unknown command\n%s", usage)
	}
	return commands[args[0]](args[1:])
}

// pause holds the namespaces of a sandbox. In a shared process namespace it also reaps orphaned processes.
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
	ignore := flags.Bool("ignore-term", false, "ignore SIGTERM")
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
		return 2, fmt.Errorf("parse exit code: %w", err)
	}
	flags := flag.NewFlagSet("exit", flag.ContinueOnError)
	after := flags.Duration("after", 0, "run time before the exit")
	message := flags.String("message", "", "text to write to /dev/termination-log")
	output := flags.String("print", "", "text to print")
	ids := flags.Bool("print-ids", false, "print user and groups")
	outputFile := flags.String("print-file", "", "file to print")
	if err := flags.Parse(args[1:]); err != nil {
		return 2, err
	}
	time.Sleep(*after)
	if *output != "" {
		fmt.Println(*output)
	}
	if *ids {
		groups, err := syscall.Getgroups()
		if err != nil {
			return 1, err
		}
		slices.Sort(groups)
		fmt.Println("user", syscall.Getuid(), "group", syscall.Getgid(), "groups", slices.Compact(groups))
	}
	if *outputFile != "" {
		if code, err := cat([]string{*outputFile}); err != nil {
			return code, err
		}
	}
	if *message != "" {
		if err := os.WriteFile("/dev/termination-log", []byte(*message), 0o644); err != nil {
			return 1, err
		}
	}
	return code, nil
}

func await(args []string) (int, error) {
	if len(args) != 1 {
		return 2, fmt.Errorf("await takes one file")
	}
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("waiting")
	for {
		if _, err := os.Stat(args[0]); err == nil {
			return 0, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// exhaust lets the kernel kill a child for its memory while the first process of the container survives. containerd reads the kill and
// the end of the container from different sources, and calls the end OOMKilled only if it has heard of the kill before.
func exhaust(args []string) (int, error) {
	child := exec.CommandContext(context.Background(), "/proc/self/exe", "fill", first(args))
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	var killed *exec.ExitError
	if err := child.Run(); errors.As(err, &killed) && !killed.Exited() {
		time.Sleep(5 * time.Second)
		return 3, nil
	} else if err != nil {
		return 1, err
	}
	return 0, nil
}

// fill allocates and writes memory, one mebibyte after the other.
func fill(args []string) (int, error) {
	size, err := strconv.Atoi(first(args))
	if err != nil {
		return 2, fmt.Errorf("parse number of mebibytes: %w", err)
	}
	blocks := allocate(size)
	fmt.Printf("filled %d MiB\n", len(blocks))
	runtime.KeepAlive(blocks)
	return 0, nil
}

func allocate(mebibytes int) [][]byte {
	blocks := make([][]byte, mebibytes)
	for i := range blocks {
		blocks[i] = bytes.Repeat([]byte{1}, 1<<20)
	}
	return blocks
}

func hold(args []string) (int, error) {
	size, err := strconv.Atoi(first(args))
	if err != nil {
		return 2, fmt.Errorf("parse number of mebibytes: %w", err)
	}
	blocks := allocate(size)
	code, err := pause(nil)
	runtime.KeepAlive(blocks)
	return code, err
}

func store(args []string) (int, error) {
	if len(args) != 2 {
		return 2, errors.New("expected a file and a number of mebibytes")
	}
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return 2, fmt.Errorf("parse number of mebibytes: %w", err)
	}
	if err := os.WriteFile(args[0], make([]byte, size<<20), 0o600); err != nil {
		return 1, err
	}
	return pause(nil)
}

func spin([]string) (int, error) {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	fmt.Println("spinning")
	for len(terminated) == 0 {
	}
	return 0, nil
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

// work logs its start and its end to a file that outlives the container. The file shows how often and in which order containers
// were started and stopped, independent of the agent.
func work(args []string) (int, error) {
	if len(args) < 2 {
		return 2, fmt.Errorf("work takes a file and a name")
	}
	flags := flag.NewFlagSet("work", flag.ContinueOnError)
	code := flags.Int("exit", 0, "exit code")
	after := flags.Duration("after", 1000*time.Hour, "run time before the exit")
	onTerm := flags.Duration("on-term", 0, "run time after SIGTERM")
	ignore := flags.Bool("ignore-term", false, "ignore SIGTERM")
	if err := flags.Parse(args[2:]); err != nil {
		return 2, err
	}
	terminated := make(chan os.Signal, 1)
	if *ignore {
		signal.Ignore(syscall.SIGTERM)
	} else {
		signal.Notify(terminated, syscall.SIGTERM)
	}
	if err := appendLine(args[0], args[1]+" started"); err != nil {
		return 1, err
	}
	fmt.Println("working")
	select {
	case <-terminated:
		time.Sleep(*onTerm)
	case <-time.After(*after):
	}
	if err := appendLine(args[0], args[1]+" ended"); err != nil {
		return 1, err
	}
	return *code, nil
}

func count(args []string) (int, error) {
	if len(args) == 0 {
		return 2, fmt.Errorf("count takes a number")
	}
	flags := flag.NewFlagSet("count", flag.ContinueOnError)
	every := flags.Duration("every", 0, "time between two lines")
	if err := flags.Parse(args[1:]); err != nil {
		return 2, err
	}
	limit, err := strconv.Atoi(args[0])
	if err != nil {
		return 2, err
	}
	for i := 1; i <= limit; i++ {
		fmt.Printf("%059d\n", i)
		time.Sleep(*every)
	}
	return 0, nil
}

func note(args []string) (int, error) {
	if len(args) != 2 {
		return 2, fmt.Errorf("note takes a file and a text")
	}
	if err := appendLine(args[0], args[1]); err != nil {
		return 1, err
	}
	return 0, nil
}

// obey lets a test decide when and how a container ends, and tells it when that was: times are nanoseconds since 1970.
func obey(args []string) (int, error) {
	if len(args) != 1 {
		return 2, fmt.Errorf("obey takes a file")
	}
	now := func() string { return strconv.FormatInt(time.Now().UnixNano(), 10) }
	if err := appendLine(args[0]+".started", now()); err != nil {
		return 1, err
	}
	fmt.Println("obeying")
	order := nextOrder(args[0])
	code, err := run(order)
	return code, errors.Join(err, appendLine(args[0]+".ended", now()))
}

// nextOrder returns the command in the first line of the file.
func nextOrder(file string) []string {
	for ; ; time.Sleep(20 * time.Millisecond) {
		content, err := os.ReadFile(file)
		line, rest, complete := strings.Cut(string(content), "\n")
		if err != nil || !complete {
			continue
		}
		if command, always := strings.CutPrefix(line, "always "); always {
			return strings.Fields(command)
		}
		if os.WriteFile(file, []byte(rest), 0o644) == nil {
			return strings.Fields(line)
		}
	}
}

// appendLine uses one write, so that lines of several containers are not interleaved.
func appendLine(file, line string) error {
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = log.WriteString(line + "\n")
	return errors.Join(err, log.Close())
}

// flip fails until the file exists: the first time only.
func flip(args []string) (int, error) {
	if len(args) != 1 {
		return 2, fmt.Errorf("flip takes a file")
	}
	if _, err := os.Stat(args[0]); err == nil {
		return 0, nil
	}
	return 1, appendLine(args[0], "flipped")
}
