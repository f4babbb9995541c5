-- Week by week: the temperature at each airport beside the number of departures there.
SELECT t.origin, t.week, t.mean_temp, d.departures
FROM (
    SELECT origin, date_trunc('week', time_hour) AS week, avg(temp) AS mean_temp
    FROM weather
    GROUP BY origin, date_trunc('week', time_hour)
) AS t
FULL JOIN (
    SELECT origin, date_trunc('week', time_hour) AS week, count(dep_time) AS departures
    FROM flights
    GROUP BY origin, date_trunc('week', time_hour)
) AS d ON d.origin = t.origin AND d.week = t.week
ORDER BY coalesce(t.origin, d.origin), coalesce(t.week, d.week)
