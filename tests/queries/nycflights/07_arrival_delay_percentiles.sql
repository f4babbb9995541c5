-- What are the median, the 90th and the 99th percentile of arrival delay for each airline?
SELECT
    carrier,
    count(arr_delay) AS arrivals,
    median(arr_delay) AS median,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY CAST(arr_delay AS DOUBLE)) AS p90,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(arr_delay AS DOUBLE)) AS p99
FROM flights
GROUP BY carrier
ORDER BY carrier
