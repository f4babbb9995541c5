package volary

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow/flight"
)

func TestAPartitionIsReadOnAnotherConnectionAsOftenAsOneLikes(t *testing.T) {
	connection := connectADBC(t)
	birds := table(t, "k BIGINT")
	run(t, connection, "INSERT INTO "+birds+" VALUES (1), (2), (3)")
	withStatement(t, connection, "SELECT k FROM "+birds+" ORDER BY k", func(s adbc.Statement) {
		schema, partitions, affected, err := s.ExecutePartitions(background(t))
		check(t, err)
		equal(t, schema.Field(0).Name, "k")
		equal(t, affected, int64(-1))
		equal(t, partitions.NumPartitions, uint64(1))
		for range 2 {
			reader, err := connectADBC(t).ReadPartition(background(t), partitions.PartitionIDs[0])
			check(t, err)
			equal(t, texts(t, reader), [][]string{{"1"}, {"2"}, {"3"}})
		}
	})
}

func TestAQueryThatIsPolledRunsInTheMeantime(t *testing.T) {
	withStatement(t, connectADBC(t), "SELECT 42 AS answer", func(s adbc.Statement) {
		check(t, s.SetOption(adbc.OptionKeyIncremental, adbc.OptionValueEnabled))
		var rows [][]string
		for {
			_, partitions, _, err := s.ExecutePartitions(background(t))
			check(t, err)
			if partitions.NumPartitions == 0 {
				break
			}
			for _, partition := range partitions.PartitionIDs {
				reader, err := connectADBC(t).ReadPartition(background(t), partition)
				check(t, err)
				rows = append(rows, texts(t, reader)...)
			}
		}
		equal(t, rows, [][]string{{"42"}})
	})
}

func TestAResultOfManyBatchesAndAValueOf15MiB(t *testing.T) {
	connection := connectADBC(t)
	equal(t, len(query(t, connection, "SELECT repeat('x', 200) FROM generate_series(1, 50000)")), 50_000)
	large := "SELECT repeat('x', 15 * 1048576)"
	equal(t, len(query(t, connection, large)[0][0]), 15<<20)
	// The driver takes messages of 16 MiB, unless it is told otherwise.
	larger := connectADBC(t, map[string]string{"adbc.flight.sql.client_option.with_max_msg_size": "100000000"})
	equal(t, len(query(t, larger, "SELECT repeat('x', 20 * 1048576)")[0][0]), 20<<20)
	says(t, failure(t, connection, "SELECT repeat('x', 20 * 1048576)"), "received message larger than max")
}

func TestTheTicketOfAnEndpointIsRenewed(t *testing.T) {
	client := connectClient(t)
	info, err := client.Execute(background(t), "SELECT 42 AS answer")
	check(t, err)
	renewed, err := client.RenewFlightEndpoint(background(t), &flight.RenewFlightEndpointRequest{Endpoint: info.Endpoint[0]})
	check(t, err)
	reader, err := client.DoGet(background(t), renewed.Ticket)
	check(t, err)
	equal(t, texts(t, reader), [][]string{{"42"}})
	if !renewed.ExpirationTime.AsTime().After(info.Endpoint[0].ExpirationTime.AsTime()) {
		t.Fatal("the renewed ticket is valid no longer than the first one")
	}
}

func TestWorkersGiveTheirPartsOfAResultToThoseWhoAskForThem(t *testing.T) {
	const rows = 1000
	birds := table(t, "k BIGINT")
	run(t, connectADBC(t), fmt.Sprint("INSERT INTO ", birds, " SELECT value FROM generate_series(1, ", rows, ") t(value)"))
	direct := connectADBC(t, map[string]string{"adbc.flight.sql.rpc.call_header.volary-direct-results": "on"})
	statement := "SELECT k FROM " + birds
	// The gateway knows the addresses of the workers soon after it has started.
	until(t, "there is a part of each worker", func() bool {
		var parts uint64
		withStatement(t, direct, statement, func(s adbc.Statement) {
			_, partitions, _, err := s.ExecutePartitions(background(t))
			check(t, err)
			parts = partitions.NumPartitions
		})
		return parts == 3
	})
	equal(t, len(query(t, direct, statement)), rows)
	// arrow-go's driver does not go to the workers: it fetches all parts from the gateway.
	equal(t, len(values(t, openSQL(t, overArrowGo, dsn(overArrowGo, unsecured)+"?volary-direct-results=on"), statement)), rows)
}
