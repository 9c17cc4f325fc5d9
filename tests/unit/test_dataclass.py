"""macmpi.startup.dataclass is dataclasses.dataclass, but for what it costs to define a class."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from macmpi.startup.dataclass import dataclass

Decorator = Callable[..., Any]
DECORATORS = {"ours": dataclass, "Python's": dataclasses.dataclass}


def family(decorator: Decorator, frozen: bool) -> tuple[type[Any], type[Any]]:
    """A class with every kind of field that macmpi uses, and a subclass."""

    @decorator(frozen=frozen)
    class Base:
        """A base."""

        width: int
        rows: list[int] = dataclasses.field(default_factory=list)
        hidden: str = dataclasses.field(default="x", repr=False)
        unseen: float = dataclasses.field(default=0.5, compare=False)
        by_name: bool = dataclasses.field(default=False, kw_only=True)
        marked: int = dataclasses.field(default=3, metadata={"why": "a mark"})

    @decorator(frozen=frozen)
    class Derived(Base):
        own: tuple[int, ...] = ()

        def __post_init__(self) -> None:
            if self.width < 0:
                raise ValueError("width")

    return Base, Derived


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((2, [1, 2], "y", 0.25, 4), {"by_name": True}),
    ((), {"width": 3, "marked": 9}),
    ((), {}),
    ((1,), {"width": 2}),
    ((1,), {"nobody": 2}),
    ((1, [], "x", 0.5, 3, (), 7), {}),
    ((-1,), {}),
]


def outcome(make: Callable[[], Any]) -> Any:
    """The repr of what is made, or the kind of what is raised."""
    try:
        return repr(make())
    except (TypeError, ValueError, AttributeError) as error:
        return type(error)


def seen(decorator: Decorator, frozen: bool) -> list[Any]:
    """All that can be seen of the classes."""
    found: list[Any] = []
    for cls in family(decorator, frozen):
        found += [outcome(lambda args=args, kw=kw, cls=cls: cls(*args, **kw)) for args, kw in CALLS]
        found += [[(f.name, f.type, f.default, f.kw_only, dict(f.metadata)) for f in dataclasses.fields(cls)]]
        found += [cls.__match_args__, cls.__dataclass_params__.frozen]
        found += [[(p.name, p.kind, p.annotation) for p in inspect.signature(cls).parameters.values()]]
        one, other = cls(1, []), cls(1, [], unseen=9.0)
        found += [one == other, one == cls(2, []), one == 1, one != other]
        found += [dataclasses.asdict(one), repr(dataclasses.replace(one, width=5)), repr(copy.deepcopy(one))]
        found += [outcome(lambda one=one: dataclasses.replace(one, nobody=5))]
        found += [outcome(lambda one=one: setattr(one, "width", 7)), outcome(lambda one=one: delattr(one, "width"))]
        found += [outcome(lambda one=one: hash(one)), cls.__hash__ is None]
        found += [vars(cls(1, [])).keys()]
    base, derived = family(decorator, frozen)
    found += [base(1) == derived(1), outcome(lambda: decorator(frozen=not frozen)(type("Odd", (base,), {})))]
    return found


@pytest.mark.parametrize("frozen", [True, False])
def test_classes_look_and_behave_as_those_of_python(frozen: bool) -> None:
    assert seen(dataclass, frozen) == seen(dataclasses.dataclass, frozen)


def test_equal_objects_have_equal_hashes() -> None:
    @dataclass(frozen=True)
    class Size:
        rows: int
        note: str = dataclasses.field(default="", compare=False)

    assert hash(Size(3)) == hash(Size(3, "a note"))
    assert len({Size(3), Size(3, "a note"), Size(4)}) == 2


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("first", DECORATORS)
@pytest.mark.parametrize("second", DECORATORS)
def test_a_class_of_the_one_kind_may_derive_from_one_of_the_other(first: str, second: str, frozen: bool) -> None:
    @DECORATORS[first](frozen=frozen)
    class Base:
        width: int

    @DECORATORS[second](frozen=frozen)
    class Derived(Base):
        depth: int = 1

    one = Derived(3)
    assert repr(one).endswith("Derived(width=3, depth=1)")
    assert dataclasses.replace(one, depth=2) == Derived(3, 2)
    assert list(inspect.signature(Derived).parameters) == ["width", "depth"]


def test_methods_that_a_class_defines_are_kept() -> None:
    @dataclass(frozen=True)
    class Own:
        width: int

        def __init__(self, text: str) -> None:
            object.__setattr__(self, "width", len(text))

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "mine"

    one = Own("abc")
    assert (one.width, one == 5, hash(one), repr(one)) == (3, True, 7, "mine")
    assert list(inspect.signature(Own).parameters) == ["text"]


@dataclass(frozen=True)
class Sent:
    """A class that pickle finds by its name."""

    width: int
    rows: list[int] = dataclasses.field(default_factory=list)


def test_objects_are_pickled() -> None:
    one = Sent(2, [4])
    assert pickle.loads(pickle.dumps(one)) == one
    assert Sent.__doc__ == "A class that pickle finds by its name."
