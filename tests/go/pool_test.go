package volary

import (
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"
)

func TestManyGoroutinesShareAPool(t *testing.T) {
	const goroutines, each, connections = 12, 2, 5
	withEachDriver(t, func(t *testing.T, _ string, db *sql.DB) {
		birds := table(t, "k BIGINT, v BIGINT")
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(2)
		var all sync.WaitGroup
		errs := make(chan error, goroutines*each)
		for goroutine := range goroutines {
			all.Go(func() {
				for i := range each {
					errs <- writeAndRead(t, db, birds, goroutine*each+i)
				}
			})
		}
		all.Wait()
		close(errs)
		for err := range errs {
			check(t, err)
		}
		total := goroutines * each
		equal(t, values(t, db, "SELECT count(*), count(DISTINCT k), sum(v) FROM "+birds),
			[][]any{{int64(total), int64(total), int64(total * (total - 1))}})
		if open := db.Stats().OpenConnections; open > connections {
			t.Fatalf("%d connections are open", open)
		}
		equal(t, db.Stats().InUse, 0)
		if idle := db.Stats().Idle; idle > 2 {
			t.Fatalf("%d connections are idle", idle)
		}
	})
}

// writeAndRead inserts a row with parameters, and reads it again, both as statements that are prepared for one use.
func writeAndRead(t *testing.T, db *sql.DB, birds string, k int) error {
	if _, err := db.ExecContext(background(t), "INSERT INTO "+birds+" VALUES (?, ?)", int64(k), int64(2*k)); err != nil {
		return err
	}
	statement, err := db.PrepareContext(background(t), "SELECT v FROM "+birds+" WHERE k = ?")
	if err != nil {
		return err
	}
	defer statement.Close()
	var v int
	if err := statement.QueryRowContext(background(t), int64(k)).Scan(&v); err != nil {
		return err
	}
	if v != 2*k {
		return fmt.Errorf("the row %d has %d", k, v)
	}
	return nil
}

func TestConnectionsAreReplacedWhenTheyAreOldOrIdle(t *testing.T) {
	withEachDriver(t, func(t *testing.T, _ string, db *sql.DB) {
		db.SetConnMaxLifetime(time.Nanosecond)
		for range 3 {
			equal(t, values(t, db, "SELECT 42"), [][]any{{int64(42)}})
		}
		if closed := db.Stats().MaxLifetimeClosed; closed < 2 {
			t.Fatalf("only %d connections were closed for their age", closed)
		}
		db.SetConnMaxLifetime(0)
		db.SetMaxIdleConns(0)
		equal(t, values(t, db, "SELECT 42"), [][]any{{int64(42)}})
		equal(t, db.Stats().OpenConnections, 0)
	})
}

func TestAResultThatIsOpenDoesNotKeepOthersFromTheirConnection(t *testing.T) {
	withEachDriver(t, func(t *testing.T, _ string, db *sql.DB) {
		rows, err := db.QueryContext(background(t), "SELECT value FROM generate_series(1, 100000) t(value)")
		check(t, err)
		equal(t, rows.Next(), true)
		equal(t, values(t, db, "SELECT 42"), [][]any{{int64(42)}})
		left, err := remaining(rows)
		check(t, err)
		equal(t, len(left), 99_999)
	})
}
