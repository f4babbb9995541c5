package volary.mybatis;

import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.LocalDateTime;

/** A row of the table of birds. */
public record Bird(Long k, String name, BigDecimal weight, LocalDate hatched, LocalDateTime seen, byte[] photo, Boolean alive) {
  /** Makes a bird of which only the key and the name are known. */
  static Bird named(long k, String name) {
    return new Bird(k, name, null, null, null, null, null);
  }
}
