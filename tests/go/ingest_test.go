package volary

import (
	"errors"
	"fmt"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
)

const (
	create         = adbc.OptionValueIngestModeCreate
	appending      = adbc.OptionValueIngestModeAppend
	replace        = adbc.OptionValueIngestModeReplace
	createOrAppend = adbc.OptionValueIngestModeCreateAppend
)

func TestEveryModeOfIngestion(t *testing.T) {
	connection := connectADBC(t)
	birds := newName("ingested")
	t.Cleanup(func() { run(t, connectADBC(t), "DROP TABLE IF EXISTS "+birds) })
	count := func() string { return query(t, connection, "SELECT count(*) FROM "+birds)[0][0] }

	_, err := ingest(t, connection, birds, appending, counted(3), adbc.IngestStreamOptions{})
	says(t, err, "NOT_FOUND", birds)
	equal(t, codeOf(t, err), adbc.StatusNotFound)
	for _, step := range []struct {
		mode string
		rows int
		then string
	}{{create, 3, "3"}, {appending, 2, "5"}, {replace, 4, "4"}, {createOrAppend, 1, "5"}} {
		written, err := ingest(t, connection, birds, step.mode, counted(step.rows), adbc.IngestStreamOptions{})
		check(t, err)
		equal(t, written, int64(step.rows))
		equal(t, count(), step.then)
	}
	_, err = ingest(t, connection, birds, create, counted(3), adbc.IngestStreamOptions{})
	says(t, err, "ALREADY_EXISTS", birds)
	equal(t, codeOf(t, err), adbc.StatusAlreadyExists)
	equal(t, count(), "5")
	for _, mode := range []string{replace, createOrAppend} {
		run(t, connection, "DROP TABLE "+birds)
		_, err := ingest(t, connection, birds, mode, counted(2), adbc.IngestStreamOptions{})
		check(t, err)
		equal(t, query(t, connection, "SELECT * FROM "+birds+" ORDER BY k"), [][]string{{"0", "bird 0"}, {"1", "bird 1"}})
	}
}

func TestIngestionGoesToTheSchemaThatIsNamed(t *testing.T) {
	connection := connectADBC(t)
	schema := newName("forest")
	run(t, connection, "CREATE SCHEMA "+schema)
	t.Cleanup(func() { run(t, connectADBC(t), "DROP SCHEMA "+schema+" CASCADE") })
	_, err := ingest(t, connection, "trees", create, counted(2), adbc.IngestStreamOptions{Catalog: "volary", DBSchema: schema})
	check(t, err)
	equal(t, query(t, connection, "SELECT count(*) FROM "+schema+".trees"), [][]string{{"2"}})
	for said, options := range map[string]adbc.IngestStreamOptions{
		"there is no schema nowhere": {DBSchema: "nowhere"},
		"there is no catalog other":  {Catalog: "other"},
	} {
		_, err := ingest(t, connection, "trees", create, counted(2), options)
		says(t, err, said)
	}
}

func TestATemporaryTableIsOfItsConnection(t *testing.T) {
	connection := connectADBC(t)
	name := newName("twigs")
	_, err := ingest(t, connection, name, create, counted(2), adbc.IngestStreamOptions{Temporary: true})
	check(t, err)
	equal(t, query(t, connection, "SELECT count(*) FROM pg_temp."+name), [][]string{{"2"}})
	_, err = connectADBC(t).GetTableSchema(background(t), nil, nil, name)
	equal(t, codeOf(t, err), adbc.StatusNotFound)
}

func TestIngestionCreatesATableWithTheShardKeyOfTheHeader(t *testing.T) {
	const header = "adbc.flight.sql.rpc.call_header.volary-ingest-"
	connection := connectADBC(t)
	birds := newName("ingested")
	_, err := ingest(t, connection, birds, create, counted(2),
		adbc.IngestStreamOptions{Extra: map[string]string{header + "shard_key": "k", header + "shards": "3"}})
	check(t, err)
	t.Cleanup(func() { run(t, connectADBC(t), "DROP TABLE "+birds) })
	equal(t, query(t, connection, "SELECT shard_key, shards FROM system.tables WHERE name = '"+birds+"'"), [][]string{{"k", "3"}})
}

func TestAllIngestedTypesComeBack(t *testing.T) {
	connection := connectADBC(t)
	for _, of := range parameterTypes {
		if of.arrow.ID() == arrow.UINT8 || of.arrow.ID() == arrow.LARGE_STRING {
			continue // They come back in a wider type.
		}
		t.Run(of.arrow.String(), func(t *testing.T) {
			birds := newName("ingested")
			rows := batch(t, fmt.Sprintf(`[{"k": 1, "v": %s}, {"k": 2, "v": null}]`, of.json), of.arrow)
			_, err := ingest(t, connection, birds, create, rows, adbc.IngestStreamOptions{})
			check(t, err)
			t.Cleanup(func() { run(t, connectADBC(t), "DROP TABLE "+birds) })
			equal(t, query(t, connection, "SELECT v FROM "+birds+" ORDER BY k"),
				[][]string{{rows.Column(1).ValueStr(0)}, {"(null)"}})
		})
	}
}

func TestAnIngestionThatFailsKeepsNothing(t *testing.T) {
	connection := connectADBC(t)
	birds := table(t, "k BIGINT, v VARCHAR NOT NULL")
	wrong := batch(t, `[{"k": 1, "v": "kea"}, {"k": 2, "v": null}]`, arrow.BinaryTypes.String)
	_, err := ingest(t, connection, birds, appending, wrong, adbc.IngestStreamOptions{})
	says(t, err, "INVALID_ARGUMENT", "column v: a NULL in a column that is NOT NULL")
	lost := errors.New("the disk is gone")
	first := counted(1000)
	breaksOff := array.ReaderFromIter(first.Schema(), func(yield func(arrow.RecordBatch, error) bool) {
		_ = yield(first, nil) && yield(nil, lost)
	})
	_, err = adbc.IngestStream(background(t), connection, breaksOff, birds, appending, adbc.IngestStreamOptions{})
	says(t, err, "the disk is gone")
	equal(t, query(t, connection, "SELECT count(*) FROM "+birds), [][]string{{"0"}})
}

func TestThePlainClientIngests(t *testing.T) {
	client := connectClient(t)
	birds := newName("ingested")
	t.Cleanup(func() { run(t, connectADBC(t), "DROP TABLE "+birds) })
	rows := counted(10)
	reader, err := array.NewRecordReader(rows.Schema(), []arrow.RecordBatch{rows, rows})
	check(t, err)
	defer reader.Release()
	written, err := client.ExecuteIngest(background(t), reader, &flightsql.ExecuteIngestOpts{
		Table: birds,
		TableDefinitionOptions: &flightsql.TableDefinitionOptions{
			IfNotExist: pb.CommandStatementIngest_TableDefinitionOptions_TABLE_NOT_EXIST_OPTION_CREATE,
			IfExists:   pb.CommandStatementIngest_TableDefinitionOptions_TABLE_EXISTS_OPTION_FAIL,
		},
	})
	check(t, err)
	equal(t, written, int64(20))
	info, err := client.Execute(background(t), "SELECT count(*), max(k) FROM "+birds)
	equal(t, fetch(t, client, info, err), [][]string{{"20", "9"}})
}

func ingest(
	t *testing.T, connection adbc.Connection, table, mode string, rows arrow.RecordBatch, options adbc.IngestStreamOptions,
) (int64, error) {
	t.Helper()
	reader, err := array.NewRecordReader(rows.Schema(), []arrow.RecordBatch{rows})
	check(t, err)
	defer reader.Release()
	return adbc.IngestStream(background(t), connection, reader, table, mode, options)
}
