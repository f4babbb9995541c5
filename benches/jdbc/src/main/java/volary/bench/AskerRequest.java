package volary.bench;

/**
 * A line of the input of {@link Asker}. benches/python/askers.py describes it.
 *
 * @param address {@code host:port} of the server
 * @param clients the number of clients that ask at the same time
 * @param requests the number of requests of each client
 * @param sql the query, with {@code ?} in place of its key
 * @param form {@link #LITERAL}, or {@link #PARAMETER}
 * @param first the number of the first request
 * @param keys the largest key
 * @param rows the number of rows of the answer
 * @param check whether the first value of the answer is the key
 */
record AskerRequest(
    String address, int clients, int requests, String sql, String form, long first, long keys, int rows, boolean check) {
  /** The key is part of the text. */
  static final String LITERAL = "literal";

  /** The key is a parameter. */
  static final String PARAMETER = "parameter";

  // Multiplying by it spreads consecutive numbers over all keys. The askers of other languages use the same.
  private static final long STEP = 7919;

  /** Returns the key of a request of a client. Both are counted from 0. */
  long key(int client, int request) {
    return 1 + (first + (long) client * requests + request) * STEP % keys;
  }

  /** Returns the text for a key. */
  String text(long key) {
    return form.equals(LITERAL) ? sql.replace("?", Long.toString(key)) : sql;
  }

  /** Returns whether the text has a parameter. */
  boolean hasParameter() {
    return form.equals(PARAMETER) && sql.contains("?");
  }
}
