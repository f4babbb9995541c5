-- Do flights leave later when visibility is poor? Flights whose hour has no weather record are counted apart.
SELECT
    CASE
        WHEN w.visib IS NULL THEN 'unknown'
        WHEN w.visib < 1 THEN 'under 1 mile'
        WHEN w.visib < 5 THEN '1 to 5 miles'
        WHEN w.visib < 10 THEN '5 to 10 miles'
        ELSE '10 miles'
    END AS visibility,
    count(*) AS flights,
    count(f.dep_delay) AS departures,
    avg(f.dep_delay) AS mean_delay
FROM flights f
LEFT JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour
GROUP BY 1
ORDER BY visibility
