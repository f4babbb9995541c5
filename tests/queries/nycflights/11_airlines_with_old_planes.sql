-- Which airlines flew planes built before 1970?
SELECT a.carrier, a.name
FROM airlines a
WHERE a.carrier IN (
    SELECT f.carrier
    FROM flights f
    JOIN planes p ON p.tailnum = f.tailnum
    WHERE p.year < 1970
)
ORDER BY a.carrier
