package volary.bench;

/** The way in which a client reads the rows of a result. */
public enum Mode {
  /** All rows are in memory before the first one is processed. */
  AT_ONCE("at once"),
  /** Each row is processed as it comes. */
  ROW_BY_ROW("row by row");

  private final String label;

  Mode(String label) {
    this.label = label;
  }

  String label() {
    return label;
  }
}
