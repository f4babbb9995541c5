-- How many flights of each airline were flown by planes that the planes table does not know, or with no tail number at all?
SELECT
    a.name,
    count(*) AS flights,
    count(f.tailnum) AS with_tail_number,
    count(DISTINCT f.tailnum) AS planes
FROM flights f
JOIN airlines a ON a.carrier = f.carrier
WHERE NOT EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum)
GROUP BY a.name
ORDER BY flights DESC, a.name
