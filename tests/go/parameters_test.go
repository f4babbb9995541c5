package volary

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// parameterTypes has a column of each type, a type of Arrow in which its values are sent, and such a value as JSON.
var parameterTypes = []struct {
	column string
	arrow  arrow.DataType
	json   string
	// What is read again, if it differs.
	text string
}{
	{"BOOLEAN", arrow.FixedWidthTypes.Boolean, "true", ""},
	{"TINYINT", arrow.PrimitiveTypes.Int8, "-128", ""},
	{"SMALLINT", arrow.PrimitiveTypes.Int16, "-32768", ""},
	{"INTEGER", arrow.PrimitiveTypes.Int32, "-2147483648", ""},
	{"INTEGER", arrow.PrimitiveTypes.Int64, "42", ""},
	{"BIGINT", arrow.PrimitiveTypes.Int64, "9223372036854775807", ""},
	{"BIGINT", arrow.PrimitiveTypes.Uint8, "255", ""},
	{"INTEGER UNSIGNED", arrow.PrimitiveTypes.Uint32, "4294967295", ""},
	{"REAL", arrow.PrimitiveTypes.Float32, "1.5", ""},
	{"DOUBLE", arrow.PrimitiveTypes.Float64, "1e+300", ""},
	{"DECIMAL(8, 3)", &arrow.Decimal128Type{Precision: 8, Scale: 3}, `"-12.345"`, "-12.345"},
	{"DECIMAL(8, 3)", &arrow.Decimal128Type{Precision: 4, Scale: 1}, `"12.3"`, "12.3"},
	{"DECIMAL(60, 3)", &arrow.Decimal256Type{Precision: 60, Scale: 3}, `"1.234"`, "1.234"},
	{"VARCHAR", arrow.BinaryTypes.String, `"kākāpō"`, "kākāpō"},
	{"VARCHAR", arrow.BinaryTypes.LargeString, `""`, ""},
	{"BYTEA", arrow.BinaryTypes.Binary, `"AP8="`, "AP8="},
	{"DATE", arrow.FixedWidthTypes.Date32, `"2024-05-06"`, "2024-05-06"},
	{"TIME", arrow.FixedWidthTypes.Time64us, `"07:08:09.123456"`, "07:08:09.123456"},
	{"TIME", arrow.FixedWidthTypes.Time32ms, `"07:08:09.123"`, "07:08:09.123000"},
	{"TIMESTAMP", &arrow.TimestampType{Unit: arrow.Microsecond}, `"2024-05-06 07:08:09.123456"`, "2024-05-06T07:08:09.123456"},
	{"TIMESTAMP", &arrow.TimestampType{Unit: arrow.Second}, `"2024-05-06 07:08:09"`, "2024-05-06T07:08:09"},
	{"TIMESTAMP(9)", &arrow.TimestampType{Unit: arrow.Nanosecond}, `"2024-05-06 07:08:09.123456789"`, "2024-05-06T07:08:09.123456789"},
	{"TIMESTAMP WITH TIME ZONE", &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"},
		`"2024-05-06T09:08:09.123456+02:00"`, "2024-05-06T07:08:09.123456Z"},
	{"BIGINT[]", arrow.ListOf(arrow.PrimitiveTypes.Int64), "[1,null,3]", ""},
	{"STRUCT<a BIGINT, b VARCHAR>", arrow.StructOf(
		arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		arrow.Field{Name: "b", Type: arrow.BinaryTypes.String, Nullable: true},
	), `{"a":1,"b":"x"}`, ""},
}

func TestEachTypeOfAParameterIsInsertedAndSoIsNull(t *testing.T) {
	connection := connectADBC(t)
	for _, of := range parameterTypes {
		t.Run(of.column+" as "+of.arrow.String(), func(t *testing.T) {
			birds := table(t, "k BIGINT, v "+of.column)
			rows := fmt.Sprintf(`[{"k": 1, "v": %s}, {"k": 2, "v": null}]`, of.json)
			withStatement(t, connection, "INSERT INTO "+birds+" VALUES (?, ?)", func(s adbc.Statement) {
				equal(t, executeWith(t, s, batch(t, rows, of.arrow)), int64(2))
			})
			want := of.text
			if want == "" && of.json != `""` {
				want = of.json
			}
			equal(t, query(t, connection, "SELECT v FROM "+birds+" ORDER BY k"), [][]string{{want}, {"(null)"}})
		})
	}
}

func TestAQueryRunsWithOneRowOfParametersAfterTheOther(t *testing.T) {
	connection := connectADBC(t)
	birds := table(t, "k BIGINT, v VARCHAR")
	run(t, connection, "INSERT INTO "+birds+" VALUES (1, 'kea'), (2, 'kaka')")
	withStatement(t, connection, "SELECT v FROM "+birds+" WHERE k = ? AND v <> ?", func(s adbc.Statement) {
		check(t, s.Prepare(background(t)))
		schema, err := s.GetParameterSchema()
		check(t, err)
		equal(t, schema.Fields(), []arrow.Field{
			{Name: "$1", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
			{Name: "$2", Type: arrow.BinaryTypes.String, Nullable: true},
		})
		for k, want := range map[int][][]string{1: {{"kea"}}, 2: {{"kaka"}}, 3: {}} {
			row := batch(t, fmt.Sprintf(`[{"k": %d, "v": "moa"}]`, k), arrow.BinaryTypes.String)
			check(t, s.Bind(background(t), row))
			reader, _, err := s.ExecuteQuery(background(t))
			check(t, err)
			equal(t, texts(t, reader), want)
		}
	})
}

func TestManyBoundRowsAreOneWrite(t *testing.T) {
	const count = 20_000
	connection := connectADBC(t)
	birds := table(t, "k BIGINT, v VARCHAR")
	insert := "INSERT INTO " + birds + " VALUES (?, ?)"
	withStatement(t, connection, insert, func(s adbc.Statement) {
		equal(t, executeWith(t, s, counted(count)), int64(count))
	})
	equal(t, query(t, connection, "SELECT count(*), sum(k), max(v) FROM "+birds), [][]string{{"20000", "199990000", "bird 9999"}})

	// In several batches, with a wrong row at the end: nothing is kept.
	wrong := batch(t, `[{"k": 1, "v": "2024-13-01"}]`, arrow.BinaryTypes.String)
	days := table(t, "k BIGINT, v DATE")
	withStatement(t, connection, "INSERT INTO "+days+" VALUES (?, ?)", func(s adbc.Statement) {
		right := batch(t, `[{"k": 1, "v": "2024-12-01"}]`, arrow.BinaryTypes.String)
		reader, err := array.NewRecordReader(right.Schema(), []arrow.RecordBatch{right, right, wrong})
		check(t, err)
		check(t, s.Prepare(background(t)))
		check(t, s.BindStream(background(t), reader))
		_, err = s.ExecuteUpdate(background(t))
		says(t, err, "INVALID_ARGUMENT", "2024-13-01")
	})
	equal(t, query(t, connection, "SELECT count(*) FROM "+days), [][]string{{"0"}})
}

func TestThePlainClientBindsParameters(t *testing.T) {
	client := connectClient(t)
	birds := table(t, "k BIGINT, v VARCHAR")
	insert, err := client.Prepare(background(t), "INSERT INTO "+birds+" VALUES (?, ?)")
	check(t, err)
	isUpdate, isKnown := insert.IsUpdate()
	equal(t, []bool{isUpdate, isKnown}, []bool{true, true})
	insert.SetParameters(counted(3))
	count, err := insert.ExecuteUpdate(background(t))
	check(t, err)
	equal(t, count, int64(3))
	check(t, insert.Close(background(t)))

	find, err := client.Prepare(background(t), "SELECT v FROM "+birds+" WHERE k = $1")
	check(t, err)
	equal(t, find.DatasetSchema().Field(0).Name, "v")
	equal(t, find.ParameterSchema().NumFields(), 1)
	for k, want := range map[int]string{0: "bird 0", 2: "bird 2"} {
		row, _, err := array.RecordFromJSON(memory.DefaultAllocator,
			arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64}}, nil),
			strings.NewReader(fmt.Sprintf(`[{"k": %d}]`, k)))
		check(t, err)
		find.SetParameters(row)
		info, err := find.Execute(background(t))
		equal(t, fetch(t, client, info, err), [][]string{{want}})
	}
	check(t, find.Close(background(t)))
}

func TestInsertsAreCounted(t *testing.T) {
	connection := connectADBC(t)
	birds := table(t, "k BIGINT, v VARCHAR")
	equal(t, run(t, connection, "INSERT INTO "+birds+" VALUES (1, 'kea'), (2, 'kaka')"), int64(2))
	equal(t, run(t, connection, "INSERT INTO "+birds+" SELECT k + 2, v FROM "+birds), int64(2))
	equal(t, run(t, connection, "INSERT INTO "+birds+" SELECT * FROM "+birds+" WHERE FALSE"), int64(0))
	count, err := connectClient(t).ExecuteUpdate(background(t), "INSERT INTO "+birds+" VALUES (5, 'moa')")
	check(t, err)
	equal(t, count, int64(1))
	withEachDriver(t, func(t *testing.T, _ string, db *sql.DB) {
		result, err := db.ExecContext(background(t), "INSERT INTO "+birds+" (k) VALUES (1), (2), (3)")
		check(t, err)
		affected, err := result.RowsAffected()
		check(t, err)
		equal(t, affected, int64(3))
		_, err = result.LastInsertId()
		says(t, err, "not supported")
	})
	equal(t, query(t, connection, "SELECT count(*) FROM "+birds), [][]string{{"11"}})
}

func TestAStatementThatWritesRunsOnceAlsoAsAQuery(t *testing.T) {
	birds := table(t, "k BIGINT")
	withEachDriver(t, func(t *testing.T, _ string, db *sql.DB) {
		equal(t, values(t, db, "INSERT INTO "+birds+" VALUES (1), (2)"), [][]any{{int64(2)}})
	})
	equal(t, query(t, connectADBC(t), "SELECT count(*) FROM "+birds), [][]string{{"4"}})
}

// executeWith prepares a statement, binds rows to it, and returns how many rows it has written.
func executeWith(t *testing.T, s adbc.Statement, rows arrow.RecordBatch) int64 {
	t.Helper()
	check(t, s.Prepare(background(t)))
	check(t, s.Bind(background(t), rows))
	count, err := s.ExecuteUpdate(background(t))
	check(t, err)
	return count
}

// batch makes rows of a BIGINT k and a value v from JSON.
func batch(t *testing.T, rows string, of arrow.DataType) arrow.RecordBatch {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "k", Type: arrow.PrimitiveTypes.Int64},
		{Name: "v", Type: of, Nullable: true},
	}, nil)
	made, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	check(t, err)
	return made
}

// counted makes that many rows, from 0 and "bird 0" on.
func counted(count int) arrow.RecordBatch {
	builder := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "k", Type: arrow.PrimitiveTypes.Int64},
		{Name: "v", Type: arrow.BinaryTypes.String},
	}, nil))
	defer builder.Release()
	for k := range count {
		builder.Field(0).(*array.Int64Builder).Append(int64(k))
		builder.Field(1).(*array.StringBuilder).Append(fmt.Sprint("bird ", k))
	}
	return builder.NewRecordBatch()
}
