-- How did the seven-day moving average of departure delay go at each airport in July? (Days of UTC.)
WITH daily AS (
    SELECT
        origin,
        date_trunc('day', time_hour) AS day,
        sum(dep_delay) AS delay,
        count(dep_delay) AS departures
    FROM flights
    GROUP BY origin, date_trunc('day', time_hour)
), smoothed AS (
    SELECT
        origin,
        day,
        sum(delay) OVER seven_days AS delay,
        sum(departures) OVER seven_days AS departures
    FROM daily
    WINDOW seven_days AS (PARTITION BY origin ORDER BY day ROWS BETWEEN 6 PRECEDING AND CURRENT ROW)
)
SELECT origin, day, CAST(delay AS DOUBLE) / departures AS mean_delay
FROM smoothed
WHERE day >= TIMESTAMP '2013-07-01T00:00:00' AND day < TIMESTAMP '2013-08-01T00:00:00'
ORDER BY origin, day
