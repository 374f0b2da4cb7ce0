-- Steps that ranks of a run did not take alike.
SELECT run, step,
       list(DISTINCT mode) AS modes, list(DISTINCT batch) AS batches, list(DISTINCT accept_lens) AS accept_lens
FROM read_parquet('steps/*/*/*.parquet', hive_partitioning = true)
GROUP BY run, step
HAVING count(DISTINCT mode) > 1 OR count(DISTINCT batch) > 1 OR count(DISTINCT accept_lens) > 1
ORDER BY run, step;
