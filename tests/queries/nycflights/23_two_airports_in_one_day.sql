-- In each month, how many planes left from two different New York airports on the same day?
SELECT
    f.month,
    count(*) AS plane_days,
    count(DISTINCT f.tailnum) AS planes
FROM (
    SELECT tailnum, month, day
    FROM flights
    WHERE tailnum IS NOT NULL
    GROUP BY tailnum, month, day
    HAVING count(DISTINCT origin) > 1
) AS f
GROUP BY f.month
ORDER BY f.month
