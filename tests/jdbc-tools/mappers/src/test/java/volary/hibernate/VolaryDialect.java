package volary.hibernate;

import org.hibernate.dialect.DatabaseVersion;
import org.hibernate.dialect.PostgreSQLDialect;
import org.hibernate.dialect.sequence.NoSequenceSupport;
import org.hibernate.dialect.sequence.SequenceSupport;
import org.hibernate.engine.jdbc.dialect.spi.DialectResolutionInfo;
import org.hibernate.sql.ast.SqlAstTranslatorFactory;
import org.hibernate.sql.ast.spi.StandardSqlAstTranslatorFactory;

/** The dialect of docs/clients/hibernate.md: that of PostgreSQL, without what Volary has not. */
public class VolaryDialect extends PostgreSQLDialect {
  /** Makes a dialect. The release of the server does not matter. */
  public VolaryDialect(DialectResolutionInfo server) {
    super(DatabaseVersion.make(14));
  }

  @Override
  public SequenceSupport getSequenceSupport() {
    return NoSequenceSupport.INSTANCE;
  }

  @Override
  public String getQuerySequencesString() {
    return null;
  }

  @Override
  public String getBeforeDropStatement() {
    return null;
  }

  @Override
  public boolean supportsAlterColumnType() {
    return false;
  }

  @Override
  public SqlAstTranslatorFactory getSqlAstTranslatorFactory() {
    return new StandardSqlAstTranslatorFactory();
  }
}
