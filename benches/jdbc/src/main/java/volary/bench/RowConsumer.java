package volary.bench;

/** Processes rows. */
interface RowConsumer {
  void accept(Row row);
}
