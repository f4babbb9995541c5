package volary

import (
	"database/sql"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestTransactionsAreRefusedWithTheReason(t *testing.T) {
	for name, said := range map[string]string{
		overADBC:    "server does not report transaction support",
		overArrowGo: "there are no transactions: each statement commits by itself",
	} {
		db := openSQL(t, name, dsn(name, unsecured))
		db.SetMaxOpenConns(1)
		_, err := db.BeginTx(background(t), nil)
		says(t, err, said)
		_, err = db.BeginTx(background(t), &sql.TxOptions{Isolation: sql.LevelSerializable, ReadOnly: true})
		says(t, err, "transaction")
		// The connection works all the same.
		equal(t, values(t, db, "SELECT 42"), [][]any{{int64(42)}})
	}
	session := connectADBC(t).(adbc.PostInitOptions)
	check(t, session.SetOption(adbc.OptionKeyAutoCommit, adbc.OptionValueEnabled))
	says(t, session.SetOption(adbc.OptionKeyAutoCommit, adbc.OptionValueDisabled), "transaction support")
	_, err := connectClient(t).BeginTransaction(background(t))
	equal(t, status.Code(err), codes.Unimplemented)
}

func TestEachStatementCommitsByItself(t *testing.T) {
	connection := connectADBC(t)
	birds := table(t, "k BIGINT")
	run(t, connection, "INSERT INTO "+birds+" VALUES (1)")
	equal(t, query(t, connectADBC(t), "SELECT count(*) FROM "+birds), [][]string{{"1"}})
	equal(t, codeOf(t, connection.Commit(background(t))), adbc.StatusInvalidState)
	equal(t, codeOf(t, connection.Rollback(background(t))), adbc.StatusInvalidState)

	// As SQL, what changes nothing is accepted.
	for _, statement := range []string{"BEGIN", "COMMIT", "BEGIN", "SELECT 1", "ROLLBACK", "BEGIN", "INSERT INTO " + birds + " VALUES (2)"} {
		run(t, connection, statement)
	}
	says(t, failure(t, connection, "ROLLBACK"), "ROLLBACK cannot undo changes: each statement commits by itself")
	run(t, connection, "COMMIT")
	equal(t, query(t, connection, "SELECT count(*) FROM "+birds), [][]string{{"2"}})
}

func TestAReadOnlySessionRefusesWrites(t *testing.T) {
	birds := table(t, "k BIGINT")
	connection := pinned(t, openSQL(t, overADBC, dsn(overADBC, unsecured)))
	_, err := connection.ExecContext(background(t), "SET read_only = true")
	check(t, err)
	_, err = connection.ExecContext(background(t), "INSERT INTO "+birds+" VALUES (1)")
	equal(t, sqlstate(t, err), "25006")
}
