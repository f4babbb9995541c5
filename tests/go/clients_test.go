package volary

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"maps"
	"net/url"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	adbcflightsql "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-adbc/go/adbc/sqldriver"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/driver"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"volary.test/go/cluster"
)

// The names by which database/sql knows the two drivers. Both call themselves "flightsql", so one needs another name.
const (
	overADBC    = "adbc"
	overArrowGo = "flightsql"
)

func registerDrivers() {
	sql.Register(overADBC, sqldriver.Driver{Driver: quiet{adbcflightsql.NewDriver(memory.DefaultAllocator)}})
}

// connectADBC connects to the shared cluster, with more options if there are any.
func connectADBC(t *testing.T, more ...map[string]string) adbc.Connection {
	t.Helper()
	connection, err := openADBC(t, "grpc://"+unsecured.Address, more...)
	check(t, err)
	return connection
}

func openADBC(t *testing.T, uri string, more ...map[string]string) (adbc.Connection, error) {
	t.Helper()
	options := map[string]string{adbc.OptionKeyURI: uri}
	for _, some := range more {
		maps.Copy(options, some)
	}
	database, err := quiet{adbcflightsql.NewDriver(memory.DefaultAllocator)}.NewDatabase(options)
	check(t, err)
	t.Cleanup(func() { check(t, database.Close()) })
	connection, err := database.Open(background(t))
	if err == nil {
		t.Cleanup(func() { check(t, connection.Close()) })
	}
	return connection, err
}

// openSQL opens a database of database/sql, and closes it after the test.
func openSQL(t *testing.T, name, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(name, dsn)
	check(t, err)
	t.Cleanup(func() { check(t, db.Close()) })
	return db
}

func dsn(name string, c *cluster.Cluster) string {
	if name == overADBC {
		return "uri=grpc://" + c.Address
	}
	return "flightsql://" + c.Address
}

// withEachDriver runs a test with both drivers of database/sql.
func withEachDriver(t *testing.T, test func(t *testing.T, name string, db *sql.DB)) {
	for _, name := range []string{overADBC, overArrowGo} {
		t.Run(name, func(t *testing.T) { test(t, name, openSQL(t, name, dsn(name, unsecured))) })
	}
}

// connectClient connects the plain client of arrow-go to the shared cluster.
func connectClient(t *testing.T) *flightsql.Client {
	t.Helper()
	client, err := flightsql.NewClient(unsecured.Address, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	t.Cleanup(func() { check(t, client.Close()) })
	return client
}

// run runs a statement through ADBC, and returns how many rows it has written.
func run(t *testing.T, connection adbc.Connection, statement string) int64 {
	t.Helper()
	var count int64
	withStatement(t, connection, statement, func(s adbc.Statement) {
		var err error
		count, err = s.ExecuteUpdate(background(t))
		check(t, err)
	})
	return count
}

func withStatement(t *testing.T, connection adbc.Connection, text string, use func(adbc.Statement)) {
	t.Helper()
	statement, err := connection.NewStatement()
	check(t, err)
	defer func() { check(t, statement.Close()) }()
	check(t, statement.SetSqlQuery(text))
	use(statement)
}

// table creates a table, and drops it after the test.
func table(t *testing.T, columns string) string {
	t.Helper()
	name := newName("birds")
	db := openSQL(t, overADBC, dsn(overADBC, unsecured))
	_, err := db.ExecContext(background(t), "CREATE TABLE "+name+" ("+columns+") WITH (shard_key = 'k', shards = 4)")
	check(t, err)
	t.Cleanup(func() {
		_, err := db.ExecContext(background(t), "DROP TABLE IF EXISTS "+name)
		check(t, err)
	})
	return name
}

// query runs a query through ADBC, and returns its rows as text.
func query(t *testing.T, connection adbc.Connection, text string) [][]string {
	t.Helper()
	var rows [][]string
	withStatement(t, connection, text, func(s adbc.Statement) {
		reader, _, err := s.ExecuteQuery(background(t))
		check(t, err)
		rows = texts(t, reader)
	})
	return rows
}

// texts returns the remaining rows as text, and releases the reader.
func texts(t *testing.T, reader array.RecordReader) [][]string {
	t.Helper()
	defer reader.Release()
	rows := [][]string{}
	for reader.Next() {
		batch := reader.RecordBatch()
		for row := range int(batch.NumRows()) {
			var values []string
			for _, column := range batch.Columns() {
				values = append(values, column.ValueStr(row))
			}
			rows = append(rows, values)
		}
	}
	check(t, reader.Err())
	return rows
}

// failed runs a query with the plain client, and returns its error, wherever it comes.
func failed(ctx context.Context, client *flightsql.Client, statement string, options ...grpc.CallOption) error {
	info, err := client.Execute(ctx, statement, options...)
	if err != nil {
		return err
	}
	return drained(ctx, client, info, options...)
}

// drained reads the rows of an answer with the plain client, and returns its error.
func drained(ctx context.Context, client *flightsql.Client, info *flight.FlightInfo, options ...grpc.CallOption) error {
	reader, err := client.DoGet(ctx, info.Endpoint[0].Ticket, options...)
	if err != nil {
		return err
	}
	defer reader.Release()
	for reader.Next() {
	}
	return reader.Err()
}

// fetch reads all endpoints of an answer with the plain client.
func fetch(t *testing.T, client *flightsql.Client, info *flight.FlightInfo, err error) [][]string {
	t.Helper()
	check(t, err)
	rows := [][]string{}
	for _, endpoint := range info.Endpoint {
		reader, err := client.DoGet(background(t), endpoint.Ticket)
		check(t, err)
		rows = append(rows, texts(t, reader)...)
	}
	return rows
}

// queryer is what sql.DB, sql.Conn and sql.Tx have in common.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// values runs a query through database/sql, and returns its rows as the driver gives them.
func values(t *testing.T, db queryer, query string, args ...any) [][]any {
	t.Helper()
	rows, err := db.QueryContext(background(t), query, args...)
	check(t, err)
	all, err := remaining(rows)
	check(t, err)
	return all
}

func remaining(rows *sql.Rows) ([][]any, error) {
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	all := [][]any{}
	for rows.Next() {
		row, places := make([]any, len(names)), make([]any, len(names))
		for i := range row {
			places[i] = &row[i]
		}
		if err := rows.Scan(places...); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// withLogin returns the DSN of a driver for the secured cluster.
func withLogin(t *testing.T, name, user, password string) string {
	t.Helper()
	c := theSecured(t)
	if name == overADBC {
		return "uri=grpc+tls://" + c.Address + ";username=" + user + ";password=" + password +
			";" + adbcflightsql.OptionSSLRootCerts + "=" + certificate(t, "authority.pem")
	}
	return "flightsql://" + url.UserPassword(user, password).String() + "@" + c.Address + "?tls=" + trusting(t)
}

// trusting registers a TLS configuration that trusts the cluster's authority, and returns its name.
func trusting(t *testing.T) string {
	t.Helper()
	const name = "secured"
	if _, found := driver.GetTLSConfig(name); !found {
		check(t, driver.RegisterTLSConfig(name, trust(t)))
	}
	return name
}

func trust(t *testing.T) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(certificate(t, "authority.pem")))
	return &tls.Config{RootCAs: pool}
}
