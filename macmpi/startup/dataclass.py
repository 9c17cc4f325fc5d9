"""Dataclasses that cost a tenth to define: every rank of every launch defines two hundred.

Python's own `dataclass` compiles up to six methods for each class, about a millisecond in Python 3.11, which was a
quarter of the processor's time that a rank spent before training.  Here methods are closures, and nothing is compiled.
Whatever `dataclasses` offers (`fields`, `replace`, `asdict`, a subclass by Python's own decorator) works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from operator import attrgetter
    from reprlib import recursive_repr

    def dataclass(cls=None, /, *, frozen=False):
        """`dataclasses.dataclass(frozen=...)` of a class without slots.  Raises TypeError as that does.

        Collective: no.
        """
        if cls is None:
            return lambda one: _defined(one, frozen)
        return _defined(cls, frozen)

    def _defined(cls, frozen):
        if not cls.__doc__:
            cls.__doc__ = cls.__name__  # else dataclasses would compute a signature for it
        _collect_fields(cls, frozen)
        fields = dataclasses.fields(cls)
        compared = _values([f.name for f in fields if f.compare])
        if "__init__" not in cls.__dict__:
            cls.__signature__ = _Signature(cls)
        methods = {
            "__init__": _init(cls, fields),
            "__repr__": _repr([f.name for f in fields if f.repr]),
            "__eq__": _eq(compared),
        }
        if "__hash__" not in cls.__dict__:
            hashed = _values([f.name for f in fields if (f.compare if f.hash is None else f.hash)])
            methods["__hash__"] = _hash(hashed) if frozen else None
        if frozen:
            methods |= _refusals(cls, frozenset(f.name for f in fields))
        for name, method in methods.items():
            if name not in cls.__dict__:
                if method is not None:
                    method.__qualname__ = f"{cls.__qualname__}.{name}"
                    method.__module__ = cls.__module__
                setattr(cls, name, method)
        return cls

    def _collect_fields(cls, frozen):
        """`__dataclass_fields__` and `__match_args__`, by Python's own decorator.

        It is told that nothing is frozen, since it would compile two methods for a frozen class; it refuses a class
        that is not frozen after one that is, so bases are called not frozen for this moment.
        """
        bases = [b.__dict__["__dataclass_params__"] for b in cls.__mro__[1:] if "__dataclass_params__" in b.__dict__]
        if bases and frozen != any(b.frozen for b in bases):
            raise TypeError(f"{cls.__name__}: a dataclass and its bases are frozen, or none of them is")
        was = [b.frozen for b in bases]
        try:
            for one in bases:
                one.frozen = False
            dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        finally:
            for one, value in zip(bases, was, strict=True):
                one.frozen = value
        cls.__dataclass_params__.frozen = frozen

    def _values(names):
        """A function from an object to the tuple of its attributes with these names."""
        if len(names) > 1:
            return attrgetter(*names)
        return (lambda self: (getattr(self, names[0]),)) if names else (lambda self: ())

    def _init(cls, fields):
        """`__init__(self, *positional, **keywords)`: values, then defaults, then `__post_init__` where there is one."""
        plain = tuple(f.name for f in fields if f.init and not f.kw_only)
        taken = tuple((f.name, f.default, f.default_factory) for f in fields if f.init)
        made = tuple((f.name, f.default_factory) for f in fields if not f.init)
        made = tuple(one for one in made if one[1] is not dataclasses.MISSING)
        names, missing, after = (
            frozenset(name for name, _, _ in taken),
            dataclasses.MISSING,
            hasattr(cls, "__post_init__"),
        )

        count = len(taken) if not made and not after else -1  # as many values as this need no defaults

        def __init__(self, *positional, **keywords):
            into = self.__dict__
            if len(positional) + len(keywords) == count and not into:
                into.update(zip(plain, positional, strict=False), **keywords)
                if into.keys() == names:
                    return
                into.clear()
            if len(positional) > len(plain):
                raise TypeError(f"{cls.__name__} takes {len(plain)} positional values, not {len(positional)}")
            given = dict(zip(plain, positional, strict=False))
            if keywords:
                if twice := given.keys() & keywords.keys():
                    raise TypeError(f"{cls.__name__}: {', '.join(sorted(twice))} given twice")
                if unknown := keywords.keys() - names:
                    raise TypeError(f"{cls.__name__} has no {', '.join(sorted(unknown))}")
                given |= keywords
            for name, default, factory in taken:
                if name in given:
                    into[name] = given[name]
                elif default is not missing:
                    into[name] = default
                elif factory is not missing:
                    into[name] = factory()
                else:
                    raise TypeError(f"{cls.__name__}: a value for {name} is missing")
            for name, factory in made:
                into[name] = factory()
            if after:
                self.__post_init__()

        return __init__

    def _repr(names):
        def __repr__(self):
            values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
            return f"{self.__class__.__qualname__}({values})"

        return recursive_repr()(__repr__)

    def _eq(compared):
        def __eq__(self, other):
            if other.__class__ is not self.__class__:
                return NotImplemented
            return compared(self) == compared(other)

        return __eq__

    def _hash(hashed):
        def __hash__(self):
            return hash(hashed(self))

        return __hash__

    def _refusals(cls, names):
        def __setattr__(self, name, value):
            if type(self) is cls or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def __delattr__(self, name):
            if type(self) is cls or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        return {"__setattr__": __setattr__, "__delattr__": __delattr__}

    class _Factory:
        """Stands for a default that is made by each call, in signatures."""

        def __repr__(self):
            return "<factory>"

    _FACTORY = _Factory()

    class _Signature:
        """The signature of a class, made when somebody asks for it."""

        def __init__(self, owner):
            self.owner = owner

        def __get__(self, instance, cls):
            from inspect import Parameter, Signature

            if next(one for one in cls.__mro__ if "__init__" in one.__dict__) is not self.owner:
                raise AttributeError("__signature__")

            positional, keywords = [], []
            for f in dataclasses.fields(cls):
                if f.init:
                    optional = f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
                    kind = Parameter.KEYWORD_ONLY if f.kw_only else Parameter.POSITIONAL_OR_KEYWORD
                    default = f.default if f.default is not dataclasses.MISSING else _FACTORY
                    one = Parameter(f.name, kind, default=default if optional else Parameter.empty, annotation=f.type)
                    (keywords if f.kw_only else positional).append(one)
            return Signature(positional + keywords, return_annotation=None)
