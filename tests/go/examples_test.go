package volary

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-adbc/go/adbc/sqldriver"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/driver"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// The functions of this file are the examples of docs/clients/go.md, word by word. docs_test.go compares and runs them.

func connect(ctx context.Context, uri string) (adbc.Connection, error) {
	database, err := flightsql.NewDriver(memory.DefaultAllocator).NewDatabase(map[string]string{adbc.OptionKeyURI: uri})
	if err != nil {
		return nil, err
	}
	return database.Open(ctx)
}

func show(ctx context.Context, connection adbc.Connection, query string) error {
	statement, err := connection.NewStatement()
	if err != nil {
		return err
	}
	defer statement.Close()
	if err := statement.SetSqlQuery(query); err != nil {
		return err
	}
	rows, _, err := statement.ExecuteQuery(ctx)
	if err != nil {
		return err
	}
	defer rows.Release()
	for rows.Next() {
		fmt.Println(rows.RecordBatch())
	}
	return rows.Err()
}

func parrots() arrow.RecordBatch {
	rows, _, err := array.RecordFromJSON(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "k", Type: arrow.PrimitiveTypes.Int64},
		{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil), strings.NewReader(`[{"k": 1, "name": "kea"}, {"k": 2, "name": null}]`))
	if err != nil {
		panic(err)
	}
	return rows
}

func insert(ctx context.Context, connection adbc.Connection, rows arrow.RecordBatch) (int64, error) {
	statement, err := connection.NewStatement()
	if err != nil {
		return 0, err
	}
	defer statement.Close()
	if err := statement.SetSqlQuery("INSERT INTO parrots VALUES (?, ?)"); err != nil {
		return 0, err
	}
	if err := statement.Prepare(ctx); err != nil {
		return 0, err
	}
	if err := statement.Bind(ctx, rows); err != nil {
		return 0, err
	}
	return statement.ExecuteUpdate(ctx)
}

func upload(ctx context.Context, connection adbc.Connection, rows arrow.RecordBatch) (int64, error) {
	reader, err := array.NewRecordReader(rows.Schema(), []arrow.RecordBatch{rows})
	if err != nil {
		return 0, err
	}
	defer reader.Release()
	return adbc.IngestStream(ctx, connection, reader, "parrots", adbc.OptionValueIngestModeCreate, adbc.IngestStreamOptions{
		Extra: map[string]string{"adbc.flight.sql.rpc.call_header.volary-ingest-shard_key": "k"},
	})
}

func connectOverTLS(ctx context.Context, uri, user, password, authority string) (adbc.Connection, error) {
	certificate, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	database, err := flightsql.NewDriver(memory.DefaultAllocator).NewDatabase(map[string]string{
		adbc.OptionKeyURI:            uri,
		adbc.OptionKeyUsername:       user,
		adbc.OptionKeyPassword:       password,
		flightsql.OptionSSLRootCerts: string(certificate),
	})
	if err != nil {
		return nil, err
	}
	return database.Open(ctx)
}

func sqlstateOf(err error) string {
	var failed adbc.Error
	if errors.As(err, &failed) {
		for _, detail := range failed.Details {
			if value, _ := detail.Serialize(); detail.Key() == "volary-sqlstate" {
				return string(value)
			}
		}
	}
	return ""
}

// quiet is the driver without its log.
type quiet struct{ flightsql.Driver }

func (q quiet) NewDatabase(options map[string]string) (adbc.Database, error) {
	database, err := q.Driver.NewDatabase(options)
	if err == nil {
		database.(adbc.DatabaseLogging).SetLogger(slog.New(slog.DiscardHandler))
	}
	return database, err
}

func useDatabaseSQL(ctx context.Context, uri string) error {
	sql.Register("volary", sqldriver.Driver{Driver: quiet{flightsql.NewDriver(memory.DefaultAllocator)}})
	db, err := sql.Open("volary", "uri="+uri)
	if err != nil {
		return err
	}
	defer db.Close()
	hatched := time.Date(2026, 11, 26, 1, 9, 22, 0, time.UTC)
	_, err = db.ExecContext(ctx, "CREATE TABLE keas (k BIGINT, name VARCHAR, hatched TIMESTAMP WITH TIME ZONE, weight DECIMAL(5, 2))")
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "INSERT INTO keas VALUES (?, ?, CAST(? AS VARCHAR), CAST(? AS VARCHAR))",
		int64(1), "Bruce", hatched.Format(time.RFC3339Nano), "0.95")
	if err != nil {
		return err
	}
	find, err := db.PrepareContext(ctx, "SELECT name, hatched, CAST(weight AS DOUBLE) FROM keas WHERE k = ?")
	if err != nil {
		return err
	}
	defer find.Close()
	var name string
	var at time.Time
	var weight float64
	if err := find.QueryRowContext(ctx, int64(1)).Scan(&name, &at, &weight); err != nil {
		return err
	}
	fmt.Println(name, at, weight)
	_, err = db.ExecContext(ctx, "DROP TABLE keas")
	return err
}

func openOverTLS(address, token, authority string) (*sql.DB, error) {
	certificate, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(certificate)
	if err := driver.RegisterTLSConfig("birds", &tls.Config{RootCAs: trusted}); err != nil {
		return nil, err
	}
	return sql.Open("flightsql", "flightsql://"+address+"?tls=birds&token="+token)
}
