// Package cluster starts the program volary as a cluster in one process. VOLARY_BIN names the program.
package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// patience is how long a cluster may take to start or to end. Even on a slow machine, only a hang takes longer.
const patience = 60 * time.Second

var listens = regexp.MustCompile(`listening on grpc(?:\+tls)?://(\S+)\n`)

// Cluster is a gateway and its workers. Its files are below one directory, which Close deletes.
type Cluster struct {
	// Address is the host and the port of the gateway.
	Address string

	directory string
	process   *exec.Cmd
	ended     chan error
}

// Start starts a cluster of three workers, and waits until it listens on loopback. The settings are environment
// variables. In their values, {directory} stands for the directory of the cluster.
func Start(settings map[string]string, prepare func(directory string) error) (*Cluster, error) {
	directory, err := os.MkdirTemp("", "volary-go-")
	if err != nil {
		return nil, err
	}
	cluster := &Cluster{directory: directory, ended: make(chan error, 1)}
	if prepare != nil {
		err = prepare(directory)
	}
	if err == nil {
		err = cluster.start(settings)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(directory))
	}
	return cluster, nil
}

// Path returns the path of a file in the cluster's directory.
func (c *Cluster) Path(name string) string {
	return filepath.Join(c.directory, name)
}

// Close sends SIGTERM, waits for the end, and deletes the cluster's files.
func (c *Cluster) Close() error {
	err := c.process.Process.Signal(syscall.SIGTERM)
	select {
	case ended := <-c.ended:
		if ended != nil {
			err = errors.Join(err, fmt.Errorf("the cluster ended badly: %w\n%s", ended, c.read("log")))
		}
	case <-time.After(patience):
		err = errors.Join(err, errors.New("the cluster did not end on SIGTERM"), c.process.Process.Kill())
		<-c.ended
	}
	return errors.Join(err, os.RemoveAll(c.directory))
}

// Run runs the program volary to its end. An exit code other than 0 is an error with what the program has printed.
func Run(arguments ...string) error {
	binary, err := binary()
	if err != nil {
		return err
	}
	if said, err := exec.Command(binary, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("volary %s: %w\n%s", strings.Join(arguments, " "), err, said)
	}
	return nil
}

func (c *Cluster) start(settings map[string]string) error {
	binary, err := binary()
	if err != nil {
		return err
	}
	output, err := os.Create(c.Path("out"))
	if err != nil {
		return err
	}
	defer output.Close()
	log, err := os.Create(c.Path("log"))
	if err != nil {
		return err
	}
	defer log.Close()
	c.process = exec.Command(binary, "local", "--workers=3", "--listen=127.0.0.1:0", "--data-dir="+c.Path("data"))
	c.process.Stdout, c.process.Stderr = output, log
	c.process.Env = c.environment(settings)
	if err := c.process.Start(); err != nil {
		return err
	}
	go func() { c.ended <- c.process.Wait() }()
	return c.awaitAddress()
}

// environment leaves out the settings of the user who runs the tests.
func (c *Cluster) environment(settings map[string]string) []string {
	var all []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "VOLARY_") {
			all = append(all, variable)
		}
	}
	for name, value := range settings {
		all = append(all, name+"="+strings.ReplaceAll(value, "{directory}", c.directory))
	}
	return all
}

func (c *Cluster) awaitAddress() error {
	late := time.After(patience)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		if found := listens.FindStringSubmatch(c.read("out")); found != nil {
			c.Address = found[1]
			return nil
		}
		select {
		case ended := <-c.ended:
			return fmt.Errorf("the cluster has ended: %w\n%s", ended, c.read("log"))
		case <-late:
			err := c.process.Process.Kill()
			<-c.ended
			return errors.Join(fmt.Errorf("the cluster is not ready\n%s", c.read("log")), err)
		case <-look.C:
		}
	}
}

func (c *Cluster) read(name string) string {
	text, err := os.ReadFile(c.Path(name))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func binary() (string, error) {
	given := os.Getenv("VOLARY_BIN")
	if given == "" {
		return "", errors.New("VOLARY_BIN does not say where the program volary is; `make test-go` sets it")
	}
	return filepath.Abs(given)
}
