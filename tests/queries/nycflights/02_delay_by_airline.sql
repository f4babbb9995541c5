-- How punctual is each airline: flights, cancelled flights, mean and worst departure delay?
SELECT
    a.name,
    count(*) AS scheduled,
    count(*) - count(f.dep_time) AS cancelled,
    avg(f.dep_delay) AS mean_delay,
    max(f.dep_delay) AS worst_delay
FROM flights f
JOIN airlines a ON a.carrier = f.carrier
GROUP BY a.name
ORDER BY scheduled DESC, a.name
