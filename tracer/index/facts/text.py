"""Expressions as source text, for guards and reports."""

from __future__ import annotations

from sgltrace.index.facts import syntax as s

_PRECEDENCE = {
    "or": 1, "and": 2, "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10,
    "@": 10, "**": 12,
}  # fmt: skip
_COND, _NOT, _CMP, _UNARY, _ATOM = 0, 3, 4, 11, 20


def text(expression: s.Expr) -> str:
    """An expression as Python would be written by hand, on one line."""
    return _text(expression, 0)


def _text(e: s.Expr, around: int) -> str:
    """``around`` is how strongly the place binds; what binds less is put into brackets."""
    match e:
        case s.Name(id=name):
            return name
        case s.Attr(value=value, attr=attr):
            return f"{_text(value, _ATOM)}.{attr}"
        case s.Call(func=func, args=args):
            return f"{_text(func, _ATOM)}({', '.join(map(_arg, args))})"
        case s.Sub(value=value, index=index):
            return f"{_text(value, _ATOM)}[{_bare(index)}]"
        case s.Slice(lower=lower, upper=upper, step=step):
            parts = ["" if part is None else _text(part, 0) for part in (lower, upper)]
            return ":".join(parts) + ("" if step is None else f":{_text(step, 0)}")
        case s.Const(value=value):
            return repr(value)
        case s.Ellipsis_():
            return "..."
        case s.Seq(kind=kind, items=items):
            return _display(kind, [_text(item, 0) for item in items])
        case s.Map(keys=keys, values=values):
            pairs = (
                f"**{_text(v, _ATOM)}" if k is None else f"{_text(k, 0)}: {_text(v, 0)}"
                for k, v in zip(keys, values, strict=True)
            )
            return "{" + ", ".join(pairs) + "}"
        case s.Bin(op=op, left=left, right=right) | s.Bool(op=op, left=left, right=right):
            binds = _PRECEDENCE[op]
            return _in_brackets(f"{_text(left, binds)} {op} {_text(right, binds + 1)}", binds, around)
        case s.Cmp(left=left, ops=ops, rights=rights):
            out = _text(left, _CMP + 1)
            for op, right in zip(ops, rights, strict=True):
                out += f" {op} {_text(right, _CMP + 1)}"
            return _in_brackets(out, _CMP, around)
        case s.Unary(op="not", value=value):
            return _in_brackets(f"not {_text(value, _NOT)}", _NOT, around)
        case s.Unary(op=op, value=value):
            return _in_brackets(f"{op}{_text(value, _UNARY)}", _UNARY, around)
        case s.Cond(body=body, test=test, orelse=orelse):
            out = f"{_text(body, 1)} if {_text(test, 1)} else {_text(orelse, 0)}"
            return _in_brackets(out, _COND, around)
        case s.Lambda(params=params, body=body):
            names = ", ".join(p.kind.strip("/=") + p.name for p in params)
            return _in_brackets(f"lambda {names}: {_text(body, 0)}".replace("lambda :", "lambda:"), _COND, around)
        case s.Comp(kind=kind, element=element, key=key, gens=gens):
            inner = _text(element, 0) if key is None else f"{_text(key, 0)}: {_text(element, 0)}"
            for gen in gens:
                inner += f" for {_bare(gen.target)} in {_text(gen.iter, 1)}"
                inner += "".join(f" if {_text(test, 1)}" for test in gen.tests)
            brackets = {"list": "[]", "generator": "()"}.get(kind, "{}")
            return f"{brackets[0]}{inner}{brackets[1]}"
        case s.Star(value=value):
            return f"*{_text(value, _ATOM)}"
        case s.Format(parts=parts):
            inner = "".join(str(p.value) if isinstance(p, s.Const) else "{" + _text(p, 0) + "}" for p in parts)
            return f"f{inner!r}"
        case s.Walrus(target=target, value=value):
            return f"({target} := {_text(value, 0)})"
        case s.Await(kind=kind, value=value):
            return f"({kind} {_text(value, 0)})" if value is not None else f"({kind})"
    raise TypeError(f"no expression: {e!r}")


def _bare(e: s.Expr) -> str:
    """A tuple without its brackets, where Python needs none."""
    out = _text(e, 0)
    return out[1:-1] if isinstance(e, s.Seq) and e.kind == "tuple" and e.items else out


def _arg(arg: s.Arg) -> str:
    value = _text(arg.value, 0)
    if arg.name in ("*", "**"):
        return f"{arg.name}{value}"
    return value if arg.name is None else f"{arg.name}={value}"


def _display(kind: str, items: list[str]) -> str:
    if kind == "tuple":
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    return f"[{', '.join(items)}]" if kind == "list" else "{" + ", ".join(items) + "}"


def _in_brackets(out: str, binds: int, around: int) -> str:
    return f"({out})" if binds < around else out
