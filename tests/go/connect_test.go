package volary

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	adbcflightsql "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const who = "SELECT user_name FROM system.queries"

func TestADBCConnects(t *testing.T) {
	equal(t, query(t, connectADBC(t), "SELECT 42 AS answer"), [][]string{{"42"}})
}

func TestDatabaseSQLConnects(t *testing.T) {
	withEachDriver(t, func(t *testing.T, _ string, db *sql.DB) {
		check(t, db.PingContext(background(t)))
		equal(t, values(t, db, "SELECT 42 AS answer"), [][]any{{int64(42)}})
	})
}

func TestThePlainClientConnects(t *testing.T) {
	client := connectClient(t)
	info, err := client.Execute(background(t), "SELECT 42 AS answer")
	equal(t, fetch(t, client, info, err), [][]string{{"42"}})
}

func TestFromAnAddressWhereNobodyListensOnlyTheFirstStatementFails(t *testing.T) {
	for name, nowhere := range map[string]string{overADBC: "uri=grpc://127.0.0.1:1", overArrowGo: "flightsql://127.0.0.1:1"} {
		db := openSQL(t, name, nowhere)
		check(t, db.PingContext(background(t)))
		_, err := db.ExecContext(background(t), "SELECT 1")
		says(t, err, "connection refused")
	}
	// ADBC's driver logs in when it connects.
	withPassword := openSQL(t, overADBC, "uri=grpc://127.0.0.1:1;username=kea;password=x")
	says(t, withPassword.PingContext(background(t)), "connection refused")
}

// TLS and logging in

func TestADBCLogsIn(t *testing.T) {
	uri := "grpc+tls://" + theSecured(t).Address
	authority := map[string]string{adbcflightsql.OptionSSLRootCerts: certificate(t, "authority.pem")}
	admin := map[string]string{adbc.OptionKeyUsername: "admin", adbc.OptionKeyPassword: adminPassword}

	connection, err := openADBC(t, uri, authority, admin)
	check(t, err)
	equal(t, query(t, connection, who), [][]string{{"admin"}})

	withItsOwnCertificate := map[string]string{
		adbcflightsql.OptionMTLSCertChain:  certificate(t, "kea.pem"),
		adbcflightsql.OptionMTLSPrivateKey: certificate(t, "kea.key"),
	}
	connection, err = openADBC(t, uri, authority, admin, withItsOwnCertificate)
	check(t, err)
	equal(t, query(t, connection, who), [][]string{{"admin"}})

	// What is wrong with a password is said when it connects.
	_, err = openADBC(t, uri, authority, admin, map[string]string{adbc.OptionKeyPassword: "wrong"})
	says(t, err, "the user name or the password is wrong; check both")
	equal(t, codeOf(t, err), adbc.StatusUnauthenticated)
	_, err = openADBC(t, uri, admin)
	says(t, err, "certificate signed by unknown authority")
}

func TestADBCShowsAToken(t *testing.T) {
	uri := "grpc+tls://" + theSecured(t).Address
	authority := map[string]string{adbcflightsql.OptionSSLRootCerts: certificate(t, "authority.pem")}
	admin, err := openADBC(t, uri, authority, map[string]string{
		adbc.OptionKeyUsername: "admin", adbc.OptionKeyPassword: adminPassword,
	})
	check(t, err)
	token := query(t, admin, "CREATE TOKEN of_adbc VALID FOR '1 day'")[0][0]

	bearer := map[string]string{adbcflightsql.OptionAuthorizationHeader: "Bearer " + token}
	connection, err := openADBC(t, uri, authority, bearer)
	check(t, err)
	equal(t, query(t, connection, who), [][]string{{"admin"}})

	// What is wrong with a token, or that there is none, is said by the first statement.
	run(t, admin, "DROP TOKEN of_adbc")
	says(t, failure(t, connection, "SELECT 1"), "UNAUTHENTICATED", "CREATE TOKEN")
	connection, err = openADBC(t, uri, authority)
	check(t, err)
	says(t, failure(t, connection, "SELECT 1"), "UNAUTHENTICATED: log in")
}

func TestDatabaseSQLLogsIn(t *testing.T) {
	for _, name := range []string{overADBC, overArrowGo} {
		t.Run(name, func(t *testing.T) {
			equal(t, values(t, openSQL(t, name, withLogin(t, name, "admin", adminPassword)), who), [][]any{{"admin"}})
			_, err := openSQL(t, name, withLogin(t, name, "admin", "wrong")).ExecContext(background(t), "SELECT 1")
			says(t, err, "the user name or the password is wrong; check both")
		})
	}
}

func TestDatabaseSQLShowsAToken(t *testing.T) {
	admin := openSQL(t, overADBC, withLogin(t, overADBC, "admin", adminPassword))
	token := values(t, admin, "CREATE TOKEN of_database_sql VALID FOR '1 day'")[0][0].(string)
	address := theSecured(t).Address
	overTLS := "flightsql://" + address + "?tls=" + trusting(t)
	equal(t, values(t, openSQL(t, overArrowGo, overTLS+"&token="+token), who), [][]any{{"admin"}})
	adbcDSN := "uri=grpc+tls://" + address + ";" + adbcflightsql.OptionSSLRootCerts + "=" + certificate(t, "authority.pem")
	header := ";" + adbcflightsql.OptionAuthorizationHeader + "=Bearer " + token
	equal(t, values(t, openSQL(t, overADBC, adbcDSN+header), who), [][]any{{"admin"}})

	for name, without := range map[string]string{overADBC: adbcDSN, overArrowGo: overTLS} {
		_, err := openSQL(t, name, without).ExecContext(background(t), "SELECT 1")
		says(t, err, "UNAUTHENTICATED: log in")
	}
	_, err := openSQL(t, overArrowGo, "flightsql://"+address+"?tls=enabled&token="+token).ExecContext(background(t), "SELECT 1")
	says(t, err, "certificate signed by unknown authority")
}

func TestThePlainClientLogsIn(t *testing.T) {
	address := theSecured(t).Address
	connect := func(trusted *tls.Config) *flightsql.Client {
		client, err := flightsql.NewClient(address, nil, nil, grpc.WithTransportCredentials(credentials.NewTLS(trusted)))
		check(t, err)
		t.Cleanup(func() { check(t, client.Close()) })
		return client
	}
	client := connect(trust(t))
	withToken, err := client.Client.AuthenticateBasicToken(background(t), "admin", adminPassword)
	check(t, err)
	info, err := client.Execute(withToken, who)
	check(t, err)
	reader, err := client.DoGet(withToken, info.Endpoint[0].Ticket)
	check(t, err)
	equal(t, texts(t, reader), [][]string{{"admin"}})

	_, err = client.Client.AuthenticateBasicToken(background(t), "admin", "wrong")
	equal(t, status.Code(err), codes.Unauthenticated)
	wrong := metadata.AppendToOutgoingContext(background(t), "authorization", "Bearer wrong")
	_, err = client.Execute(wrong, who)
	says(t, err, "was not issued by this cluster")
	_, err = connect(&tls.Config{}).Execute(background(t), "SELECT 1")
	says(t, err, "certificate signed by unknown authority")
}

// Sessions

func TestASettingAppliesToOneConnectionOfThePool(t *testing.T) {
	const zone = "SELECT CAST(TIMESTAMP WITH TIME ZONE '2024-05-06T00:00:00Z' AS VARCHAR)"
	tokyo, utc := [][]any{{"2024-05-06T09:00:00+09:00"}}, [][]any{{"2024-05-06T00:00:00Z"}}
	for name, dsn := range map[string]string{
		"without credentials": dsn(overADBC, unsecured),
		"with a password":     withLogin(t, overADBC, "admin", adminPassword),
	} {
		t.Run(name, func(t *testing.T) {
			db := openSQL(t, overADBC, dsn)
			one, another := pinned(t, db), pinned(t, db)
			_, err := one.ExecContext(background(t), "SET timezone = 'Asia/Tokyo'")
			check(t, err)
			equal(t, values(t, one, zone), tokyo)
			equal(t, values(t, another, zone), utc)
			// Nothing resets a connection that goes back to the pool.
			check(t, one.Close())
			equal(t, values(t, db, zone), tokyo)
		})
	}
}

func TestTheCurrentSchemaIsThatOfTheConnection(t *testing.T) {
	connection := connectADBC(t)
	schema := newName("forest")
	run(t, connection, "CREATE SCHEMA "+schema)
	t.Cleanup(func() { run(t, connectADBC(t), "DROP SCHEMA "+schema+" CASCADE") })
	session := connection.(adbc.GetSetOptions)
	current := func() string {
		now, err := session.GetOption(adbc.OptionKeyCurrentDbSchema)
		check(t, err)
		return now
	}
	equal(t, current(), "public")
	check(t, session.SetOption(adbc.OptionKeyCurrentDbSchema, schema))
	equal(t, current(), schema)
	run(t, connection, "CREATE TABLE trees AS SELECT 1 AS k")
	equal(t, query(t, connectADBC(t), "SELECT k FROM "+schema+".trees"), [][]string{{"1"}})
	catalog, err := session.GetOption(adbc.OptionKeyCurrentCatalog)
	check(t, err)
	equal(t, catalog, "volary")
	says(t, session.SetOption(adbc.OptionKeyCurrentCatalog, "other"), "'catalog'")
	says(t, session.SetOption(adbc.OptionKeyCurrentDbSchema, "nowhere"), "'schema'")
}

func pinned(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	connection, err := db.Conn(context.WithoutCancel(background(t)))
	check(t, err)
	t.Cleanup(func() {
		if err := connection.Close(); !errors.Is(err, sql.ErrConnDone) {
			check(t, err)
		}
	})
	return connection
}

// failure returns the error of a query through ADBC, wherever it comes.
func failure(t *testing.T, connection adbc.Connection, text string) (err error) {
	t.Helper()
	withStatement(t, connection, text, func(s adbc.Statement) {
		reader, _, failed := s.ExecuteQuery(background(t))
		if err = failed; err == nil {
			for reader.Next() {
			}
			err = reader.Err()
			reader.Release()
		}
	})
	if err == nil {
		t.Fatalf("%s has not failed", text)
	}
	return err
}

// codeOf returns ADBC's code of an error.
func codeOf(t *testing.T, err error) adbc.Status {
	t.Helper()
	var ours adbc.Error
	if !errors.As(err, &ours) {
		t.Fatalf("%v is no error of ADBC", err)
	}
	return ours.Code
}
