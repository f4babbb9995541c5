-- Which routes with more than 1,000 flights arrive 15 or more minutes late on average?
SELECT origin, dest, count(*) AS flights, avg(arr_delay) AS mean_arrival_delay
FROM flights
GROUP BY origin, dest
HAVING count(*) > 1000 AND avg(arr_delay) >= 15
ORDER BY flights DESC, origin, dest
