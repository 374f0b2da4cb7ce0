"""sgltrace: where SGLang's speculative decoding is coupled to the rest of the engine, with evidence."""

__version__ = "0.1.0"
