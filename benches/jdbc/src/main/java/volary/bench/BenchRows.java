package volary.bench;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.SplittableRandom;

/** The rows that both databases have: numbers from 1 on, each with a text of its own. */
final class BenchRows {
  static final String TABLE = "bench_rows";
  static final String COLUMNS = "(id BIGINT NOT NULL, payload VARCHAR(200) NOT NULL)";
  /** Of a text, which has one byte for each character. */
  static final int PAYLOAD_BYTES = 200;

  private static final String LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  private static final int BITS_PER_LETTER = 6;

  private BenchRows() {}

  /**
   * Asks for the first ones. The number is no parameter: the driver of Flight SQL would send it in a call of its own, and spins until it
   * may, which has nothing to do with rows.
   */
  static String query(int rows) {
    return "SELECT id, payload FROM " + TABLE + " WHERE id <= " + rows;
  }

  /** Writes them as CSV without a header: the same ones each time, of letters by chance, so that they do not compress well. */
  static void write(Path path, int rows) throws IOException {
    SplittableRandom random = new SplittableRandom(1);
    try (BufferedWriter lines = Files.newBufferedWriter(path, StandardCharsets.US_ASCII)) {
      for (int id = 1; id <= rows; id++) {
        lines.append(Integer.toString(id)).append(',').append(payload(random)).append('\n');
      }
    }
  }

  private static CharSequence payload(SplittableRandom random) {
    StringBuilder letters = new StringBuilder(PAYLOAD_BYTES);
    long bits = 0;
    for (int place = 0, left = 0; place < PAYLOAD_BYTES; place++, left--) {
      if (left == 0) {
        bits = random.nextLong();
        left = Long.SIZE / BITS_PER_LETTER;
      }
      letters.append(LETTERS.charAt((int) bits & (LETTERS.length() - 1)));
      bits >>>= BITS_PER_LETTER;
    }
    return letters;
  }
}
