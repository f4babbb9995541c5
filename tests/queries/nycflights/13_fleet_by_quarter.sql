-- How many different planes and destinations did each airline use in each quarter?
SELECT
    carrier,
    date_part('quarter', time_hour) AS quarter,
    count(DISTINCT tailnum) AS planes,
    count(DISTINCT dest) AS destinations,
    count(*) AS flights
FROM flights
GROUP BY carrier, date_part('quarter', time_hour)
ORDER BY carrier, quarter
