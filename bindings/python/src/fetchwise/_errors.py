"""The exceptions of fetchwise. All have one root, so that ``except fetchwise.Error`` is enough for those who want no more."""

from __future__ import annotations


class Error(Exception):
    """The root of what fetchwise raises, but for ``TypeError`` and ``ValueError`` about arguments.

    >>> issubclass(fetchwise.LockedError, fetchwise.LogError) and issubclass(fetchwise.LogError, fetchwise.Error)
    True
    """


class UrlError(Error, ValueError):
    """Not a URL that can be fetched: the message says why.

    >>> fetchwise.Selector().select("ftp://example.org/")
    Traceback (most recent call last):
    fetchwise.UrlError: unsupported scheme "ftp" (only http and https can be fetched): ftp://example.org/
    """


class ConfigError(Error, ValueError):
    """Settings, fetchers, names or rules that cannot be used: the message names file, line and field where there are.

    >>> fetchwise.Selector(fetchers=["direct_access", "direct_access"])
    Traceback (most recent call last):
    fetchwise.ConfigError: ...
    """


class LogError(Error):
    """The journal cannot be opened, read or written.

    ``is_refusal`` is true where trying again is useless until somebody does something about it: damage, or a newer format.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = fetchwise.Journal(folder)
    ...     journal.close()
    ...     journal.flush()
    Traceback (most recent call last):
    fetchwise.LogError: the journal is closed
    """

    is_refusal: bool = False


class LockedError(LogError):
    """Another process, or another ``Journal`` in this one, writes to the directory; ``pid`` is the process, where it is known.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, fetchwise.Journal(folder):
    ...     try:
    ...         fetchwise.Journal(folder)
    ...     except fetchwise.LockedError as error:
    ...         print(error.pid == __import__("os").getpid())
    True
    """

    is_refusal: bool = True
    pid: int | None = None


class ForkedError(LogError):
    """The journal belongs to the process that this one was forked from. Open journals after the fork, one process a directory.

    >>> issubclass(fetchwise.ForkedError, fetchwise.LogError)
    True
    """

    is_refusal: bool = True


for _class in (Error, UrlError, ConfigError, LogError, LockedError, ForkedError):
    _class.__module__ = "fetchwise"
del _class
