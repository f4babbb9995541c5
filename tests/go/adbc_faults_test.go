package volary

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-adbc/go/adbc/sqldriver"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// These tests show what release 1.12.0 of ADBC and of its driver of database/sql does wrong with any server. If a test
// fails with another release, docs/clients/go.md has a sentence too many.

func openOverADBC(t *testing.T) *sql.DB {
	t.Helper()
	return openSQL(t, overADBC, dsn(overADBC, unsecured))
}

func TestTheDriverOverADBCBindsOnlyParametersOfPreparedQueries(t *testing.T) {
	db := openOverADBC(t)
	_, err := db.QueryContext(background(t), "SELECT CAST(? AS BIGINT)", int64(42))
	says(t, err, "must set IngestTargetTable before bulk ingestion")
	statement, err := db.PrepareContext(background(t), "SELECT CAST(? AS BIGINT)")
	check(t, err)
	defer statement.Close()
	var n int
	check(t, statement.QueryRowContext(background(t), int64(42)).Scan(&n))
	equal(t, n, 42)
}

func TestTheDriverOverADBCRunsAPreparedQueryOnlyOnce(t *testing.T) {
	db := openOverADBC(t)
	db.SetMaxOpenConns(1) // With several connections, the statement is prepared again where it is not yet.
	statement, err := db.PrepareContext(background(t), "SELECT CAST(? AS BIGINT)")
	check(t, err)
	defer statement.Close()
	var n int
	check(t, statement.QueryRowContext(background(t), int64(42)).Scan(&n))
	says(t, statement.QueryRowContext(background(t), int64(42)).Scan(&n), "must set IngestTargetTable before bulk ingestion")

	// A statement without rows may run as often as one likes.
	insert, err := db.PrepareContext(background(t), "INSERT INTO "+table(t, "k BIGINT")+" VALUES (?)")
	check(t, err)
	defer insert.Close()
	for k := range int64(3) {
		_, err := insert.ExecContext(background(t), k)
		check(t, err)
	}
}

func TestTheDriverOverADBCTakesParametersOnlyInTheTypesThatAreAnnounced(t *testing.T) {
	db := openOverADBC(t)
	birds := table(t, "k BIGINT, small INTEGER, real REAL, name VARCHAR, price DECIMAL(8, 3), day DATE, at TIMESTAMP, raw BYTEA, yes BOOLEAN")
	insert := func(column string, value any) error {
		_, err := db.ExecContext(background(t), "INSERT INTO "+birds+" ("+column+") VALUES (?)", value)
		return err
	}
	for column, value := range map[string]any{
		"k": int64(1), "small": int64(1), "real": 1.5, "name": "kea", "day": arrow.Date32FromTime(moment), "raw": []byte{0}, "yes": true,
	} {
		check(t, insert(column, value))
	}
	for _, of := range []struct {
		column string
		value  any
		says   string
	}{
		{"k", 1, "expected parameter of type int64"}, // an int
		{"k", nil, "expected parameter of type int64"},
		{"small", int32(1), "expected parameter of type int64"},
		{"real", float32(1.5), "expected parameter of type float64"},
		{"name", nil, "expected parameter of type utf8"},
		{"name", sql.NullString{}, "expected parameter of type utf8"},
		{"price", "1.5", "expected parameter of type decimal(8, 3)"},
		{"price", decimal128.FromI64(1500), "unsupported type decimal128.Num"},
		{"day", moment, "expected parameter of type date32"},
		{"at", moment, "expected parameter of type timestamp[ms]"},
		{"at", arrow.Timestamp(0), "can only create array from arrow.Timestamp with a provided parameter schema"},
	} {
		says(t, insert(of.column, of.value), of.says)
	}
}

func TestWhatADriverDoesNotTakeIsSentAsText(t *testing.T) {
	withEachDriver(t, func(t *testing.T, _ string, db *sql.DB) {
		birds := table(t, "k BIGINT, price DECIMAL(8, 3), day DATE, tod TIME, at TIMESTAMP, since TIMESTAMP WITH TIME ZONE, raw BYTEA, name VARCHAR")
		// The empty text stands for NULL.
		insert := "INSERT INTO " + birds + " VALUES (?, CAST(? AS VARCHAR), CAST(? AS VARCHAR), CAST(? AS VARCHAR), CAST(? AS VARCHAR)," +
			" CAST(? AS VARCHAR), decode(?, 'hex'), nullif(?, ''))"
		_, err := db.ExecContext(background(t), insert, int64(1), "-12.345", "2024-05-06", "07:08:09.123456",
			"2024-05-06 07:08:09.123456", moment.Format(time.RFC3339Nano), "00ff", "")
		check(t, err)
		equal(t, query(t, connectADBC(t), "SELECT * FROM "+birds), [][]string{{"1", "-12.345", "2024-05-06", "07:08:09.123456",
			"2024-05-06T07:08:09.123456", "2024-05-06T07:08:09.123456Z", "AP8=", "(null)"}})
		var k int
		find, err := db.PrepareContext(background(t), "SELECT k FROM "+birds+" WHERE at = CAST(CAST(? AS VARCHAR) AS TIMESTAMP)")
		check(t, err)
		defer find.Close()
		check(t, find.QueryRowContext(background(t), "2024-05-06 07:08:09.123456").Scan(&k))
		equal(t, k, 1)
	})
}

func TestNamesOfParametersAreNotForDatabaseSQL(t *testing.T) {
	withEachDriver(t, func(t *testing.T, name string, db *sql.DB) {
		statement, err := db.PrepareContext(background(t), "SELECT CAST($1 AS BIGINT)")
		check(t, err)
		defer statement.Close()
		// The parameters are called $1 to $n, and database/sql refuses such names.
		_, err = statement.QueryContext(background(t), sql.Named("$1", int64(42)))
		says(t, err, `name "$1" does not begin with a letter`)
		var n int
		err = statement.QueryRowContext(background(t), sql.Named("n", int64(42))).Scan(&n)
		if name == overADBC {
			says(t, err, "could not find parameter named 'n'")
			return
		}
		// The other driver ignores names, and binds by position.
		check(t, err)
		equal(t, n, 42)
	})
}

func TestTheDriverOverADBCGivesDecimalsWithoutTheirScale(t *testing.T) {
	db := openOverADBC(t)
	row := func(expression string) *sql.Row { return db.QueryRowContext(background(t), "SELECT "+expression) }
	var (
		unscaled decimal128.Num
		number   float64
		words    string
	)
	check(t, row("CAST(-12.345 AS DECIMAL(8, 3))").Scan(&unscaled))
	equal(t, unscaled.ToString(3), "-12.345")
	says(t, row("CAST(-12.345 AS DECIMAL(8, 3))").Scan(&number), "converting driver.Value type decimal128.Num")
	says(t, row("CAST(-12.345 AS DECIMAL(8, 3))").Scan(&words), "unsupported Scan, storing driver.Value type decimal128.Num")
	check(t, row("CAST(CAST(-12.345 AS DECIMAL(8, 3)) AS VARCHAR)").Scan(&words))
	equal(t, words, "-12.345")
	check(t, row("CAST(CAST(-12.345 AS DECIMAL(8, 3)) AS DOUBLE)").Scan(&number))
	equal(t, number, -12.345)
}

func TestTheDriverOverADBCReadsNullsInListsAndMapsAsZeros(t *testing.T) {
	equal(t, values(t, openOverADBC(t), "SELECT [1, NULL, 3], MAP {'a': NULL}"),
		[][]any{{[]int64{1, 0, 3}, map[string]string{"a": ""}}})
	equal(t, query(t, connectADBC(t), "SELECT [1, NULL, 3]"), [][]string{{"[1,null,3]"}})
	// Structs have pointers.
	equal(t, values(t, openOverADBC(t), "SELECT {'a': CAST(NULL AS BIGINT)}"), [][]any{{struct {
		A *int64 `arrow:"a"`
	}{}}})
}

func TestADSNOfADBCTakesNoSemicolonInAValue(t *testing.T) {
	_, err := sql.Open(overADBC, "uri=grpc://127.0.0.1:1;username=kea;password=a;b")
	says(t, err, "invalid format for connection string")
	// A value that has an option's name after its semicolon becomes that option.
	_, err = sql.Open(overADBC, "uri=grpc://127.0.0.1:1;username=kea;password=a;nest=b")
	says(t, err, "Unknown database option 'nest'")
}

func TestBothDriversAreCalledFlightsql(t *testing.T) {
	// arrow-go's driver has registered itself, so the package sqldriver/flightsql of ADBC would panic.
	defer func() { equal(t, recover(), "sql: Register called twice for driver flightsql") }()
	sql.Register("flightsql", sqldriver.Driver{})
}

func TestErrorsOfADBCAreNoErrorsOfContextsAndTheirFieldForTheSQLSTATEIsEmpty(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	var n int64
	err := openOverADBC(t).QueryRowContext(ctx, endless()).Scan(&n)
	equal(t, errors.Is(err, context.DeadlineExceeded), false)
	equal(t, codeOf(t, err), adbc.StatusTimeout)
	var ours adbc.Error
	equal(t, errors.As(err, &ours), true)
	equal(t, ours.SqlState, [5]byte{})
	equal(t, sqlstate(t, err), "57014")
}

func TestGetObjectsKnowsNeitherKeysNorNullabilityNorDefaults(t *testing.T) {
	birds := table(t, "k BIGINT PRIMARY KEY, name VARCHAR NOT NULL DEFAULT 'kea'")
	reader, err := connectADBC(t).GetObjects(background(t), adbc.ObjectDepthAll, nil, nil, &birds, nil, nil)
	check(t, err)
	defer reader.Release()
	equal(t, reader.Next(), true)
	listing, err := json.Marshal(reader.RecordBatch())
	check(t, err)
	for _, nothing := range []string{
		`"table_constraints":[]`, `"xdbc_nullable":null`, `"xdbc_is_nullable":null`, `"xdbc_column_def":null`, `"remarks":null`,
	} {
		if !strings.Contains(string(listing), nothing) {
			t.Fatalf("no %s in %s", nothing, listing)
		}
	}
}

func TestADBCSendsNothingIfThereIsNoBatch(t *testing.T) {
	birds := newName("ingested")
	rows := counted(0)
	reader, err := array.NewRecordReader(rows.Schema(), []arrow.RecordBatch{})
	check(t, err)
	defer reader.Release()
	_, err = adbc.IngestStream(background(t), connectADBC(t), reader, birds, create, adbc.IngestStreamOptions{})
	says(t, err, "stream of a DoPut is empty")
	written, err := ingest(t, connectADBC(t), birds, create, rows, adbc.IngestStreamOptions{})
	check(t, err)
	equal(t, written, int64(0))
	run(t, connectADBC(t), "DROP TABLE "+birds)
}

func TestADBCWritesFailedQueriesToTheStandardError(t *testing.T) {
	standardError := os.Stderr
	defer func() { os.Stderr = standardError }()
	caught, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	check(t, err)
	defer caught.Close()
	os.Stderr = caught
	for _, driver := range []adbc.Driver{flightsql.NewDriver(memory.DefaultAllocator), quiet{flightsql.NewDriver(memory.DefaultAllocator)}} {
		check(t, caught.Truncate(0))
		database, err := driver.NewDatabase(map[string]string{adbc.OptionKeyURI: "grpc://" + unsecured.Address})
		check(t, err)
		connection, err := database.Open(background(t))
		check(t, err)
		failure(t, connection, "SELECT 1 / 0")
		check(t, connection.Close())
		check(t, database.Close())
		written, err := os.ReadFile(caught.Name())
		check(t, err)
		_, isQuiet := driver.(quiet)
		equal(t, strings.Contains(string(written), "Divide by zero"), !isQuiet)
	}
}
