-- Which were the five days with the most minutes of departure delay, and the five with the most cancelled flights?
(
    SELECT 'delay' AS measure, month, day, sum(dep_delay) AS amount
    FROM flights
    WHERE dep_delay > 0
    GROUP BY month, day
    ORDER BY amount DESC, month, day
    LIMIT 5
)
UNION ALL
(
    SELECT 'cancelled' AS measure, month, day, count(*) AS amount
    FROM flights
    WHERE dep_time IS NULL
    GROUP BY month, day
    ORDER BY amount DESC, month, day
    LIMIT 5
)
ORDER BY measure, amount DESC, month, day
