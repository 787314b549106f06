"""The exceptions of fetchwise. All have one root, so ``except fetchwise.Error`` catches all of them."""

from __future__ import annotations


class Error(Exception):
    """The root of all exceptions of fetchwise, except ``TypeError`` and ``ValueError`` for arguments.

    >>> issubclass(fetchwise.LockedError, fetchwise.LogError) and issubclass(fetchwise.LogError, fetchwise.Error)
    True
    """


class UrlError(Error, ValueError):
    """The URL cannot be fetched: the message gives the reason.

    >>> fetchwise.Selector().select("ftp://example.org/")
    Traceback (most recent call last):
    fetchwise.UrlError: unsupported scheme "ftp" (only http and https can be fetched): ftp://example.org/
    """


class ConfigError(Error, ValueError):
    """Settings, fetchers, names or rules cannot be used: the message names the file, line and field if there are any.

    >>> fetchwise.Selector(fetchers=["direct_access", "direct_access"])
    Traceback (most recent call last):
    fetchwise.ConfigError: ...
    """


class LogError(Error):
    """The journal cannot be opened, read or written.

    ``is_refusal`` is true if a retry is useless until someone intervenes: the log is damaged, or its format is newer.

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
    """Another process, or another ``Journal`` in this process, writes to the directory. ``pid`` is the process, if it
    is known.

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
    """The journal belongs to the parent process of a fork. Open journals after the fork, with one process per
    directory.

    >>> issubclass(fetchwise.ForkedError, fetchwise.LogError)
    True
    """

    is_refusal: bool = True


for _class in (Error, UrlError, ConfigError, LogError, LockedError, ForkedError):
    _class.__module__ = "fetchwise"
del _class
