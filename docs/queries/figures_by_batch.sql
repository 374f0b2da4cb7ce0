-- Period, tokens a second and acceptance by run, rank, mode and batch size, as `sgltrace show` has them.
-- A period counts where a step of the same mode followed, in no window; one-off steps (something was compiled in them,
-- or they took more than three times the median period of their batch size) are left out.
WITH periods AS (
    SELECT *, lead(mode) OVER of_rank AS next_mode, lead(step) OVER of_rank AS next_step
    FROM read_parquet('steps/*/*/*.parquet', hive_partitioning = true)
    WINDOW of_rank AS (PARTITION BY run, rank ORDER BY step)
), counted AS (
    SELECT *, median(period_ns) OVER (PARTITION BY run, rank, mode, speculation, batch) AS usual_ns
    FROM periods
    WHERE next_mode = mode AND next_step = step + 1 AND period_ns > 0 AND coalesce("window", '') = '' AND coalesce(compiled, 0) = 0
)
SELECT run, rank, mode, speculation, batch,
       count(*) AS timed,
       quantile_disc(period_ns, 0.5) / 1e6 AS period_p50_ms,
       quantile_disc(period_ns, 0.99) / 1e6 AS period_p99_ms,
       sum(least(host_ns, period_ns)) / sum(period_ns) AS host_share,
       1e9 * sum(coalesce(list_sum(accept_lens), CASE WHEN speculation IN ('plain', 'off') THEN batch END))
           / sum(period_ns) AS tokens_per_s
FROM counted
WHERE period_ns <= 3 * usual_ns
GROUP BY ALL
ORDER BY run, rank, mode, batch, speculation;
