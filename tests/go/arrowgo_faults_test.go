package volary

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
)

// These tests show what release 18.8.0 of arrow-go's driver of database/sql does wrong with any server. If a test fails
// with another release, docs/clients/go.md has a sentence too many.

func openOverArrowGo(t *testing.T) *sql.DB {
	t.Helper()
	return openSQL(t, overArrowGo, dsn(overArrowGo, unsecured))
}

func TestTheDriverOfArrowGoLosesAnErrorThatComesWhileItWaitsForRows(t *testing.T) {
	killedAfterItsFirstRow := func(db *sql.DB) error {
		// The first row comes at once. Then the query runs until it is killed.
		statement := "SELECT 1 AS n UNION ALL (" + endless() + ")"
		rows, err := db.QueryContext(background(t), statement)
		check(t, err)
		defer rows.Close()
		equal(t, rows.Next(), true)
		defer killWhenItRuns(t, statement)()
		equal(t, rows.Next(), false)
		return rows.Err()
	}
	// The result looks as if it were complete, unless the error comes before the driver begins to wait.
	db := openOverArrowGo(t)
	until(t, "an error is lost", func() bool { return killedAfterItsFirstRow(db) == nil })
	says(t, killedAfterItsFirstRow(openOverADBC(t)), "KILL has ended it")
}

func TestTheDriverOfArrowGoTakesParametersOfFewTypes(t *testing.T) {
	db := openOverArrowGo(t)
	birds := table(t, "k BIGINT, small INTEGER, real REAL, name VARCHAR, price DECIMAL(8, 3), day DATE, at TIMESTAMP, tod TIME, raw BYTEA, yes BOOLEAN")
	insert := func(column string, value any) error {
		_, err := db.ExecContext(background(t), "INSERT INTO "+birds+" ("+column+") VALUES (?)", value)
		return err
	}
	for column, value := range map[string]any{"k": 1, "small": int8(1), "real": float32(1.5), "name": "kea", "yes": true} {
		check(t, insert(column, value))
	}
	for column, value := range map[string]any{"price": "1.5", "day": moment, "at": moment, "tod": moment, "raw": []byte{0}} {
		says(t, insert(column, value), "unknown builder type")
	}
	for column, value := range map[string]any{"k": nil, "name": sql.NullString{}, "yes": nil} {
		says(t, insert(column, value), "invalid value type <nil>")
	}
	says(t, insert("name", []byte("kea")), "invalid value type []uint8")
	// A query may be prepared once and run often, and need not be prepared.
	find, err := db.PrepareContext(background(t), "SELECT CAST(? AS BIGINT)")
	check(t, err)
	defer find.Close()
	for n := range 3 {
		var found int
		check(t, find.QueryRowContext(background(t), n).Scan(&found))
		equal(t, found, n)
	}
	equal(t, values(t, db, "SELECT CAST(? AS BIGINT)", 42), [][]any{{int64(42)}})
}

func TestTheDriverOfArrowGoReadsDecimalsAsFloatingPoint(t *testing.T) {
	equal(t, values(t, openOverArrowGo(t), "SELECT CAST('12345678901234567.89' AS DECIMAL(30, 2)), CAST(18446744073709551615 AS BIGINT UNSIGNED)"),
		[][]any{{12345678901234568.0, 18446744073709551616.0}})
	equal(t, values(t, openOverArrowGo(t), "SELECT CAST(CAST('12345678901234567.89' AS DECIMAL(30, 2)) AS VARCHAR)"),
		[][]any{{"12345678901234567.89"}})
}

func TestTheDriverOfArrowGoTakesNoMessageOverFourMiB(t *testing.T) {
	var value string
	err := openOverArrowGo(t).QueryRowContext(background(t), "SELECT repeat('x', 5 * 1048576)").Scan(&value)
	says(t, err, "received message larger than max")
	// Large results come in smaller messages.
	rows, err := openOverArrowGo(t).QueryContext(background(t), "SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
	check(t, err)
	all, err := remaining(rows)
	check(t, err)
	equal(t, len(all), 20_000)
}

func TestTheDriverOfArrowGoSaysNothingAboutColumns(t *testing.T) {
	rows, err := openOverArrowGo(t).QueryContext(background(t), "SELECT CAST(1.5 AS DECIMAL(8, 3)) AS price")
	check(t, err)
	defer rows.Close()
	columns, err := rows.ColumnTypes()
	check(t, err)
	_, _, hasPrecision := columns[0].DecimalSize()
	_, hasNullability := columns[0].Nullable()
	equal(t, []any{columns[0].Name(), columns[0].DatabaseTypeName(), hasPrecision, hasNullability}, []any{"price", "", false, false})
}

func TestTheDriverOfArrowGoHasNoSession(t *testing.T) {
	for _, dsn := range []string{dsn(overArrowGo, unsecured), withLogin(t, overArrowGo, "admin", adminPassword)} {
		_, err := openSQL(t, overArrowGo, dsn).ExecContext(background(t), "SET timezone = 'Asia/Tokyo'")
		says(t, err, "SET would have no effect: this client names no session")
	}
}

func TestErrorsOfTheDriverOfArrowGoAreNoErrorsOfContextsAndHaveNoSQLSTATE(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := openOverArrowGo(t).ExecContext(ctx, "INSERT INTO "+table(t, "k BIGINT")+" "+endless())
	equal(t, errors.Is(err, context.DeadlineExceeded), false)
	var ofADBC adbc.Error
	equal(t, errors.As(err, &ofADBC), false)
}

func TestTheTimeoutOfTheDriverOfArrowGoDoesNotLimitTheReadingOfRows(t *testing.T) {
	db := openSQL(t, overArrowGo, dsn(overArrowGo, unsecured)+"?timeout=100ms")
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	rows, err := db.QueryContext(ctx, "SELECT 1 AS n UNION ALL ("+endless()+")")
	check(t, err)
	defer rows.Close()
	equal(t, rows.Next(), true)
	equal(t, rows.Next(), false)
	// Only the context has ended it.
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Fatalf("the query has ended after %v", took)
	}
}
