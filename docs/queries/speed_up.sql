-- Tokens a second of every run over those of the run that does not speculate, by batch size.
WITH figures AS (
    SELECT * FROM read_parquet('figures/*/*/*.parquet', hive_partitioning = true)
    WHERE mode LIKE '%DECODE%' AND tokens_per_s IS NOT NULL AND rank = 'tp0'
)
SELECT other.batch, other.run, plain.run AS baseline, other.tokens_per_s / plain.tokens_per_s AS speed_up
FROM figures AS other JOIN figures AS plain USING (batch)
WHERE plain.speculation = 'plain' AND other.speculation <> 'plain'
ORDER BY batch, other.run;
