package volary

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
)

// listed is a catalog in the answer of GetObjects. What is not asked for is missing.
type listed struct {
	Name    string `json:"catalog_name"`
	Schemas []struct {
		Name   string `json:"db_schema_name"`
		Tables []struct {
			Name    string `json:"table_name"`
			Type    string `json:"table_type"`
			Columns []struct {
				Name    string `json:"column_name"`
				Ordinal int    `json:"ordinal_position"`
				Type    string `json:"xdbc_type_name"`
			} `json:"table_columns"`
			Constraints []any `json:"table_constraints"`
		} `json:"db_schema_tables"`
	} `json:"catalog_db_schemas"`
}

func objects(t *testing.T, reader array.RecordReader, err error) []listed {
	t.Helper()
	check(t, err)
	defer reader.Release()
	var all []listed
	for reader.Next() {
		text, err := json.Marshal(reader.RecordBatch())
		check(t, err)
		var some []listed
		check(t, json.Unmarshal(text, &some))
		all = append(all, some...)
	}
	check(t, reader.Err())
	return all
}

func TestGetObjectsListsToEveryDepth(t *testing.T) {
	connection := connectADBC(t)
	birds := table(t, "k BIGINT NOT NULL, name VARCHAR, price DECIMAL(8, 3)")
	public := "public"

	catalogs, err := connection.GetObjects(background(t), adbc.ObjectDepthCatalogs, nil, nil, nil, nil, nil)
	equal(t, objects(t, catalogs, err), []listed{{Name: "volary"}})

	schemas, err := connection.GetObjects(background(t), adbc.ObjectDepthDBSchemas, nil, nil, nil, nil, nil)
	var names []string
	for _, schema := range objects(t, schemas, err)[0].Schemas {
		names = append(names, schema.Name)
	}
	for _, name := range []string{"public", "system", "information_schema"} {
		if !slices.Contains(names, name) {
			t.Fatalf("there is no schema %s among %v", name, names)
		}
	}

	tables, err := connection.GetObjects(background(t), adbc.ObjectDepthTables, nil, &public, &birds, nil, nil)
	table := objects(t, tables, err)[0].Schemas[0].Tables[0]
	equal(t, []string{table.Name, table.Type}, []string{birds, "TABLE"})
	equal(t, len(table.Columns), 0)

	columns, err := connection.GetObjects(background(t), adbc.ObjectDepthAll, nil, nil, &birds, nil, []string{"TABLE", "VIEW"})
	var got []string
	for _, schema := range objects(t, columns, err)[0].Schemas {
		for _, table := range schema.Tables {
			for _, column := range table.Columns {
				text, err := json.Marshal(column)
				check(t, err)
				got = append(got, string(text))
			}
		}
	}
	equal(t, got, []string{
		`{"column_name":"k","ordinal_position":1,"xdbc_type_name":"BIGINT"}`,
		`{"column_name":"name","ordinal_position":2,"xdbc_type_name":"VARCHAR"}`,
		`{"column_name":"price","ordinal_position":3,"xdbc_type_name":"DECIMAL(8, 3)"}`,
	})
}

func TestGetObjectsFilters(t *testing.T) {
	connection := connectADBC(t)
	birds := table(t, "k BIGINT, name VARCHAR")
	count := func(pattern string, column *string, types ...string) (tables, columns int) {
		t.Helper()
		reader, err := connection.GetObjects(background(t), adbc.ObjectDepthColumns, nil, nil, &pattern, column, types)
		for _, catalog := range objects(t, reader, err) {
			for _, schema := range catalog.Schemas {
				tables += len(schema.Tables)
				for _, table := range schema.Tables {
					columns += len(table.Columns)
				}
			}
		}
		return tables, columns
	}
	name, other := "na%", "VIEW"
	for _, of := range []struct {
		pattern         string
		column          *string
		types           []string
		tables, columns int
	}{
		{birds, nil, nil, 1, 2},
		{birds, &name, nil, 1, 1},
		{strings.Replace(birds, "bird", "b%", 1), nil, []string{"TABLE"}, 1, 2},
		{birds, nil, []string{other}, 0, 0},
		{"no_such_table", nil, nil, 0, 0},
	} {
		tables, columns := count(of.pattern, of.column, of.types...)
		equal(t, []int{tables, columns}, []int{of.tables, of.columns})
	}
}

func TestTheSchemaOfATableIsToldAndSoAreTheTypesOfTables(t *testing.T) {
	connection := connectADBC(t)
	birds := table(t, "k BIGINT NOT NULL, at TIMESTAMP WITH TIME ZONE, many VARCHAR[]")
	schema, err := connection.GetTableSchema(background(t), nil, nil, birds)
	check(t, err)
	var got []string
	for _, field := range schema.Fields() {
		nullable := ""
		if field.Nullable {
			nullable = " NULL"
		}
		got = append(got, field.Name+" "+field.Type.String()+nullable)
	}
	equal(t, got, []string{"k int64", "at timestamp[us, tz=UTC] NULL", "many list<item: utf8, nullable> NULL"})
	_, err = connection.GetTableSchema(background(t), nil, nil, "no_such_table")
	equal(t, codeOf(t, err), adbc.StatusNotFound)

	types, err := connection.GetTableTypes(background(t))
	check(t, err)
	equal(t, texts(t, types), [][]string{{"LOCAL TEMPORARY"}, {"REFERENCE TABLE"}, {"SYSTEM TABLE"}, {"TABLE"}, {"VIEW"}})
}

func TestTheSchemaOfAQueryIsToldWithoutRunningIt(t *testing.T) {
	withStatement(t, connectADBC(t), "SELECT 1 / 0 AS n", func(s adbc.Statement) {
		schema, err := s.(adbc.StatementExecuteSchema).ExecuteSchema(background(t))
		check(t, err)
		metadata := arrow.NewMetadata([]string{"ARROW:FLIGHT:SQL:PRECISION", "ARROW:FLIGHT:SQL:TYPE_NAME"}, []string{"19", "BIGINT"})
		equal(t, schema.Fields(), []arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64, Metadata: metadata}})
	})
}

func TestTheServerSaysWhoItIs(t *testing.T) {
	connection := connectADBC(t)
	info, err := adbc.GetDriverInfo(background(t), connection)
	check(t, err)
	equal(t, info.VendorName, "Volary")
	reader, err := connection.GetInfo(background(t), []adbc.InfoCode{adbc.InfoVendorName, adbc.InfoVendorSql})
	check(t, err)
	equal(t, len(texts(t, reader)), 2)
	// The driver has no statistics of tables, for any server.
	_, has := connection.(adbc.ConnectionGetStatistics)
	equal(t, has, false)
}

func TestThePlainClientAsksForMetadata(t *testing.T) {
	client := connectClient(t)
	nests := table(t, "k BIGINT PRIMARY KEY")
	birds := table(t, "k BIGINT PRIMARY KEY, nest BIGINT REFERENCES "+nests+" (k)")
	public := "public"

	info, err := client.GetCatalogs(background(t))
	equal(t, fetch(t, client, info, err), [][]string{{"volary"}})
	info, err = client.GetDBSchemas(background(t), &flightsql.GetDBSchemasOpts{DbSchemaFilterPattern: &public})
	equal(t, fetch(t, client, info, err), [][]string{{"volary", "public"}})
	info, err = client.GetTables(background(t), &flightsql.GetTablesOpts{TableNameFilterPattern: &birds})
	equal(t, fetch(t, client, info, err), [][]string{{"volary", "public", birds, "TABLE"}})
	info, err = client.GetTableTypes(background(t))
	equal(t, fetch(t, client, info, err), [][]string{{"LOCAL TEMPORARY"}, {"REFERENCE TABLE"}, {"SYSTEM TABLE"}, {"TABLE"}, {"VIEW"}})

	its := flightsql.TableRef{DBSchema: &public, Table: birds}
	of := flightsql.TableRef{DBSchema: &public, Table: nests}
	info, err = client.GetPrimaryKeys(background(t), its)
	equal(t, fetch(t, client, info, err)[0][:4], []string{"volary", "public", birds, "k"})
	for name, ask := range map[string]func() [][]string{
		"imported": func() [][]string {
			info, err := client.GetImportedKeys(background(t), its)
			return fetch(t, client, info, err)
		},
		"exported": func() [][]string {
			info, err := client.GetExportedKeys(background(t), of)
			return fetch(t, client, info, err)
		},
		"cross reference": func() [][]string {
			info, err := client.GetCrossReference(background(t), of, its)
			return fetch(t, client, info, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			equal(t, ask()[0][:8], []string{"volary", "public", nests, "k", "volary", "public", birds, "nest"})
		})
	}
	date := int32(91)
	info, err = client.GetXdbcTypeInfo(background(t), &date)
	equal(t, fetch(t, client, info, err)[0][0], "DATE")
	info, err = client.GetSqlInfo(background(t), []flightsql.SqlInfo{flightsql.SqlInfoFlightSqlServerName})
	equal(t, fetch(t, client, info, err), [][]string{{"0", `[0,"Volary"]`}})
}
