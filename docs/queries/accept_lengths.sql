-- How often a request kept so many tokens of a verify, the bonus token included, by run, rank and batch size.
SELECT run, rank, batch, length, count(*) AS times
FROM (
    SELECT run, rank, batch, unnest(accept_lens) AS length
    FROM read_parquet('steps/*/*/*.parquet', hive_partitioning = true)
    WHERE accept_lens IS NOT NULL AND mode LIKE '%DECODE%'
)
GROUP BY ALL
ORDER BY run, rank, batch, length;
