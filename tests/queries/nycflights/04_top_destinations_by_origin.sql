-- What are the three most popular destinations from each of the three airports, with their names where they are known?
WITH counted AS (
    SELECT origin, dest, count(*) AS flights
    FROM flights
    GROUP BY origin, dest
), ranked AS (
    SELECT origin, dest, flights, rank() OVER (PARTITION BY origin ORDER BY flights DESC, dest) AS place
    FROM counted
)
SELECT r.origin, r.place, r.dest, a.name, r.flights
FROM ranked r
LEFT JOIN airports a ON a.faa = r.dest
WHERE r.place <= 3
ORDER BY r.origin, r.place
