-- The shapes of every tensor by batch size, as the page of a run has them.
SELECT run, function, value, dtype, how, batch, list_sort(list(DISTINCT shape)) AS shapes, sum(count) AS times
FROM read_parquet('tensors/*/*.parquet', hive_partitioning = true)
WHERE mode LIKE '%DECODE%'
GROUP BY ALL
ORDER BY run, function, value, batch, dtype, how;
