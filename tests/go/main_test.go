// Package volary tests Go clients of Volary against real clusters: the ADBC driver, two drivers of database/sql, and the
// plain client of arrow-go. One file tests one thing with all of the clients that can do it.
package volary

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"volary.test/go/cluster"
)

const (
	adminPassword = "correct horse battery"
	// patience is how long a test waits for what must happen. Even on a slow machine, only a hang takes longer.
	patience = time.Minute
)

// unsecured is a cluster without users and without TLS, which most tests share. Each test creates its own tables.
var unsecured *cluster.Cluster

// secured returns a cluster that has users and accepts only TLS. It starts with the first test that needs it.
var secured = sync.OnceValues(func() (*cluster.Cluster, error) {
	return cluster.Start(map[string]string{
		"VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD": adminPassword,
		"VOLARY_GATEWAY__TLS__CERTIFICATE":         "{directory}/certificates/node.pem",
		"VOLARY_GATEWAY__TLS__KEY":                 "{directory}/certificates/node.key",
		"VOLARY_GATEWAY__TLS__AUTHORITIES":         "{directory}/certificates/authority.pem",
	}, func(directory string) error {
		securedIsUsed = true
		certificates := filepath.Join(directory, "certificates")
		return cluster.Run("certificates", "--dir="+certificates, "--host=localhost", "--host=127.0.0.1", "--client=kea")
	})
})

var securedIsUsed bool

func TestMain(m *testing.M) {
	registerDrivers()
	os.Exit(testAll(m))
}

func testAll(m *testing.M) (code int) {
	var err error
	withClientsOfWorkers := map[string]string{"VOLARY_WORKER__CLIENTS__LISTEN": "127.0.0.1:0"}
	if unsecured, err = cluster.Start(withClientsOfWorkers, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stop := func(c *cluster.Cluster) {
		if err := c.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	code = m.Run()
	stop(unsecured)
	if securedIsUsed {
		if c, err := secured(); err == nil {
			stop(c)
		}
	}
	return code
}

func theSecured(t *testing.T) *cluster.Cluster {
	t.Helper()
	c, err := secured()
	check(t, err)
	return c
}

// certificate returns a file that `volary certificates` has written, as text.
func certificate(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(theSecured(t).Path("certificates/" + name))
	check(t, err)
	return string(text)
}

var names atomic.Int64

// newName returns a name that no other test uses.
func newName(what string) string { return fmt.Sprintf("%s_%d", what, names.Add(1)) }

// background returns a context that ends when only a hang can take longer.
func background(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// until calls a condition until it is true. It fails the test if that takes too long.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	late := time.After(patience)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !condition() {
		select {
		case <-late:
			t.Fatalf("not within %v: %s", patience, what)
		case <-look.C:
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %#v\nwant %#v", got, want)
	}
}

// says fails the test if there is no error, or if a part is missing in its message.
func says(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, but one that says %q was expected", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("the error %q does not say %q", err, part)
		}
	}
}
