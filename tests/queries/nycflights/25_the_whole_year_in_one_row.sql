-- The whole year in one row: flights, planes, destinations, hours in the air, spread of delays, first and last hour.
SELECT
    count(*) AS flights,
    count(DISTINCT tailnum) AS planes,
    count(DISTINCT dest) AS destinations,
    sum(air_time) / 60 AS hours_in_the_air,
    stddev(dep_delay) AS delay_deviation,
    median(distance) AS median_distance,
    min(time_hour) AS first_hour,
    max(time_hour) AS last_hour
FROM flights
