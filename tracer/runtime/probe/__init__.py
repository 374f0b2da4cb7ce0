"""What is injected into the server's processes: standard library only, and nothing that may disturb them.

These files are copied next to a trace as the package ``sgltrace_probe`` and found there through PYTHONPATH, by
whatever Python (3.10 and up) the server uses. They may not import anything of sgltrace outside this folder.
"""
