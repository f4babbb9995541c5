-- Which planes of more than 300 seats came to New York, when first, and where did they fly then?
WITH numbered AS (
    SELECT
        tailnum,
        time_hour,
        origin,
        dest,
        row_number() OVER (PARTITION BY tailnum ORDER BY time_hour, sched_dep_time, flight, origin) AS turn,
        count(*) OVER (PARTITION BY tailnum) AS flights
    FROM flights
)
SELECT p.tailnum, p.model, p.seats, n.time_hour, n.origin, n.dest, n.flights
FROM planes p
JOIN numbered n ON n.tailnum = p.tailnum AND n.turn = 1
WHERE p.seats > 300
ORDER BY n.time_hour, p.tailnum
