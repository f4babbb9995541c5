package volary.mybatis;

import java.sql.CallableStatement;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Date;
import java.time.LocalDate;
import org.apache.ibatis.type.BaseTypeHandler;
import org.apache.ibatis.type.JdbcType;

/** Sets a date as java.sql.Date: the driver takes no LocalDate, and its getObject fails for a NULL. */
public final class LocalDateHandler extends BaseTypeHandler<LocalDate> {
  @Override
  public void setNonNullParameter(PreparedStatement statement, int index, LocalDate value, JdbcType type) throws SQLException {
    statement.setDate(index, Date.valueOf(value));
  }

  @Override
  public LocalDate getNullableResult(ResultSet rows, String column) throws SQLException {
    return local(rows.getDate(column));
  }

  @Override
  public LocalDate getNullableResult(ResultSet rows, int index) throws SQLException {
    return local(rows.getDate(index));
  }

  @Override
  public LocalDate getNullableResult(CallableStatement call, int index) throws SQLException {
    return local(call.getDate(index));
  }

  private static LocalDate local(Date value) {
    return value == null ? null : value.toLocalDate();
  }
}
