-- How complete is the wind record of each airport and month, and what was the strongest gust?
SELECT
    origin,
    month,
    count(*) AS hours,
    count(wind_gust) AS hours_with_gust,
    count(*) FILTER (WHERE wind_dir IS NULL OR pressure IS NULL) AS hours_incomplete,
    max(wind_gust) AS strongest_gust,
    min(coalesce(wind_gust, wind_speed)) AS calmest
FROM weather
GROUP BY origin, month
ORDER BY origin, month
