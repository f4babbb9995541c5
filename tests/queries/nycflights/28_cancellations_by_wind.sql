-- How many flights were cancelled at which wind speed, in steps of ten miles per hour? (Joined on local date and hour.)
SELECT
    f.origin,
    CAST(floor(w.wind_speed / 10) AS INT) * 10 AS wind_mph,
    count(*) AS flights,
    count(*) FILTER (WHERE f.dep_time IS NULL) AS cancelled
FROM flights f
JOIN weather w
    ON w.origin = f.origin
    AND w.year = f.year
    AND w.month = f.month
    AND w.day = f.day
    AND w.hour = f.hour
GROUP BY f.origin, CAST(floor(w.wind_speed / 10) AS INT) * 10
ORDER BY f.origin, wind_mph NULLS LAST
