-- Which ten planes most often left New York for the same place twice in one day?
SELECT a.tailnum, count(*) AS pairs, min(a.dest) AS first_dest, max(b.dest) AS last_dest
FROM flights a
JOIN flights b
    ON b.tailnum = a.tailnum
    AND b.month = a.month
    AND b.day = a.day
    AND b.dest = a.dest
    AND b.sched_dep_time > a.sched_dep_time
GROUP BY a.tailnum
ORDER BY pairs DESC, a.tailnum
LIMIT 10
