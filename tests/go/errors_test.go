package volary

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

var wrongStatements = []struct {
	statement string
	grpc      codes.Code
	adbc      adbc.Status
	sqlstate  string
	says      string
}{
	{"SELEC 1", codes.InvalidArgument, adbc.StatusInvalidArgument, "42601", "SELEC"},
	{"SELECT nme FROM {t}", codes.NotFound, adbc.StatusNotFound, "42703", "there is no column nme: did you mean name?"},
	{"SELECT * FROM no_such_table", codes.NotFound, adbc.StatusNotFound, "42P01", `table "no_such_table" does not exist`},
	{"SELECT 1 / (k - 1) FROM {t}", codes.InvalidArgument, adbc.StatusInvalidArgument, "22012", "Divide by zero"},
	{"SELECT CAST('kea' AS BIGINT)", codes.InvalidArgument, adbc.StatusInvalidArgument, "22P02", "kea"},
	{"SELECT no_such_function(k) FROM {t}", codes.InvalidArgument, adbc.StatusInvalidArgument, "42883", "no_such_function"},
	{"CREATE TABLE {t} (k BIGINT)", codes.AlreadyExists, adbc.StatusAlreadyExists, "42P07", "{t}"},
	{"INSERT INTO {t} (k) VALUES (NULL)", codes.InvalidArgument, adbc.StatusInvalidArgument, "23502", "column k: a NULL"},
	{"INSERT INTO {t} (k) VALUES (70000)", codes.InvalidArgument, adbc.StatusInvalidArgument, "22003", "column k"},
	{"SELECT * FROM nowhere.birds", codes.NotFound, adbc.StatusNotFound, "3F000", "nowhere"},
	{"COPY {t} FROM '/etc/passwd'", codes.PermissionDenied, adbc.StatusUnauthorized, "42501", "/etc/passwd"},
	{"DELETE FROM {t}", codes.InvalidArgument, adbc.StatusInvalidArgument, "0A000", "not supported"},
}

func TestAnErrorHasACodeAndASQLSTATEAndSaysWhatIsWrong(t *testing.T) {
	birds := table(t, "k SMALLINT NOT NULL, name VARCHAR")
	connection := connectADBC(t)
	run(t, connection, "INSERT INTO "+birds+" VALUES (1, 'kiwi')")
	client := connectClient(t)
	for _, of := range wrongStatements {
		t.Run(of.statement, func(t *testing.T) {
			statement, part := strings.ReplaceAll(of.statement, "{t}", birds), strings.ReplaceAll(of.says, "{t}", birds)

			err := failure(t, connection, statement)
			says(t, err, ": query ", part)
			equal(t, codeOf(t, err), of.adbc)
			equal(t, sqlstate(t, err), of.sqlstate)

			var trailer metadata.MD
			err = failed(background(t), client, statement, grpc.Trailer(&trailer))
			equal(t, status.Code(err), of.grpc)
			equal(t, trailer.Get("volary-sqlstate"), []string{of.sqlstate})

			withEachDriver(t, func(t *testing.T, name string, db *sql.DB) {
				rows, err := db.QueryContext(background(t), statement)
				if err == nil {
					_, err = remaining(rows)
				}
				says(t, err, ": query ", part)
				equal(t, grpcCode(err), of.grpc)
				if name == overADBC {
					equal(t, sqlstate(t, err), of.sqlstate)
				}
			})
		})
	}
}

func TestAConnectionWorksAfterAnError(t *testing.T) {
	withEachDriver(t, func(t *testing.T, _ string, db *sql.DB) {
		db.SetMaxOpenConns(1)
		for range 3 {
			_, err := db.ExecContext(background(t), "SELEC 1")
			says(t, err, "SELEC")
			equal(t, values(t, db, "SELECT 42"), [][]any{{int64(42)}})
		}
	})
}

// sqlstate returns the SQLSTATE of an error of ADBC, which is among its details.
func sqlstate(t *testing.T, err error) string {
	t.Helper()
	var ours adbc.Error
	if !errors.As(err, &ours) {
		t.Fatalf("%v is no error of ADBC", err)
	}
	for _, detail := range ours.Details {
		if detail.Key() == "volary-sqlstate" {
			value, err := detail.Serialize()
			check(t, err)
			return string(value)
		}
	}
	t.Fatalf("%v has no SQLSTATE", err)
	return ""
}
