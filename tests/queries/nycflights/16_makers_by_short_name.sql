-- Who made the planes, when the spellings of one maker are put together, and how many seats do they have?
WITH makers AS (
    SELECT
        upper(split_part(trim(manufacturer), ' ', 1)) AS maker,
        concat(left(model, 3), '…') AS family,
        seats,
        year
    FROM planes
)
SELECT
    maker,
    count(*) AS planes,
    count(DISTINCT family) AS families,
    sum(seats) AS seats,
    min(year) AS oldest,
    count(*) FILTER (WHERE year IS NULL) AS of_unknown_age
FROM makers
GROUP BY maker
HAVING count(*) >= 2
ORDER BY planes DESC, maker
