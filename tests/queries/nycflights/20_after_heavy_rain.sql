-- How late did flights leave in the three hours after an hour with half an inch of rain?
SELECT
    w.origin,
    w.time_hour AS rain,
    max(w.precip) AS inches,
    count(*) AS flights,
    count(f.dep_time) AS departed,
    median(CAST(f.dep_delay AS DOUBLE)) AS median_delay
FROM weather w
JOIN flights f
    ON f.origin = w.origin
    AND f.time_hour > w.time_hour
    AND f.time_hour <= w.time_hour + INTERVAL '3 hours'
WHERE w.precip >= 0.5
GROUP BY w.origin, w.time_hour
ORDER BY w.origin, w.time_hour
