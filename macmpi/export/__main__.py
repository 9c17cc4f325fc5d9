"""`python -m macmpi.export MODEL.h5 --to onnx`: a trained net for programs without macmpi."""

from __future__ import annotations

import argparse
from pathlib import Path

from macmpi import NumericalError
from macmpi.export.onnx_file import TOLERANCE, compare, onnx_runner, written
from macmpi.files import check_output, write_output
from macmpi.parallel.command import by_one_process, parser_of
from macmpi.results.model import PREFERRED
from macmpi.results.model_file import load


def parser() -> argparse.ArgumentParser:
    ends = "2 usage or model, 70 the file would not compute what macmpi computes, 74 it could not be written"
    p = parser_of("export", "Write a trained net as an ONNX graph, for programs without macmpi.", ends)
    p.add_argument("model", type=Path, metavar="MODEL.h5", help="model.h5 of a run directory")
    p.add_argument("--to", choices=("onnx",), default="onnx", help="the format (default: onnx)")
    p.add_argument("--output", type=Path, metavar="FILE", help="default: next to the model, as model.onnx")
    p.add_argument("--overwrite", action="store_true", help="replace the file that is there already")
    p.add_argument("--weights", choices=PREFERRED, help="default: the refit, else the best on validation")
    p.add_argument(
        "--precision",
        choices=("float64", "float32"),
        default="float64",
        help=f"of the arithmetic; float64 (default) keeps {TOLERANCE:g} for every net, float32 takes half the space",
    )
    p.add_argument("--decoder", action="store_true", help="from codes to outputs, in place of the whole net")
    return p


def exported(args: argparse.Namespace) -> str:
    """Write the file, once it is compared, and say what it is.  Raises UsageError, NumericalError and StorageError."""
    ending = "_decoder.onnx" if args.decoder else ".onnx"
    output: Path = args.output or args.model.with_name(args.model.stem + ending)
    check_output(output, (".onnx",), (args.model,), args.overwrite)
    model = load(args.model, args.weights)
    content, outputs = written(model, args.precision, args.decoder)
    lines = [
        f"{output}: {model.sizes} {model.task}, {args.precision}, {len(content):,} bytes; outputs {', '.join(outputs)}"
    ]
    runner, by = onnx_runner(content, args.precision)
    if runner is None:
        lines.append(f"  not checked: {by}")
    else:
        found = compare(model, runner, by, args.decoder)
        if args.precision == "float64" and not found.largest <= TOLERANCE:
            raise NumericalError(f"the exported net is not that of macmpi, and is not written: {found}")
        lines.append(f"  {found}")
        lines += [f"  beyond {TOLERANCE:g}, which --precision float64 keeps"] if found.largest > TOLERANCE else []
    write_output(output, content)
    return "\n".join(lines)


def main() -> None:
    by_one_process(parser, exported)


if __name__ == "__main__":
    main()
