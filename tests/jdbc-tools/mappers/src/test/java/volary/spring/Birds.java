package volary.spring;

import java.math.BigDecimal;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.springframework.data.domain.Limit;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.Pageable;
import org.springframework.data.domain.Slice;
import org.springframework.data.jdbc.repository.query.Query;
import org.springframework.data.repository.CrudRepository;
import org.springframework.data.repository.PagingAndSortingRepository;
import org.springframework.data.repository.query.Param;

/** A repository with derived and written queries. */
interface Birds extends CrudRepository<Bird, Long>, PagingAndSortingRepository<Bird, Long> {
  Optional<Bird> findByName(String name);

  List<Bird> findByNameStartingWithOrderByK(String start);

  List<Bird> findByNameContainingIgnoreCase(String part);

  List<Bird> findByAliveTrueAndKBetween(long least, long most);

  List<Bird> findByKInAndNameIsNotNullOrderByKDesc(List<Long> keys);

  List<Bird> findByWeightGreaterThan(BigDecimal weight);

  List<Bird> findByDiet(Bird.Diet diet);

  Page<Bird> findByKGreaterThan(long key, Pageable page);

  Slice<Bird> findSliceByKGreaterThan(long key, Pageable page);

  List<Bird> findTop2ByOrderByKDesc();

  List<Bird> findByNameIsNotNullOrderByK(Limit limit);

  long countByNameIsNull();

  boolean existsByName(String name);

  Stream<Bird> streamByKGreaterThan(long key);

  @Query("SELECT name FROM birds_of_spring WHERE k IN (:keys) ORDER BY name")
  List<String> names(@Param("keys") List<Long> keys);

  @Query("SELECT alive, count(*) AS birds, sum(weight) AS weight FROM birds_of_spring GROUP BY alive ORDER BY alive NULLS LAST")
  List<Group> groups();

  @Query("SELECT k FROM birds_of_spring WHERE (:name IS NULL OR name = :name) ORDER BY k")
  List<Long> keysOf(@Param("name") String name);

  @Query("SELECT k FROM birds_of_spring WHERE (:key IS NULL OR k = :key) ORDER BY k")
  List<Long> keysLike(@Param("key") Long key);

  @Query("SELECT k FROM birds_of_spring WHERE (CAST(:key AS BIGINT) IS NULL OR k = :key) ORDER BY k")
  List<Long> keysLikeTyped(@Param("key") Long key);

  /** A row of an aggregate. */
  record Group(Boolean alive, long birds, BigDecimal weight) {}
}
