package volary.mybatis;

import java.util.List;
import java.util.Map;
import org.apache.ibatis.annotations.Insert;
import org.apache.ibatis.annotations.Options;
import org.apache.ibatis.annotations.Param;
import org.apache.ibatis.annotations.Select;
import org.apache.ibatis.annotations.Update;
import org.apache.ibatis.cursor.Cursor;
import org.apache.ibatis.mapping.StatementType;

/** A mapper with annotations. Statements with dynamic SQL are in BirdMapper.xml. */
public interface BirdMapper {
  @Update(
      "CREATE TABLE birds_of_mybatis (k BIGINT NOT NULL, name VARCHAR, weight DECIMAL(8, 3), hatched DATE, seen TIMESTAMP, photo BYTEA, alive BOOLEAN)"
          + " WITH (shard_key = 'k', shards = 8)")
  @Options(statementType = StatementType.STATEMENT)
  void create();

  @Update("DROP TABLE IF EXISTS birds_of_mybatis")
  void drop();

  @Insert("INSERT INTO birds_of_mybatis VALUES (#{k}, #{name}, #{weight}, #{hatched}, #{seen}, #{photo}, #{alive})")
  int insert(Bird bird);

  @Insert("INSERT INTO birds_of_mybatis (k, name) VALUES (${k}, '${name}')")
  @Options(statementType = StatementType.STATEMENT)
  int insertText(@Param("k") long k, @Param("name") String name);

  @Select("SELECT * FROM birds_of_mybatis WHERE k = #{k}")
  Bird find(long k);

  @Select("SELECT * FROM birds_of_mybatis ORDER BY k")
  List<Bird> all();

  @Select("SELECT * FROM birds_of_mybatis ORDER BY k")
  Cursor<Bird> stream();

  @Select("SELECT k, name FROM birds_of_mybatis ORDER BY k LIMIT #{limit} OFFSET #{offset}")
  List<Map<String, Object>> page(@Param("limit") int limit, @Param("offset") int offset);

  @Select("SELECT k FROM birds_of_mybatis WHERE name LIKE concat('%', #{part}, '%') ORDER BY k")
  List<Long> containing(String part);

  @Select(
      "SELECT a.name AS one, b.name AS other, count(*) AS n, sum(a.weight) AS weight FROM birds_of_mybatis a JOIN birds_of_mybatis b ON a.k < b.k"
          + " WHERE b.weight IS NOT NULL GROUP BY a.name, b.name ORDER BY a.name, b.name")
  List<Map<String, Object>> pairs();

  @Update("UPDATE birds_of_mybatis SET name = #{name} WHERE k = #{k}")
  int rename(@Param("k") long k, @Param("name") String name);

  List<Bird> search(@Param("name") String name, @Param("keys") List<Long> keys, @Param("alive") Boolean alive, @Param("order") String order);

  int insertAll(@Param("birds") List<Bird> birds);
}
