// Command asker asks questions through the ADBC driver, as the lines of its standard input say. The benchmark of drivers
// (benches/python/drivers.py) starts it, and benches/python/askers.py describes the lines. Each client is a goroutine with
// its own connection, and each request is a statement of its own.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

const (
	driverModule = "github.com/apache/arrow-adbc/go/adbc"
	// step spreads consecutive numbers over all keys. The askers of other languages use the same.
	step = 7919
)

// request is a line of the input.
type request struct {
	Address  string `json:"address"`
	Clients  int    `json:"clients"`
	Requests int    `json:"requests"`
	SQL      string `json:"sql"`
	Form     string `json:"form"`
	First    int64  `json:"first"`
	Keys     int64  `json:"keys"`
	Rows     int64  `json:"rows"`
	Check    bool   `json:"check"`
}

// answer has the time of each request, and the time from the first request to the last answer.
type answer struct {
	Seconds      []float64 `json:"seconds"`
	TotalSeconds float64   `json:"total_seconds"`
}

// took is when a request began and ended.
type took struct{ begin, end time.Time }

// asker has the connections by the address of their server.
type asker struct {
	connected map[string][]adbc.Connection
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run answers requests until the input ends.
func run(input io.Reader, output io.Writer) error {
	answers := json.NewEncoder(output)
	versions := map[string]string{"arrow-adbc (Go)": driverVersion()}
	if err := answers.Encode(map[string]any{"versions": versions}); err != nil {
		return err
	}
	a := asker{connected: map[string][]adbc.Connection{}}
	lines := bufio.NewScanner(input)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		answered, err := a.ask(context.Background(), asked)
		if err != nil {
			return err
		}
		if err := answers.Encode(answered); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), a.close())
}

// driverVersion returns the release of the driver's module.
func driverVersion() string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == driverModule {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return "unknown"
}

// ask lets all clients ask at the same time.
func (a *asker) ask(ctx context.Context, asked request) (answer, error) {
	for len(a.connected[asked.Address]) < asked.Clients {
		connection, err := connect(ctx, asked.Address)
		if err != nil {
			return answer{}, err
		}
		a.connected[asked.Address] = append(a.connected[asked.Address], connection)
	}
	all := make([][]took, asked.Clients)
	errs := make([]error, asked.Clients)
	var clients sync.WaitGroup
	start := make(chan struct{})
	for client := range asked.Clients {
		clients.Go(func() {
			<-start
			all[client], errs[client] = askAll(ctx, a.connected[asked.Address][client], asked, client)
		})
	}
	close(start)
	clients.Wait()
	return summary(slices.Concat(all...)), errors.Join(errs...)
}

func (a *asker) close() error {
	var err error
	for _, connections := range a.connected {
		for _, connection := range connections {
			err = errors.Join(err, connection.Close())
		}
	}
	return err
}

func connect(ctx context.Context, address string) (adbc.Connection, error) {
	driver := flightsql.NewDriver(memory.DefaultAllocator)
	database, err := driver.NewDatabase(map[string]string{adbc.OptionKeyURI: "grpc://" + address})
	if err != nil {
		return nil, err
	}
	// The driver logs each call to standard error.
	database.(adbc.DatabaseLogging).SetLogger(slog.New(slog.DiscardHandler))
	return database.Open(ctx)
}

// askAll sends the requests of one client, one after another.
func askAll(ctx context.Context, connection adbc.Connection, asked request, client int) ([]took, error) {
	requests := make([]took, 0, asked.Requests)
	for number := range asked.Requests {
		key := 1 + (asked.First+int64(client*asked.Requests+number))*step%asked.Keys
		text := asked.SQL
		if asked.Form == "literal" {
			text = strings.ReplaceAll(text, "?", strconv.FormatInt(key, 10))
		}
		begin := time.Now()
		rows, first, err := askOnce(ctx, connection, text, key)
		requests = append(requests, took{begin, time.Now()})
		if err != nil {
			return nil, fmt.Errorf("key %d of %q: %w", key, asked.SQL, err)
		}
		if rows != asked.Rows || asked.Check && first != strconv.FormatInt(key, 10) {
			return nil, fmt.Errorf("key %d of %q: %d rows, the first with %q", key, asked.SQL, rows, first)
		}
	}
	return requests, nil
}

// askOnce runs a statement. The key is its parameter, if it has one. It returns the number of rows, and the first value.
func askOnce(ctx context.Context, connection adbc.Connection, text string, key int64) (rows int64, first string, err error) {
	statement, err := connection.NewStatement()
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, statement.Close()) }()
	if err := statement.SetSqlQuery(text); err != nil {
		return 0, "", err
	}
	if strings.Contains(text, "?") {
		if err := statement.Prepare(ctx); err != nil {
			return 0, "", err
		}
		if err := statement.Bind(ctx, parameter(key)); err != nil {
			return 0, "", err
		}
	}
	reader, _, err := statement.ExecuteQuery(ctx)
	if err != nil {
		return 0, "", err
	}
	defer reader.Release()
	for reader.Next() {
		batch := reader.RecordBatch()
		if rows == 0 && batch.NumRows() > 0 {
			first = batch.Column(0).ValueStr(0)
		}
		rows += batch.NumRows()
	}
	return rows, first, reader.Err()
}

func parameter(key int64) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "1", Type: arrow.PrimitiveTypes.Int64}}, nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	builder.Field(0).(*array.Int64Builder).Append(key)
	return builder.NewRecordBatch()
}

func summary(requests []took) answer {
	var all answer
	if len(requests) == 0 {
		return all
	}
	first, last := requests[0].begin, requests[0].end
	for _, each := range requests {
		all.Seconds = append(all.Seconds, each.end.Sub(each.begin).Seconds())
		if each.begin.Before(first) {
			first = each.begin
		}
		if each.end.After(last) {
			last = each.end
		}
	}
	all.TotalSeconds = last.Sub(first).Seconds()
	return all
}
