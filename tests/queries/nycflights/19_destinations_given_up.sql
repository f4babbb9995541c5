-- Which airlines served a destination in the first half of the year and no longer in the second?
SELECT DISTINCT carrier, dest FROM flights WHERE month <= 6
EXCEPT
SELECT DISTINCT carrier, dest FROM flights WHERE month > 6
ORDER BY carrier, dest
