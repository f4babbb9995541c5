package volary

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	adbcflightsql "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// endless returns a query that cannot end by itself, and that no other test runs.
func endless() string {
	return fmt.Sprintf("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n %% 7 + 1 FROM r) SELECT count(*) AS %s FROM r",
		newName("n"))
}

// running returns the ids of the queries that run a statement.
func running(t *testing.T, statement string) []string {
	t.Helper()
	var ids []string
	quoted := "'" + strings.ReplaceAll(statement, "'", "''") + "'"
	for _, row := range query(t, connectADBC(t), "SELECT query_id FROM system.queries WHERE statement = "+quoted) {
		ids = append(ids, row[0])
	}
	return ids
}

func awaitRunning(t *testing.T, statement string) string {
	t.Helper()
	var ids []string
	until(t, "it runs: "+statement, func() bool {
		ids = running(t, statement)
		return len(ids) == 1
	})
	return ids[0]
}

func awaitEnded(t *testing.T, statement string) {
	t.Helper()
	until(t, "it has ended: "+statement, func() bool { return len(running(t, statement)) == 0 })
}

func killWhenItRuns(t *testing.T, statement string) (wait func()) {
	return meanwhile(func() { run(t, connectADBC(t), "KILL '"+awaitRunning(t, statement)+"'") })
}

// meanwhile does something beside the test. The test must wait for its end before its connections are closed.
func meanwhile(do func()) (wait func()) {
	var done sync.WaitGroup
	done.Go(do)
	return done.Wait
}

// endings are the two ways in which a context ends. The code is gRPC's.
var endings = []struct {
	name string
	code codes.Code
	end  func(t *testing.T, statement string) (ctx context.Context, wait func())
}{
	{"a deadline", codes.DeadlineExceeded, func(*testing.T, string) (context.Context, func()) {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		return ctx, cancel
	}},
	{"a cancellation", codes.Canceled, func(t *testing.T, statement string) (context.Context, func()) {
		ctx, cancel := context.WithCancel(context.Background())
		return ctx, meanwhile(func() {
			defer cancel()
			awaitRunning(t, statement)
		})
	}},
}

func TestAContextThatEndsEndsTheStatementOnTheCluster(t *testing.T) {
	connection := connectADBC(t)
	client := connectClient(t)
	birds := table(t, "k BIGINT")
	clients := map[string]func(ctx context.Context, statement string, isUpdate bool) error{
		"ADBC": func(ctx context.Context, statement string, isUpdate bool) (err error) {
			withStatement(t, connection, statement, func(s adbc.Statement) {
				if isUpdate {
					_, err = s.ExecuteUpdate(ctx)
					return
				}
				reader, _, failed := s.ExecuteQuery(ctx)
				if err = failed; err == nil {
					reader.Next()
					err = reader.Err()
					reader.Release()
				}
			})
			return err
		},
		"the plain client": func(ctx context.Context, statement string, isUpdate bool) error {
			if isUpdate {
				_, err := client.ExecuteUpdate(ctx, statement)
				return err
			}
			return failed(ctx, client, statement)
		},
	}
	for _, name := range []string{overADBC, overArrowGo} {
		db := openSQL(t, name, dsn(name, unsecured))
		clients["database/sql over "+name] = func(ctx context.Context, statement string, isUpdate bool) error {
			if isUpdate {
				_, err := db.ExecContext(ctx, statement)
				return err
			}
			var n int64
			return db.QueryRowContext(ctx, statement).Scan(&n)
		}
	}
	for name, runs := range clients {
		for _, of := range endings {
			t.Run(name+", "+of.name, func(t *testing.T) {
				for _, isUpdate := range []bool{false, true} {
					statement := endless()
					if isUpdate {
						statement = "INSERT INTO " + birds + " " + statement
					}
					ctx, wait := of.end(t, statement)
					err := runs(ctx, statement, isUpdate)
					wait()
					equal(t, grpcCode(err), of.code)
					awaitEnded(t, statement)
				}
			})
		}
	}
	equal(t, query(t, connection, "SELECT count(*) FROM "+birds), [][]string{{"0"}})
}

// grpcCode returns gRPC's code of an error, which all clients keep: ADBC as the vendor's code.
func grpcCode(err error) codes.Code {
	if ours, is := err.(adbc.Error); is {
		return codes.Code(ours.VendorCode)
	}
	return status.Code(err)
}

func TestTimeoutsOfTheDriversEndStatements(t *testing.T) {
	birds := table(t, "k BIGINT")
	query, update := endless(), "INSERT INTO "+birds+" "+endless()
	short := connectADBC(t, map[string]string{adbcflightsql.OptionTimeoutFetch: "0.2", adbcflightsql.OptionTimeoutUpdate: "0.2"})
	equal(t, codeOf(t, failure(t, short, query)), adbc.StatusTimeout)
	withStatement(t, short, update, func(s adbc.Statement) {
		_, err := s.ExecuteUpdate(background(t))
		equal(t, codeOf(t, err), adbc.StatusTimeout)
	})
	awaitEnded(t, query)
	awaitEnded(t, update)

	// The timeout of arrow-go's driver does not limit the reading of rows, but a statement without rows.
	update = "INSERT INTO " + birds + " " + endless()
	_, err := openSQL(t, overArrowGo, dsn(overArrowGo, unsecured)+"?timeout=200ms").ExecContext(context.Background(), update)
	equal(t, grpcCode(err), codes.DeadlineExceeded)
	awaitEnded(t, update)
}

func TestAStatementTimeoutOfTheSessionEndsTheStatement(t *testing.T) {
	connection := pinned(t, openSQL(t, overADBC, dsn(overADBC, unsecured)))
	_, err := connection.ExecContext(background(t), "SET statement_timeout = '200ms'")
	check(t, err)
	var n int64
	err = connection.QueryRowContext(background(t), endless()).Scan(&n)
	says(t, err, "DEADLINE_EXCEEDED", "statement_timeout")
}

func TestAResultThatIsClosedEarlyEndsItsQuery(t *testing.T) {
	withEachDriver(t, func(t *testing.T, _ string, db *sql.DB) {
		statement := "SELECT 1 AS n UNION ALL (" + endless() + ")"
		rows, err := db.QueryContext(background(t), statement)
		check(t, err)
		equal(t, rows.Next(), true)
		check(t, rows.Close())
		awaitEnded(t, statement)
	})
}

func TestAQueryIsKilled(t *testing.T) {
	connection := connectADBC(t)
	statement := endless()
	defer killWhenItRuns(t, statement)()
	err := failure(t, connection, statement)
	says(t, err, "KILL has ended it")
	equal(t, codeOf(t, err), adbc.StatusCancelled)
}

func TestThePlainClientCancelsAQuery(t *testing.T) {
	client := connectClient(t)
	statement := endless()
	info, err := client.Execute(background(t), statement)
	check(t, err)
	defer meanwhile(func() {
		awaitRunning(t, statement)
		result, err := client.CancelFlightInfo(background(t), &flight.CancelFlightInfoRequest{Info: info})
		check(t, err)
		equal(t, result.Status, flight.CancelStatusCancelled)
	})()
	equal(t, status.Code(drained(background(t), client, info)), codes.Canceled)
	awaitEnded(t, statement)
}
