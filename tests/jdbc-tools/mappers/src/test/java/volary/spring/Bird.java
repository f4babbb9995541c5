package volary.spring;

import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.LocalDateTime;
import org.springframework.data.annotation.Id;
import org.springframework.data.relational.core.mapping.Table;

/** An aggregate. Its keys are assigned, because Volary generates none. */
@Table("birds_of_spring")
record Bird(@Id Long k, String name, BigDecimal weight, LocalDate hatched, LocalDateTime seen, byte[] photo, Boolean alive, Diet diet) {
  /** A column of text. */
  enum Diet {
    SEEDS,
    EVERYTHING
  }

  /** Makes a bird of which only the key and the name are known. */
  static Bird named(long k, String name) {
    return new Bird(k, name, null, null, null, null, null, null);
  }
}
