package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// work keeps a diary in a file that outlives the container, so that a test knows how often and in which order containers
// were started and ended, whoever saw it.
func work(args []string) (int, error) {
	if len(args) < 2 {
		return 2, fmt.Errorf("work takes a file and a name")
	}
	flags := flag.NewFlagSet("work", flag.ContinueOnError)
	code := flags.Int("exit", 0, "the exit code")
	after := flags.Duration("after", 1000*time.Hour, "how long to work")
	onTerm := flags.Duration("on-term", 0, "how long to go on after SIGTERM")
	ignore := flags.Bool("ignore-term", false, "live on after SIGTERM")
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

func note(args []string) (int, error) {
	if len(args) != 2 {
		return 2, fmt.Errorf("note takes a file and a text")
	}
	if err := appendLine(args[0], args[1]); err != nil {
		return 1, err
	}
	return 0, nil
}

// appendLine writes with one call, so that lines of several containers do not mix.
func appendLine(file, line string) error {
	diary, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = diary.WriteString(line + "\n")
	if closed := diary.Close(); err == nil {
		err = closed
	}
	return err
}

// flip fails the first time, when there is no such file yet, and succeeds ever after.
func flip(args []string) (int, error) {
	if len(args) != 1 {
		return 2, fmt.Errorf("flip takes a file")
	}
	if _, err := os.Stat(args[0]); err == nil {
		return 0, nil
	}
	return 1, appendLine(args[0], "heads")
}
