"""The shape of a file as plain dataclasses; pydantic holds a file against it, and is imported only when there is one.

Importing pydantic and building its models took 0.3 s, which a command that runs on the defaults need not pay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_type_hints

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema, ErrorDetails
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_options):
        """Only type checkers need it, and it is in ``typing`` since Python 3.11."""
        return lambda cls: cls


@dataclass(frozen=True)
class BeforeValidator:
    """Metadata of ``Annotated``: ``parse`` reads the value as written, before its type is looked at.

    ``parse`` raises ``ValueError`` with the reason and the mend.
    """

    parse: Callable[[object], object]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.parse, handler(source))


def _alias(name: str) -> str:
    """``for_`` → ``for``: a field whose key is a Python keyword has a trailing underscore."""
    return name.rstrip("_")


def _names(shape: Any) -> list[str]:
    return [one.name for one in dataclasses.fields(shape)]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
class Strict:
    """A mapping of the file: its subclasses become frozen dataclasses, and unknown keys are refused."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    __pydantic_config__: ClassVar[Mapping[str, object]] = {"extra": "forbid", "alias_generator": _alias}

    @property
    def model_fields_set(self) -> frozenset[str]:
        """The fields that the file gives (pydantic's name for it); of an instance made otherwise none."""
        given: frozenset[str] = self.__dict__.get("_fields_set", frozenset())
        return given

    def model_copy(self, update: Mapping[str, object]) -> Self:
        """A copy with other values, which count as given (pydantic's name for it)."""
        made: Self = dataclasses.replace(self, **update)  # type: ignore[type-var]  # every subclass is a dataclass
        object.__setattr__(made, "_fields_set", self.model_fields_set | update.keys())
        return made

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        names = {_alias(name): name for name in _names(cls)}

        def keep(value: Any, validate: Callable[[Any], Strict]) -> Strict:
            made = validate(value)
            object.__setattr__(made, "_fields_set", frozenset(names[key] for key in value))
            return made

        return core_schema.no_info_wrap_validator_function(keep, handler(source))

    def written(self) -> dict[str, Any]:
        """What the file gives, by its keys, as parsed."""
        return {_alias(name): getattr(self, name) for name in _names(self) if name in self.model_fields_set}


_Shape = TypeVar("_Shape", bound=Strict)


def keys(shape: type[Strict]) -> dict[str, Any]:
    """key of the file → type of its value."""
    hints = get_type_hints(shape)
    return {_alias(name): hints[name] for name in _names(shape)}


class Refused(Exception):
    """The data is not of the shape. ``details``: pydantic's account of each fault."""

    def __init__(self, details: list[ErrorDetails]) -> None:
        super().__init__(f"{len(details)} faults")
        self.details = details


def validate(shape: type[_Shape], data: Mapping[Any, Any]) -> _Shape:
    """``data`` as an instance of ``shape``. Raises ``Refused``."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(shape).validate_python(data)
    except ValidationError as error:
        raise Refused(error.errors()) from None
