"""``sgltrace calls``, ``callers`` and ``path``: questions to the call graph of a workspace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sgltrace.commands.output import bold, guard_text, print_json, printable, say
from sgltrace.errors import EXIT_FOUND
from sgltrace.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from sgltrace.insight.query import CallGraph
    from sgltrace.model import CallEdge

FunctionArgument = Annotated[
    str, typer.Argument(metavar="FUNC", help="A function id, or a tail of one: EAGLEWorkerV2.verify.")
]
WorkspaceOption = Annotated[Path, typer.Option("-w", "--workspace", help="The workspace to read.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.command()(calls)
    app.command()(callers)
    app.command()(path)


def calls(func: FunctionArgument, workspace: WorkspaceOption = Path(DEFAULT), as_json: JsonOption = False) -> None:
    """Show what a function calls: lines, conditions, and calls whose target is not known."""
    graph = _graph(workspace)
    found = graph.find_all(func)
    if as_json:
        _print_all([{"function": id, "calls": graph.calls(id), "unresolved": graph.unresolved(id)} for id in found])
        return
    for function in found:
        edges, unresolved = graph.calls(function), graph.unresolved(function)
        _print_function(graph, function)
        for edge in edges:
            _print_edge(edge, f"-> {edge.callee}", graph.functions[edge.caller].file)
        for call in unresolved:
            say(f"   ?  {call.expression}  (line {call.line}, unresolved: {call.why})")
        if not edges and not unresolved:
            print("   calls nothing")


def callers(func: FunctionArgument, workspace: WorkspaceOption = Path(DEFAULT), as_json: JsonOption = False) -> None:
    """Show who calls a function: lines and conditions. A name that several functions have shows those of each."""
    graph = _graph(workspace)
    found = graph.find_all(func)
    if as_json:
        _print_all([{"function": id, "callers": graph.callers(id)} for id in found])
        return
    for function in found:
        _print_function(graph, function)
        for edge in graph.callers(function):
            _print_edge(edge, f"<- {edge.caller}", graph.functions[edge.caller].file)
        if not graph.callers(function):
            print("   is called by nothing in the index")


def _print_all(answers: list[dict[str, Any]]) -> None:
    """One answer by itself, several of them in a list."""
    print_json(answers[0] if len(answers) == 1 else {"functions": answers})


def path(
    start: Annotated[str, typer.Argument(metavar="FROM", help="The function to start from.")],
    goal: Annotated[str, typer.Argument(metavar="TO", help="The function to reach.")],
    workspace: WorkspaceOption = Path(DEFAULT),
    as_json: JsonOption = False,
) -> None:
    """Show a shortest call path from one function to another. Exit code 1: there is none."""
    graph = _graph(workspace)
    source, target = graph.find(start), graph.find(goal)
    edges = graph.shortest_path(source, target)
    if as_json:
        print_json({"from": source, "to": target, "path": edges})
    elif edges is None:
        print(f"the index has no call path from {source} to {target}")
    else:
        _print_function(graph, source)
        for edge in edges:
            _print_edge(edge, f"-> {edge.callee}", graph.functions[edge.caller].file)
        if not all(edge.decode for edge in edges):
            print("   no decode step takes this path: a condition on it asks for another forward mode or model")
    if edges is None:
        raise typer.Exit(EXIT_FOUND)


def _graph(workspace: Path) -> CallGraph:
    from sgltrace.insight.query import CallGraph

    return CallGraph(Workspace.open(workspace).load_index())


def _print_function(graph: CallGraph, id: str) -> None:
    function = graph.functions[id]
    print(f"{bold(id)}  {printable(function.file)}:{function.line}")


def _print_edge(edge: CallEdge, shown: str, file: str) -> None:
    doubt = "" if edge.confidence >= 1 else f", confidence {edge.confidence:.2f}"
    say(f"   {shown}  ({edge.kind}{', virtual' if edge.virtual else ''}{doubt})")
    for site in edge.sites:
        guards = "; ".join(guard_text(guard) for guard in site.guards)
        say(f"        {file}:{site.line}" + (f"  {guards}" if guards else ""))
