package volary.bench;

/** What processes rows. */
interface RowConsumer {
  void accept(Row row);
}
