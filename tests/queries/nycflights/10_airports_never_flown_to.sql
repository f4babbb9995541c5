-- In which time zones are the airports that no flight from New York went to, and how many?
SELECT a.tzone, count(*) AS airports, min(a.name) AS first_name, max(a.alt) AS highest
FROM airports a
WHERE NOT EXISTS (SELECT 1 FROM flights f WHERE f.dest = a.faa)
GROUP BY a.tzone
ORDER BY airports DESC, a.tzone NULLS LAST
