package volary.mybatis;

import java.sql.CallableStatement;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.time.LocalDateTime;
import org.apache.ibatis.type.BaseTypeHandler;
import org.apache.ibatis.type.JdbcType;

/** Sets a timestamp as java.sql.Timestamp: the driver takes no LocalDateTime, and its getObject fails for a NULL. */
public final class LocalDateTimeHandler extends BaseTypeHandler<LocalDateTime> {
  @Override
  public void setNonNullParameter(PreparedStatement statement, int index, LocalDateTime value, JdbcType type) throws SQLException {
    statement.setTimestamp(index, Timestamp.valueOf(value));
  }

  @Override
  public LocalDateTime getNullableResult(ResultSet rows, String column) throws SQLException {
    return local(rows.getTimestamp(column));
  }

  @Override
  public LocalDateTime getNullableResult(ResultSet rows, int index) throws SQLException {
    return local(rows.getTimestamp(index));
  }

  @Override
  public LocalDateTime getNullableResult(CallableStatement call, int index) throws SQLException {
    return local(call.getTimestamp(index));
  }

  private static LocalDateTime local(Timestamp value) {
    return value == null ? null : value.toLocalDateTime();
  }
}
