package volary.hibernate;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.EnumType;
import jakarta.persistence.Enumerated;
import jakarta.persistence.Id;
import jakarta.persistence.OneToMany;
import jakarta.persistence.Table;
import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.List;

/** An entity whose table exists. Its keys are assigned. */
@Entity
@Table(name = "birds_of_hibernate", options = "WITH (shard_key = 'k', shards = 8)")
public class Bird {
  /** A column of text. */
  public enum Diet {
    SEEDS,
    EVERYTHING
  }

  @Id public Long k;
  public String name;

  @Column(precision = 8, scale = 3)
  public BigDecimal weight;

  public LocalDate hatched;
  public LocalDateTime seen;
  public byte[] photo;
  public Boolean alive;

  @Enumerated(EnumType.STRING)
  public Diet diet;

  @OneToMany(mappedBy = "bird")
  public List<Sighting> sightings = new ArrayList<>();

  /** Makes the bird that Hibernate fills. */
  protected Bird() {}

  /** Makes a bird of which only the key and the name are known. */
  Bird(long k, String name) {
    this.k = k;
    this.name = name;
  }

  /** Returns the name, also of a bird that Hibernate has not read yet. */
  public String getName() {
    return name;
  }

  /** Returns the sightings, also of a bird that Hibernate has not read yet. */
  public List<Sighting> getSightings() {
    return sightings;
  }
}
