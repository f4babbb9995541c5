package volary.spring;

import com.zaxxer.hikari.HikariDataSource;
import java.sql.Date;
import java.sql.JDBCType;
import java.sql.Timestamp;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.List;
import javax.sql.DataSource;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.convert.converter.Converter;
import org.springframework.core.env.Environment;
import org.springframework.data.convert.WritingConverter;
import org.springframework.data.jdbc.core.dialect.JdbcDialect;
import org.springframework.data.jdbc.core.dialect.JdbcPostgresDialect;
import org.springframework.data.jdbc.core.mapping.JdbcValue;
import org.springframework.data.jdbc.repository.config.AbstractJdbcConfiguration;
import org.springframework.data.jdbc.repository.config.EnableJdbcRepositories;
import org.springframework.jdbc.core.namedparam.NamedParameterJdbcOperations;
import org.springframework.jdbc.core.namedparam.NamedParameterJdbcTemplate;
import org.springframework.jdbc.support.JdbcTransactionManager;

/** The settings of docs/clients/springdata.md. */
@Configuration
@EnableJdbcRepositories
class Settings extends AbstractJdbcConfiguration {
  @Bean
  DataSource dataSource(Environment environment) {
    HikariDataSource pool = new HikariDataSource();
    pool.setJdbcUrl(environment.getRequiredProperty("volary.url"));
    pool.setMaximumPoolSize(2);
    return pool;
  }

  @Bean
  NamedParameterJdbcOperations operations(DataSource source) {
    return new NamedParameterJdbcTemplate(source);
  }

  @Bean
  JdbcTransactionManager transactionManager(DataSource source) {
    return new JdbcTransactionManager(source);
  }

  /** Names the dialect, which Spring would find by the name of the product. */
  @Override
  @Bean
  public JdbcDialect jdbcDialect(NamedParameterJdbcOperations operations) {
    return JdbcPostgresDialect.INSTANCE;
  }

  @Override
  protected List<?> userConverters() {
    return List.of(new DateWriter(), new TimestampWriter());
  }

  /** Writes a LocalDate as a date. Spring writes a timestamp, which the driver does not take for a DATE. */
  @WritingConverter
  static final class DateWriter implements Converter<LocalDate, JdbcValue> {
    @Override
    public JdbcValue convert(LocalDate date) {
      return JdbcValue.of(Date.valueOf(date), JDBCType.DATE);
    }
  }

  /** Writes a LocalDateTime as a timestamp, because the driver takes no LocalDateTime. */
  @WritingConverter
  static final class TimestampWriter implements Converter<LocalDateTime, JdbcValue> {
    @Override
    public JdbcValue convert(LocalDateTime time) {
      return JdbcValue.of(Timestamp.valueOf(time), JDBCType.TIMESTAMP);
    }
  }
}
