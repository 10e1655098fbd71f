"""Times, speeds and texts of strangers, as people read them."""

from __future__ import annotations

from collections import Counter


def format_seconds(seconds: float) -> str:
    """A time with three digits: 1.23 ms."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}" if seconds < 1e6 else f"{seconds:.3g} s"
    return f"{seconds * 1e9:.3g} ns"


def format_bytes(count: float) -> str:
    """A number of bytes with three digits: 1.5 KiB."""
    for scale, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:g} B"


def format_failures(failures: Counter[str]) -> str:
    """Failures by kind, the most frequent first; "none" without any."""
    return ", ".join(f"{count} {status}" for status, count in failures.most_common()) or "none"


def format_clock(seconds: float) -> str:
    """A span of time as minutes and seconds, from an hour on with hours: 2:05, 1:02:05."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def format_speed(speed: float) -> str:
    """A speed with four digits, without exponents where they can be avoided."""
    return f"{speed:.1f}" if 1 <= speed < 1e6 else f"{speed:.3g}"


def format_threads(threads: int) -> str:
    """1 thread, 2 threads."""
    return format_count(threads, "thread")


def format_count(number: int, word: str) -> str:
    """1 trial, 1,200 trials."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def printable(text: str, longest: int = 100_000) -> str:
    """Text of a stranger that is safe to print: what steers terminals or turns the writing round is spelled out."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else f"\\u{ord(c):04x}" for c in text[:longest])
    return shown if len(text) <= longest else f"{shown} … ({len(text) - longest} characters more)"
