package volary

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
)

// refused is the value of a type that a driver does not read, with a part of its message.
type refused string

var (
	moment = time.Date(2024, 5, 6, 7, 8, 9, 123456000, time.UTC)
	one    = int64(1)
	text   = "x"
)

// resultTypes says of each type how it comes: as which type and text in Arrow, as which value from adbc's driver of
// database/sql, and as which from arrow-go's. The last one is the same if it is nil.
var resultTypes = []struct {
	expression, arrow, text string
	overADBC, overArrowGo   any
}{
	{"TRUE", "bool", "true", true, nil},
	{"CAST(-128 AS TINYINT)", "int8", "-128", int8(-128), nil},
	{"CAST(-32768 AS SMALLINT)", "int16", "-32768", int16(-32768), nil},
	{"CAST(-2147483648 AS INTEGER)", "int32", "-2147483648", int32(math.MinInt32), nil},
	{"9223372036854775807", "int64", "9223372036854775807", int64(math.MaxInt64), nil},
	{"CAST(255 AS TINYINT UNSIGNED)", "int16", "255", int16(255), nil},
	{"CAST(65535 AS SMALLINT UNSIGNED)", "int32", "65535", int32(65535), nil},
	{"CAST(4294967295 AS INTEGER UNSIGNED)", "int64", "4294967295", int64(math.MaxUint32), nil},
	{"CAST(18446744073709551615 AS BIGINT UNSIGNED)", "decimal(20, 0)", "18446744073709551615",
		decimal128.FromU64(math.MaxUint64), float64(math.MaxUint64)},
	{"CAST(1.5 AS REAL)", "float32", "1.5", float32(1.5), nil},
	{"1e300", "float64", "1e+300", 1e300, nil},
	{"CAST(-12.345 AS DECIMAL(8, 3))", "decimal(8, 3)", "-12.345", decimal128.FromI64(-12345), -12.345},
	{"CAST(1.5 AS DECIMAL(60, 3))", "decimal256(60, 3)", "1.5", decimal256.FromI64(1500), 1.5},
	{"'kākāpō'", "utf8", "kākāpō", "kākāpō", nil},
	{"X'00FF'", "binary", "AP8=", []byte{0, 255}, nil},
	{"DATE '2024-05-06'", "date32", "2024-05-06", time.Date(2024, 5, 6, 0, 0, 0, 0, time.UTC), nil},
	{"DATE '0001-01-01'", "date32", "0001-01-01", time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), nil},
	{"TIME '07:08:09.123456'", "time64[us]", "07:08:09.123456", time.Date(1970, 1, 1, 7, 8, 9, 123456000, time.UTC), nil},
	{"CAST('07:08:09' AS TIME(0))", "time32[s]", "07:08:09", time.Date(1970, 1, 1, 7, 8, 9, 0, time.UTC), nil},
	{"TIMESTAMP '2024-05-06 07:08:09.123456'", "timestamp[us]", "2024-05-06T07:08:09.123456", moment, nil},
	{"TIMESTAMP '0001-01-01 00:00:00'", "timestamp[us]", "0001-01-01T00:00:00", time.Time{}, nil},
	{"TIMESTAMP '9999-12-31 23:59:59'", "timestamp[us]", "9999-12-31T23:59:59",
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), nil},
	{"CAST('2024-05-06 07:08:09.123456789' AS TIMESTAMP(9))", "timestamp[ns]", "2024-05-06T07:08:09.123456789",
		moment.Add(789), nil},
	{"CAST('2024-05-06 07:08:09' AS TIMESTAMP(0))", "timestamp[s]", "2024-05-06T07:08:09", moment.Truncate(time.Second), nil},
	{"TIMESTAMP WITH TIME ZONE '2024-05-06 09:08:09.123456+02:00'", "timestamp[us, tz=UTC]", "2024-05-06T07:08:09.123456Z",
		moment, nil},
	{"INTERVAL '1 month 2 days 3 seconds'", "month_day_nano_interval", `{"months":1,"days":2,"nanoseconds":3000000000}`,
		arrow.MonthDayNanoInterval{Months: 1, Days: 2, Nanoseconds: 3e9}, refused("MonthDayNanoInterval: not supported")},
	{"arrow_cast(3, 'Duration(Second)')", "duration[s]", "3s", 3 * time.Second, nil},
	{"[1, 2]", "list<item: int64, nullable>", "[1,2]", []int64{1, 2}, refused("List: not supported")},
	{"[['x'], []]", "list<item: list<item: utf8, nullable>, nullable>", `[["x"],[]]`, [][]string{{"x"}, {}},
		refused("List: not supported")},
	{"{'a': 1, 'b': 'x'}", "struct<a: int64 nullable, b: utf8 nullable>", `{"a":1,"b":"x"}`, struct {
		A *int64  `arrow:"a"`
		B *string `arrow:"b"`
	}{&one, &text}, refused("Struct: not supported")},
	{"MAP {'a': 1}", "map<utf8, int64, items_nullable>", `[{"key":"a","value":1}]`, map[string]int64{"a": 1},
		refused("Map: not supported")},
	{"NULL", "utf8", "(null)", nil, nil},
	{"CAST(NULL AS BIGINT)", "int64", "(null)", nil, nil},
	{"CAST(NULL AS DECIMAL(8, 3))", "decimal(8, 3)", "(null)", nil, nil},
	{"CAST(NULL AS TIMESTAMP WITH TIME ZONE)", "timestamp[us, tz=UTC]", "(null)", nil, nil},
}

func TestEachTypeOfAResultComesAsItIs(t *testing.T) {
	connection := connectADBC(t)
	client := connectClient(t)
	for _, of := range resultTypes {
		t.Run(of.expression, func(t *testing.T) {
			statement := "SELECT " + of.expression + " AS v"
			withStatement(t, connection, statement, func(s adbc.Statement) {
				reader, _, err := s.ExecuteQuery(background(t))
				check(t, err)
				equal(t, reader.Schema().Field(0).Type.String(), of.arrow)
				equal(t, texts(t, reader), [][]string{{of.text}})
			})
			info, err := client.Execute(background(t), statement)
			equal(t, fetch(t, client, info, err), [][]string{{of.text}})
		})
	}
}

func TestDatabaseSQLReadsEachType(t *testing.T) {
	withEachDriver(t, func(t *testing.T, name string, db *sql.DB) {
		for _, of := range resultTypes {
			t.Run(of.expression, func(t *testing.T) {
				want := of.overADBC
				if name == overArrowGo && of.overArrowGo != nil {
					want = of.overArrowGo
				}
				rows, err := db.QueryContext(background(t), "SELECT "+of.expression+" AS v")
				check(t, err)
				got, err := remaining(rows)
				if part, is := want.(refused); is {
					says(t, err, string(part))
					return
				}
				check(t, err)
				equal(t, got, [][]any{{want}})
			})
		}
	})
}

func TestNativeTypesAreGivenToThoseWhoAskForThem(t *testing.T) {
	const statement = "SELECT CAST(255 AS TINYINT UNSIGNED) AS v"
	native := map[string]string{"adbc.flight.sql.rpc.call_header.volary-types": "native"}
	withStatement(t, connectADBC(t, native), statement, func(s adbc.Statement) {
		reader, _, err := s.ExecuteQuery(background(t))
		check(t, err)
		equal(t, reader.Schema().Field(0).Type.String(), "uint8")
		equal(t, texts(t, reader), [][]string{{"255"}})
	})
	// Whatever the DSN of arrow-go's driver has besides its own options is a header, too. That driver reads no UInt8.
	rows, err := openSQL(t, overArrowGo, dsn(overArrowGo, unsecured)+"?volary-types=native").QueryContext(background(t), statement)
	check(t, err)
	_, err = remaining(rows)
	says(t, err, "Uint8: not supported")
}

func TestValuesAreScannedIntoTypesOfGo(t *testing.T) {
	withEachDriver(t, func(t *testing.T, name string, db *sql.DB) {
		scan := func(expression string, place any) {
			t.Helper()
			check(t, db.QueryRowContext(background(t), "SELECT "+expression+" AS v").Scan(place))
		}
		var (
			whole   int
			small   int16
			number  float64
			words   string
			raw     []byte
			yes     bool
			at      time.Time
			any     any
			pointer *string
		)
		scan("41 + 1", &whole)
		scan("CAST(42 AS BIGINT)", &small)
		scan("CAST(42.5 AS REAL)", &number)
		scan("'kea'", &words)
		scan("X'00FF'", &raw)
		scan("1 = 1", &yes)
		scan("TIMESTAMP WITH TIME ZONE '2024-05-06 09:08:09.123456+02:00'", &at)
		scan("NULL", &any)
		scan("'kea'", &pointer)
		equal(t, []interface{}{whole, small, number, words, raw, yes, at, any, *pointer},
			[]interface{}{42, int16(42), 42.5, "kea", []byte{0, 255}, true, moment, nil, "kea"})
		scan("DATE '2024-05-06'", &at)
		equal(t, at, time.Date(2024, 5, 6, 0, 0, 0, 0, time.UTC))
		scan("42", &words)
		equal(t, words, "42")
		scan("CAST(NULL AS VARCHAR)", &pointer)
		equal(t, pointer, (*string)(nil))

		for _, of := range []struct {
			expression string
			null, set  sql.Scanner
		}{
			{"CAST(42 AS INTEGER)", &sql.NullInt32{}, &sql.NullInt32{Int32: 42, Valid: true}},
			{"42", &sql.NullInt64{}, &sql.NullInt64{Int64: 42, Valid: true}},
			{"42.5", &sql.NullFloat64{}, &sql.NullFloat64{Float64: 42.5, Valid: true}},
			{"'kea'", &sql.NullString{}, &sql.NullString{String: "kea", Valid: true}},
			{"TRUE", &sql.NullBool{}, &sql.NullBool{Bool: true, Valid: true}},
			{"TIMESTAMP '2024-05-06 07:08:09.123456'", &sql.NullTime{}, &sql.NullTime{Time: moment, Valid: true}},
			{"'kea'", &sql.Null[string]{}, &sql.Null[string]{V: "kea", Valid: true}},
		} {
			scan(fmt.Sprintf("nullif(%s, %s)", of.expression, of.expression), of.null)
			none, err := of.null.(driver.Valuer).Value()
			check(t, err)
			equal(t, none, nil)
			scan(of.expression, of.null)
			equal(t, of.null, of.set)
		}
		err := db.QueryRowContext(background(t), "SELECT CAST(NULL AS BIGINT)").Scan(&whole)
		says(t, err, "converting NULL to int is unsupported")
		equal(t, db.QueryRowContext(background(t), "SELECT 1 WHERE FALSE").Scan(&whole), sql.ErrNoRows)
	})
}

func TestColumnTypesOverADBC(t *testing.T) {
	birds := table(t, "k BIGINT NOT NULL, price DECIMAL(8, 3), name VARCHAR, at TIMESTAMP WITH TIME ZONE, raw BYTEA, many BIGINT[]")
	rows, err := openSQL(t, overADBC, dsn(overADBC, unsecured)).QueryContext(background(t), "SELECT * FROM "+birds)
	check(t, err)
	defer rows.Close()
	columns, err := rows.ColumnTypes()
	check(t, err)
	var got []string
	for _, column := range columns {
		_, hasLength := column.Length()
		precision, scale, isDecimal := column.DecimalSize()
		nullable, isKnown := column.Nullable()
		got = append(got, fmt.Sprint(column.Name(), " ", column.DatabaseTypeName(), " ", hasLength, " ",
			precision, " ", scale, " ", isDecimal, " ", nullable, " ", isKnown, " ", column.ScanType()))
	}
	equal(t, got, []string{
		"k int64 false 0 0 false false true int64",
		"price decimal(8, 3) false 8 3 true true true decimal128.Num",
		"name utf8 false 0 0 false true true string",
		"at timestamp[us, tz=UTC] false 0 0 false true true time.Time",
		"raw binary false 0 0 false true true []uint8",
		"many list<item: int64, nullable> false 0 0 false true true <nil>",
	})
}
