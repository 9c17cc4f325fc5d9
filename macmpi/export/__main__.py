"""`python -m macmpi.export MODEL.h5 --to onnx|torch|numpy`: a trained net for programs without macmpi."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from macmpi import MacmpiError, UsageError
from macmpi.console import guard, program, say, warn
from macmpi.export import numpy_file, onnx_file, torch_file
from macmpi.export.check import TOLERANCE, compare, ensure, numpy_runner, onnx_runner, torch_runner
from macmpi.export.net import Net, net_of
from macmpi.files import check_output, write_output
from macmpi.results.model_file import PREFERRED, load

ENDINGS = {"onnx": ".onnx", "torch": "_torch.py", "numpy": "_numpy.py"}
"""Format -> what stands behind the model's name in the default for --output."""

RUNNERS = {"onnx": onnx_runner, "torch": torch_runner, "numpy": numpy_runner}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog=program("export"),
        description="Write a trained net as an ONNX graph, as a torch module or as a NumPy file; none needs macmpi.",
        epilog="Exit codes: 0 done, 2 usage or model, 70 the file would not compute what macmpi computes, 74 it could "
        "not be written.",
    )
    p.add_argument("model", type=Path, metavar="MODEL.h5", help="model.h5 of a run directory")
    p.add_argument("--to", choices=list(ENDINGS), required=True, help="the format")
    p.add_argument("--output", type=Path, metavar="FILE", help="default: next to the model, as model.onnx")
    p.add_argument("--weights", choices=PREFERRED, help="default: the refit, else the best on validation")
    p.add_argument(
        "--precision",
        choices=("float64", "float32"),
        default="float64",
        help=f"of the arithmetic; float64 (default) keeps {TOLERANCE:g} for every net, float32 takes half the space",
    )
    p.add_argument("--decoder", action="store_true", help="of ONNX: from codes to outputs, in place of the whole net")
    return p


def output_of(args: Any) -> Path:
    """The file to write.  Raises UsageError where it cannot be."""
    ending = ("_decoder" if args.decoder else "") + ENDINGS[args.to]
    path: Path = args.output or args.model.with_name(args.model.stem + ending)
    check_output(path, (".onnx",) if args.to == "onnx" else (".py",), (args.model,))
    return path


def written(net: Net, to: str, decoder: bool) -> tuple[bytes, str]:
    """The content of the file, and what it has: outputs or methods.  Raises UsageError."""
    if decoder and to != "onnx":
        raise UsageError(f"--decoder is of ONNX; the file of --to {to} has decode")
    if decoder and not net.code:
        raise UsageError("--decoder: this net has no hidden layer, hence no code")
    if to == "onnx":
        content, outputs = onnx_file.written(net, decoder)
        return content, f"outputs {', '.join(outputs)}"
    source = (numpy_file if to == "numpy" else torch_file).written(net)
    return source.encode(), f"methods {', '.join(net.methods)}"


def main() -> None:
    guard()
    args = parser().parse_args()
    try:
        output = output_of(args)
        model = load(args.model, args.weights)
        try:
            net = net_of(model, args.precision)
        except UsageError as error:
            raise UsageError(f"{args.model}: {error}") from None
        content, has = written(net, args.to, args.decoder)
        runner, by = RUNNERS[args.to](content, args.precision)
        found = None
        if runner is not None:
            found = compare(model, runner, by, bool(net.code), args.decoder)
            ensure(found, args.precision)
        write_output(output, content)
    except MacmpiError as error:
        warn(str(error))
        sys.exit(error.exit_code)
    say(f"{output}: {net.title}, {args.precision}, {len(content):,} bytes; {has}")
    say(f"  {found}" if found else f"  not checked: {by}")
    if found and found.largest > TOLERANCE:
        say(f"  beyond {TOLERANCE:g}, which --precision float64 keeps")


if __name__ == "__main__":
    main()
