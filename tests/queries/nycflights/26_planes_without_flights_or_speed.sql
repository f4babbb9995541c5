-- How many planes of each engine type are there, how many have a known cruising speed, and how many never flew in summer?
SELECT
    p.engine,
    count(*) AS planes,
    count(p.speed) AS with_speed,
    count(*) - count(s.tailnum) AS not_in_summer
FROM planes p
LEFT JOIN (
    SELECT DISTINCT tailnum
    FROM flights
    WHERE time_hour BETWEEN TIMESTAMP '2013-06-21T00:00:00' AND TIMESTAMP '2013-09-22T23:59:59'
) AS s ON s.tailnum = p.tailnum
GROUP BY p.engine
ORDER BY p.engine
