-- What share of all flights do the largest airlines have together, counted from the top?
WITH counted AS (
    SELECT carrier, count(*) AS flights
    FROM flights
    GROUP BY carrier
)
SELECT
    carrier,
    flights,
    row_number() OVER (ORDER BY flights DESC, carrier) AS place,
    CAST(sum(flights) OVER (ORDER BY flights DESC, carrier ROWS UNBOUNDED PRECEDING) AS DOUBLE)
        / (SELECT count(*) FROM flights) AS share
FROM counted
ORDER BY place
