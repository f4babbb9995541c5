-- Where was plane N14228 in January, flight by flight?
SELECT f.time_hour, f.flight, f.origin, f.dest, f.dep_delay, f.arr_delay
FROM flights f
WHERE
    f.tailnum = 'N14228'
    AND f.time_hour >= TIMESTAMP '2013-01-01T05:00:00'
    AND f.time_hour < TIMESTAMP '2013-02-01T05:00:00'
ORDER BY f.time_hour, f.sched_dep_time, f.flight
