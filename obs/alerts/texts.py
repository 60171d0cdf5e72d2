"""Forms of the value in annotations."""

from __future__ import annotations

#: The value as a person reads it: ``humanize`` alone turns 0.43 into "430m", which reads as minutes.
NUMBER = '{{ if ge $value 1.0 }}{{ $value | humanize }}{{ else }}{{ printf "%.3g" $value }}{{ end }}'
