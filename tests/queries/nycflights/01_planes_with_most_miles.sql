-- Which ten planes flew the most miles, and what are they?
SELECT
    f.tailnum,
    p.manufacturer,
    p.model,
    p.year,
    count(*) AS flights,
    sum(f.distance) AS miles
FROM flights f
JOIN planes p ON p.tailnum = f.tailnum
WHERE f.air_time IS NOT NULL
GROUP BY f.tailnum, p.manufacturer, p.model, p.year
ORDER BY miles DESC, f.tailnum
LIMIT 10
