"""`python -m macmpi.export MODEL.h5 --to onnx`: a trained net for programs without macmpi."""

from __future__ import annotations

from pathlib import Path

from macmpi import NumericalError
from macmpi.export.onnx_file import TOLERANCE, compare, onnx_runner, written
from macmpi.files import check_output, write_output
from macmpi.parallel.command import Namespace, by_one_process
from macmpi.results.model_file import load


def exported(args: Namespace) -> str:
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
    by_one_process("export", exported)


if __name__ == "__main__":
    main()
