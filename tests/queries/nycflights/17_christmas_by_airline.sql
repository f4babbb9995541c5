-- How many flights did each airline have on Christmas Day, with those airlines that had none?
SELECT a.carrier, a.name, count(f.flight) AS flights, sum(f.distance) AS miles
FROM airlines a
LEFT JOIN flights f ON f.carrier = a.carrier AND f.month = 12 AND f.day = 25
GROUP BY a.carrier, a.name
ORDER BY flights DESC, a.carrier
