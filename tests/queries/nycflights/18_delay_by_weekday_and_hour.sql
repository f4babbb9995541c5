-- On which weekdays and in which part of the day are departures late by more than half an hour?
SELECT
    date_part('dow', make_date(CAST(year AS INT), CAST(month AS INT), CAST(day AS INT))) AS weekday,
    CASE WHEN hour < 12 THEN 'morning' WHEN hour < 18 THEN 'afternoon' ELSE 'evening' END AS part,
    count(*) AS departures,
    sum(CASE WHEN dep_delay > 30 THEN 1 ELSE 0 END) AS late,
    100.0 * sum(CASE WHEN dep_delay > 30 THEN 1 ELSE 0 END) / count(*) AS percent_late
FROM flights
WHERE dep_delay IS NOT NULL
GROUP BY 1, 2
ORDER BY weekday, part
