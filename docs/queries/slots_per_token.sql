-- KV slots that a step asked for, for each token that was kept.
SELECT run, rank, batch, sum(slots) / sum(kept) AS slots_per_token
FROM (
    SELECT *, coalesce(list_sum(accept_lens), CASE WHEN speculation IN ('plain', 'off') THEN batch END) AS kept
    FROM read_parquet('steps/*/*/*.parquet', hive_partitioning = true)
)
WHERE slots IS NOT NULL AND kept > 0 AND mode LIKE '%DECODE%'
GROUP BY ALL
ORDER BY run, rank, batch;
