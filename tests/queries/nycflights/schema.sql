-- The five tables of nycflights13. A plane and its flights share shard key and shard count, so that their join runs on the
-- workers; 2,512 flights have no tail number and so live in shard 0. Timestamps are UTC, without a time zone, in milliseconds.
CREATE TABLE airlines (
    carrier VARCHAR NOT NULL,
    name VARCHAR NOT NULL
) WITH (reference = true);

CREATE TABLE airports (
    faa VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    lat DOUBLE,
    lon DOUBLE,
    alt BIGINT,
    tz BIGINT,
    dst VARCHAR,
    tzone VARCHAR
) WITH (reference = true);

CREATE TABLE planes (
    tailnum VARCHAR NOT NULL,
    year BIGINT,
    type VARCHAR,
    manufacturer VARCHAR,
    model VARCHAR,
    engines BIGINT,
    seats BIGINT,
    speed BIGINT,
    engine VARCHAR
) WITH (shard_key = 'tailnum', shards = 16);

CREATE TABLE flights (
    year SMALLINT,
    month SMALLINT,
    day SMALLINT,
    dep_time INT,
    sched_dep_time INT,
    dep_delay INT,
    arr_time INT,
    sched_arr_time INT,
    arr_delay INT,
    carrier VARCHAR,
    flight INT,
    tailnum VARCHAR,
    origin VARCHAR,
    dest VARCHAR,
    air_time INT,
    distance INT,
    hour SMALLINT,
    minute SMALLINT,
    time_hour TIMESTAMP(3)
) WITH (shard_key = 'tailnum', shards = 16);

CREATE TABLE weather (
    origin VARCHAR,
    year BIGINT,
    month BIGINT,
    day BIGINT,
    hour BIGINT,
    temp DOUBLE,
    dewp DOUBLE,
    humid DOUBLE,
    wind_dir BIGINT,
    wind_speed DOUBLE,
    wind_gust DOUBLE,
    precip DOUBLE,
    pressure DOUBLE,
    visib DOUBLE,
    time_hour TIMESTAMP(3)
) WITH (shard_key = 'time_hour', shards = 8);
