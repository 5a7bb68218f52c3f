"""What the commands take: options, and tokens by file or environment. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, Final

from bowstring import __version__
from bowstring.errors import MissingFile, UsageError, did_you_mean

if TYPE_CHECKING:
    from bowstring.dissociated.endpoint import Dataset, Endpoint
    from bowstring.transport.certificates import TlsConfig

VARIABLE: Final = "BOWSTRING_TOKEN"
_MOST_OF_A_TOKEN: Final = 1024
# A token on the command line would stand in the process list.

_OF_READERS = "the server's token is in this file, or in BOWSTRING_TOKEN, where the URI does not hold it"


class _Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviations, and says which option is the nearest to one that it does not know."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        known, rest = super().parse_known_args(args, namespace)
        # The parser of a command comes before that of the whole line, and prints its own usage.
        if unknown := [each.partition("=")[0] for each in rest if each.startswith("-")]:
            hint = did_you_mean(unknown[0], self._option_string_actions)
            self.error(" ".join([f"there is no option {unknown[0]}", *([f"({hint})"] if hint else [])]))
        return known, rest


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    root: argparse.ArgumentParser = _Parser(
        prog="bowstring",
        description="Hand Arrow tables from one process to another, and leave the bytes where they are.",
        epilog="Exit codes: 0 all went well, 1 it did not, 2 wrong arguments, 130 interrupted.",
    )
    root.add_argument("--version", action="version", version=f"bowstring {__version__}")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _demo(commands)
    _serve(commands)
    _list(commands)
    _fetch(commands)
    _inspect(commands)
    _command(commands, "doctor", "say what this machine can do, and what is in the way of the rest")
    _depot(commands)
    completion = commands.add_parser(
        "completion", help="print what a shell needs to complete this command line"
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")
    commands.add_parser("bench", help="run the benchmarks (`bowstring bench --help`)", add_help=False)
    return root


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    command.add_argument("--json", action="store_true", help="print JSON, errors too")
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return command


def _demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = _command(
        commands, "demo", "hand real data from one process to another, and through Spark and back"
    )
    demo.add_argument(
        "--transport", choices=("unix", "tcp"), default="unix", help="how they talk (default: unix)"
    )
    demo.add_argument(
        "--rounds", type=positive, metavar="N", help="how often to measure (default: 15; through Spark 3)"
    )
    demo.add_argument(
        "--device", help="where the process that Spark publishes to takes the data, such as cuda:0"
    )
    part = demo.add_mutually_exclusive_group()
    part.add_argument(
        "--flights", action="store_true", help="the first part only: two processes, without Spark"
    )
    part.add_argument("--spark", action="store_true", help="the second part only: the pipeline through Spark")
    part.add_argument(
        "--publish", action="store_true", help="be process A only: publish until Ctrl-C, and print the URI"
    )
    part.add_argument("--read", metavar="URI", help="be process B only: read what a process A published")


def _serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = _command(commands, "serve", "publish files, or rows of a query, until Ctrl-C")
    serve.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="each is a data set: Parquet, Arrow, Feather, Vortex (a stream), .csv, .jsonl or .ndjson",
    )
    serve.add_argument(
        "--query",
        action="append",
        default=[],
        metavar="SQL",
        help="publish what DuckDB answers, under the name query (or --name)",
    )
    serve.add_argument(
        "--address", default="unix:", help="unix:[PATH] (the default), tls://HOST:PORT or tcp://HOST:PORT"
    )
    serve.add_argument(
        "--flight",
        metavar="ADDRESS",
        help="offer them by Arrow Flight, too: grpc://HOST:PORT or grpc+tls://HOST:PORT",
    )
    serve.add_argument(
        "--unbounded-requests",
        action="store_true",
        help="let --flight listen off loopback without --tls-ca: it takes requests of any size from everybody",
    )
    serve.add_argument(
        "--advertise",
        metavar="HOST",
        help="the host that printed URIs name, where the address is tls://0.0.0.0:PORT",
    )
    _tls_of_server(serve)
    secret = serve.add_mutually_exclusive_group()
    secret.add_argument(
        "--token",
        help="a secret that readers must give; `auto` makes one, which is part of the URI that is printed",
    )
    secret.add_argument(
        "--token-file",
        metavar="FILE",
        help="the secret, then not printed, is in this file (or in BOWSTRING_TOKEN)",
    )
    serve.add_argument(
        "--name",
        action="append",
        default=[],
        help="what to call the data set, for each file and query in order",
    )
    serve.add_argument(
        "--readers", type=positive, metavar="N", help="end after N readers read each file to its end"
    )
    how = serve.add_mutually_exclusive_group()
    how.add_argument(
        "--lazy", dest="lazy", action="store_true", default=None, help="read files as readers ask"
    )
    how.add_argument(
        "--resident", dest="lazy", action="store_false", help="read files into shared memory at once"
    )


def _list(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    listing = _command(commands, "list", "show the data sets that a server offers")
    listing.add_argument(
        "address",
        metavar="ADDRESS",
        help="unix:PATH, tls://HOST:PORT, tcp://HOST:PORT, or a URI that it printed",
    )
    _of_reader(listing, "the server's token is in this file, or in BOWSTRING_TOKEN")


def _fetch(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    fetch = _command(commands, "fetch", "read a published data set; write it to a file, or show it")
    fetch.add_argument(
        "uri", metavar="URI", help="as the producer printed it, in quotes; or the server's address"
    )
    fetch.add_argument(
        "name", metavar="NAME", nargs="?", help="which data set, with an address; the only one by default"
    )
    fetch.add_argument("--ticket", help="which data set, where the URI does not say it")
    _of_reader(fetch)
    fetch.add_argument(
        "--to",
        metavar="FILE",
        help=".parquet, .arrow, .feather, .arrows, .vortex (a stream) or .csv; - for a stream on standard output",
    )
    fetch.add_argument(
        "--columns", type=names, action="extend", metavar="A,B", help="which columns, in order (default: all)"
    )
    fetch.add_argument("--limit", type=count, metavar="N", help="stop after N rows")
    fetch.add_argument(
        "--validate",
        choices=("full", "structure"),
        default="full",
        help="what to check of the data that --to writes: every element (the default), or sizes and ends only",
    )
    fetch.add_argument(
        "--compress",
        action="store_true",
        help="encode columns of a .vortex stream in fewer bytes; takes time",
    )


def _inspect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    inspect = _command(
        commands, "inspect", "show schema, messages, buffers and sizes of a file or a data set"
    )
    inspect.add_argument("source", metavar="FILE|URI", help="or the address of a server")
    inspect.add_argument(
        "name", metavar="NAME", nargs="?", help="which data set, with an address; the only one by default"
    )
    inspect.add_argument("--ticket", help="which data set, where a URI does not say it")
    _of_reader(inspect)
    inspect.add_argument(
        "--most",
        type=positive,
        default=4,
        metavar="N",
        help="how many batches or row groups to open (default: 4)",
    )


def _depot(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    depot = _command(
        commands, "depot", "look at the process that owns memory for short-lived writers, or end it"
    )
    depot.add_argument(
        "action", choices=("status", "stop", "run"), help="what to do; `run` is one until Ctrl-C"
    )
    depot.add_argument("--folder", help="where it lies, where that is not the private runtime folder")
    depot.add_argument(
        "--everywhere",
        action="store_true",
        help="with `stop`: depots of other hosts that hold data of its names, too (--tls-ca: whom to trust)",
    )
    run = depot.add_argument_group("of `run`")
    run.add_argument("--memory", type=positive, metavar="BYTES", help="the most memory for data")
    run.add_argument("--disk", type=count, metavar="BYTES", help="the most of files where memory is used up")
    run.add_argument("--spill-folder", metavar="FOLDER", help="where those files are made")
    run.add_argument(
        "--remote",
        "--tcp",
        dest="tcp",
        metavar="tls://HOST:0",
        help="where readers and drivers on other hosts reach it, too; or tcp:// or ucx://, with --plaintext",
    )
    _tls_of_server(run)
    run.add_argument(
        "--idle-seconds", type=positive, metavar="S", help="end after holding nothing for so long"
    )


def _tls_of_server(options: argparse._ActionsContainer) -> None:
    options.add_argument("--tls-cert", metavar="FILE", help="the certificate for tls:, in PEM")
    options.add_argument("--tls-key", metavar="FILE", help="its private key, where that is another file")
    options.add_argument(
        "--tls-ca", metavar="FILE", help="take only readers with a certificate of these authorities"
    )
    options.add_argument(
        "--plaintext", action="store_true", help="let data and token cross the network unencrypted (tcp:)"
    )


def _of_reader(options: argparse._ActionsContainer, token: str = _OF_READERS) -> None:
    options.add_argument("--token-file", metavar="FILE", help=token)
    options.add_argument(
        "--tls-ca", metavar="FILE", help="authorities to trust on tls:, in PEM (default: the system's)"
    )
    options.add_argument("--tls-cert", metavar="FILE", help="the certificate to show, where one is asked for")
    options.add_argument("--tls-key", metavar="FILE", help="its private key, where that is another file")


def tls_config(arguments: argparse.Namespace) -> TlsConfig | None:
    """Return what the options say of certificates; ``None`` where they say nothing."""
    given = arguments.tls_cert, arguments.tls_key, arguments.tls_ca
    if not any(given):
        return None
    from bowstring.transport.certificates import TlsConfig

    if arguments.tls_key and not arguments.tls_cert:
        raise UsageError("a key without its certificate", hint="Give --tls-cert, too.")
    return TlsConfig(cert=given[0], key=given[1], ca=given[2])


def positive(text: str) -> int:
    """Return the whole number that an argument gives; 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def count(text: str) -> int:
    """Return the whole number that an argument gives; 0 or more."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number


def names(text: str) -> list[str]:
    """Return the names in a comma-separated list."""
    parts = [name.strip() for name in text.split(",")]
    if not all(parts):
        raise argparse.ArgumentTypeError("an empty name")
    return parts


def token_apart(path: str | None) -> str | None:
    """Return the token in the file of ``--token-file``, else that of ``BOWSTRING_TOKEN``, else ``None``."""
    if path is None:
        return os.environ.get(VARIABLE) or None
    try:
        with open(path, "rb") as file:
            token = file.read(_MOST_OF_A_TOKEN + 2).strip()
    except OSError as error:
        wrong = MissingFile if isinstance(error, FileNotFoundError) else UsageError
        raise wrong("the token file cannot be read", found=error.strerror, where=path) from error
    fault = "it is empty" if not token else "more" if len(token) > _MOST_OF_A_TOKEN else "not ASCII"
    if not token or len(token) > _MOST_OF_A_TOKEN or not token.isascii():
        raise UsageError(
            "the token file holds no token",
            expected=f"1 to {_MOST_OF_A_TOKEN} ASCII characters",
            found=fault,
            where=path,
        )
    return token.decode("ascii")


def endpoint_with_token(
    uri: str, ticket: str | None, path: str | None, tls: TlsConfig | None = None
) -> Endpoint | Dataset:
    """Return the endpoint of a URI, or of a name at an address; the data set of a name in this host's depot.

    Its token is that of the file, else its own, else that of the environment.
    """
    # The command line starts quickly: what connects is imported by the commands that do.
    from bowstring.client import endpoint_of
    from bowstring.client.names import depot_dataset, is_address, is_depot, named_endpoint
    from bowstring.dissociated.location import Location
    from bowstring.limits import DEFAULT_LIMITS

    token = token_apart(path)
    if is_depot(uri):
        return depot_dataset(uri, ticket)
    if is_address(uri):
        name = None if ticket is None else ticket.encode()
        return named_endpoint(uri, name, token, DEFAULT_LIMITS, tls)
    endpoint = endpoint_of(uri, ticket)
    if token is None or (path is None and Location.parse(endpoint.uri).token is not None):
        return endpoint
    return endpoint.with_token(token)
