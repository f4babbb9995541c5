-- Which 15 planes stayed away from New York longest between two of their departures, and for how many hours?
WITH departures AS (
    SELECT
        tailnum,
        time_hour,
        lag(time_hour) OVER (PARTITION BY tailnum ORDER BY time_hour) AS previous
    FROM flights
    WHERE tailnum IS NOT NULL AND dep_time IS NOT NULL
), gaps AS (
    SELECT
        tailnum,
        max(date_part('epoch', time_hour) - date_part('epoch', previous)) / 3600 AS hours
    FROM departures
    WHERE previous IS NOT NULL
    GROUP BY tailnum
)
SELECT tailnum, hours
FROM gaps
ORDER BY hours DESC, tailnum
LIMIT 15
