package volary.spark;

import java.sql.SQLException;
import java.sql.Types;
import java.util.Set;
import org.apache.spark.sql.jdbc.JdbcDialect;
import org.apache.spark.sql.jdbc.JdbcType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MetadataBuilder;
import scala.Option;

/** The dialect of docs/clients/spark.md, which corrects what the driver says about types and errors. */
public class VolaryDialect extends JdbcDialect {
  private static final long serialVersionUID = 1;

  @Override
  public boolean canHandle(String url) {
    return url.startsWith("jdbc:arrow-flight-sql:");
  }

  /** Reads integers as they are. The driver says that they have no sign, so Spark would read wider types. */
  @Override
  public Option<DataType> getCatalystType(int type, String name, int size, MetadataBuilder metadata) {
    return Option.apply(
        switch (type) {
          case Types.TINYINT -> DataTypes.ByteType;
          case Types.SMALLINT -> DataTypes.ShortType;
          case Types.INTEGER -> DataTypes.IntegerType;
          case Types.BIGINT -> DataTypes.LongType;
          default -> null;
        });
  }

  @Override
  public Option<JdbcType> getJDBCType(DataType type) {
    if (type.equals(DataTypes.ByteType)) {
      return Option.apply(new JdbcType("TINYINT", Types.TINYINT));
    }
    if (type.equals(DataTypes.ShortType)) {
      return Option.apply(new JdbcType("SMALLINT", Types.SMALLINT));
    }
    return Option.empty();
  }

  /** Says whether there is no such table. The driver has no SQLSTATE, which Spark would look at. */
  @Override
  public boolean isObjectNotFoundException(SQLException failure) {
    return failure.getCause() != null && failure.getCause().getMessage().startsWith("NOT_FOUND");
  }

  /** Names the aggregates that Volary may compute for Spark, if a table is read through a catalog. */
  @Override
  public boolean isSupportedFunction(String name) {
    return Set.of("COUNT", "MAX", "MIN", "SUM").contains(name);
  }

  @Override
  public boolean supportsLimit() {
    return true;
  }

  @Override
  public boolean supportsOffset() {
    return true;
  }
}
