# Types of the extension module, checked against it by mypy's stubtest. Its docstrings are the module's: after a change of one in
# Rust, run `python stub_docs.py src/fetchwise/_fetchwise.pyi` with the built package.
import asyncio
import os
import pathlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, final

from typing_extensions import disjoint_base

from fetchwise._fetching import Fetching

__version__: str
_ERROR_KINDS: list[str]

__all__ = [
    "__version__",
    "_ERROR_KINDS",
    "Selector",
    "Fetcher",
    "Decision",
    "Take",
    "Paused",
    "GiveUp",
    "NoViableFetcher",
    "Explanation",
    "Attempt",
    "Detector",
    "Verdict",
    "FetchResult",
    "Journal",
    "Signer",
    "Visit",
    "Step",
    "FetchStep",
    "WaitStep",
    "End",
    "import_attempts",
    "export_attempts",
]

_Path: TypeAlias = str | os.PathLike[str]
_Pairs: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]
_Headers: TypeAlias = Mapping[Any, Any] | Iterable[tuple[Any, Any]]
_Body: TypeAlias = bytes | bytearray | memoryview
_Decided: TypeAlias = Take | Paused | GiveUp | NoViableFetcher
_Hint: TypeAlias = Literal["blocked", "empty", "timeout", "unknown"]

class _Write(Protocol):
    def write(self, text: str, /) -> object: ...

@final
class Selector:
    """Learns which fetcher works for which URL. All threads can share it.

    `fetchers` are names or `Fetcher`s; the default is the built-in names. `journal` is a `Journal`,
    or a directory, which it then opens. The selector replays its attempts at once and records into
    it. `config` is a TOML file in the program's format, and replaces the other settings. Visits
    keep a learned pace for each host unless `pace=False`; a host that would keep a visit waiting
    for more than two minutes counts as paused. A context manager if it opened its journal itself.

    >>> selector = fetchwise.Selector(fetchers=["direct_access", "playwright"])
    >>> for n in range(10):
    ...     selector.record(fetchwise.Attempt(f"https://wikipedia.org/wiki/{n}", "playwright").delivered())
    >>> selector.select("https://wikipedia.org/wiki/Rust")
    <Decision playwright (learned, confidence 1.00)>
    """
    def __new__(
        cls,
        *,
        fetchers: Iterable[str | Fetcher] | None = None,
        journal: Journal | _Path | None = None,
        config: _Path | None = None,
        pace: bool | None = None,
        half_life_days: float | None = None,
        policy: str | None = None,
        max_keys: int | None = None,
    ) -> Selector: ...
    def select(
        self,
        url: object,
        *,
        hint: _Hint | None = None,
        prefer: str | None = None,
        excluded: Sequence[str] | None = None,
        attempts: int | None = None,
        heuristics: _Pairs | None = None,
        link: str | None = None,
        at: float | None = None,
    ) -> _Decided:
        """Decides about `url`. Takes about a microsecond, no lock and no system call, unless evidence
        that `max_keys` moved to disk has to be read.

        `hint` describes the last failure (`"blocked"`, `"empty"`, `"timeout"`, `"unknown"`).
        `prefer` names the fetcher that the caller prefers, and `excluded` those that were tried or
        are unavailable. `attempts` is the number of attempts so far (default: the number of
        excluded fetchers). `heuristics` is what the caller knows besides the URL, `link` its name
        for the URL, and `at` the time.

        >>> fetchwise.Selector().select("https://example.org/", excluded=["direct_access"], hint="empty").fetcher
        'playwright'
        """
    def select_many(
        self,
        urls: Iterable[object],
        *,
        hint: _Hint | None = None,
        prefer: str | None = None,
        excluded: Sequence[str] | None = None,
        attempts: int | None = None,
        heuristics: _Pairs | None = None,
        at: float | None = None,
    ) -> list[_Decided]:
        """Decides about many URLs as `select` does about one, and returns the decisions in the same
        order.

        With many domains this takes less time, because the evidence of several URLs is requested
        from memory at once. The arguments apply to all URLs; each link is known by its URL. Raises
        `UrlError` if one of them cannot be fetched.

        >>> [decision.fetcher for decision in fetchwise.Selector().select_many(["https://a.example/", "https://b.example/"])]
        ['direct_access', 'direct_access']
        """
    def explain(
        self,
        url: object,
        *,
        hint: _Hint | None = None,
        prefer: str | None = None,
        excluded: Sequence[str] | None = None,
        attempts: int | None = None,
        heuristics: _Pairs | None = None,
        link: str | None = None,
        at: float | None = None,
    ) -> Explanation:
        """Explains the decision that `select` would make."""
    def record(self, attempt: Attempt) -> None:
        """Records an attempt, first in memory and then in the journal. Raises `LogError` when the
        attempt will not survive the process (memory has it anyway), and `ForkedError` in a forked
        child, where nothing is recorded.
        """
    def visit(
        self,
        url: object,
        *,
        fetchers: Sequence[str] | None = None,
        prefer: str | None = None,
        link: str | None = None,
        heuristics: _Pairs | None = None,
    ) -> Visit:
        """Begins a visit of `url`: all steps from the decision to the last attempt, driven by the
        caller's network code.

        `fetchers` are those that the caller has (default: all candidates). `prefer` is the fetcher
        of the first attempt, `link` the caller's name for the URL, and `heuristics` what it knows
        besides the URL.

        >>> selector = fetchwise.Selector(fetchers=["direct_access", "playwright"])
        >>> visit = selector.visit("https://example.org/app")
        >>> while step := visit.next():
        ...     if step.wait:
        ...         step.block()
        ...     else:
        ...         visit.report(step, "wrong_tool" if step.fetcher == "direct_access" else "content")
        >>> visit.end.kind, visit.end.fetcher, visit.end.requests
        ('delivered', 'playwright', 2)
        """
    def fetch(
        self,
        url: object,
        fetchers: Mapping[str, Callable[[str, FetchStep], Awaitable[Any]]],
        *,
        detector: Detector | None = None,
        prefer: str | None = None,
        link: str | None = None,
        heuristics: _Pairs | None = None,
    ) -> Fetching:
        """Drives a visit of `url` with coroutine functions:
        `async with selector.fetch(url, fetchers) as visited`. See `fetchwise.Fetching`.
        """
    def masses(
        self, kind: str, value: str, fetcher: str, *, files: bool = False, at: float | None = None
    ) -> dict[str, float]:
        """Returns the exact decayed weights of one heuristic and fetcher, over pages or, with `files`,
        over files: `success`, `total`, `blocked`, and `attempts`, which do not decay.

        >>> selector = fetchwise.Selector()
        >>> selector.record(fetchwise.Attempt("https://example.org/", "direct_access").delivered())
        >>> selector.masses("domain", "example.org", "direct_access")["attempts"]
        1
        """
    def host_pause(self, host: str) -> float | None:
        """Returns the end of the pause of a URL's host or of a domain, in seconds since 1970; None
        when it is not paused.
        """
    def unpause_host(self, host: str) -> float | None:
        """Ends the pause of a host now, as if it had never been paused. Returns the time at which it
        would have ended, or None.
        """
    def unpause_link(self, link: str) -> float | None:
        """Ends the pause of a link now; the link stays at risk. Returns the time at which it would
        have ended, or None.
        """
    def forget(self, *, domain: str | None = None, link: str | None = None) -> None:
        """Forgets a domain or a link: at once in memory, and in the journal from the next start on."""
    def importance(self, kind: str, value: str | None, importance: float) -> None:
        """Sets how much a heuristic tells about success, from 0 to 1, as computed by the analytics.
        Without a value it applies to the whole type. It only has an effect where the config enables
        it (`tuning.importance`).

        >>> fetchwise.Selector().importance("path_depth", None, 0.02)
        """
    @property
    def fetchers(self) -> list[Fetcher]:
        """The candidates, in order."""
    @property
    def journal(self) -> Journal | None:
        """The journal that the selector records into, or None."""
    def close(self) -> None:
        """Writes the learned paces to the journal, and closes the journal if the selector opened it."""
    def __enter__(self) -> Selector: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Fetcher:
    """A fetcher in decisions: its name, the cost of a request, and whether it runs scripts.

    `kind` is `"plain"`, `"rendering"`, `"stealth"`, `"archive"`, `"special"` or `"unknown"`, and
    sets the defaults of the other arguments. `cost` is in plain requests. The names
    `direct_access`, `playwright` and `playwright_stealth` imply their kinds.

    >>> selector = fetchwise.Selector(fetchers=["direct_access", fetchwise.Fetcher("my_browser", kind="rendering", cost=30)])
    >>> [fetcher.name for fetcher in selector.fetchers]
    ['direct_access', 'my_browser']
    """
    def __new__(
        cls, name: str, *, kind: str | None = None, cost: float | None = None, renders: bool | None = None
    ) -> Fetcher: ...
    @property
    def name(self) -> str:
        """The name of the fetcher in logged attempts."""
    @property
    def kind(self) -> str:
        """The kind of the fetcher."""
    @property
    def cost(self) -> float:
        """The cost of a request, in plain requests."""
    @property
    def renders(self) -> bool:
        """Whether the fetcher runs the scripts of a page."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@disjoint_base
class Decision:
    """The decision of a selector: the fetcher to use, or the reason why there is none.

    Each kind of it has a class: `Take`, `Paused`, `GiveUp` and `NoViableFetcher`. `kind` names it.
    Truthy when there is a fetcher to use.

    >>> decision = fetchwise.Selector().select("https://example.org/")
    >>> decision.fetcher, decision.source, bool(decision)
    ('direct_access', 'probe', True)
    >>> match decision:
    ...     case fetchwise.Take(fetcher):
    ...         print(fetcher)
    ...     case fetchwise.Paused(until):
    ...         print("paused until", until)
    direct_access
    """
    __match_args__: ClassVar[tuple[str, ...]]
    @property
    def kind(self) -> Literal["take", "paused", "give_up", "no_viable_fetcher"]:
        """`"take"`, `"paused"`, `"give_up"` or `"no_viable_fetcher"`."""
    @property
    def fetcher(self) -> str | None:
        """The fetcher to use, or None."""
    @property
    def source(self) -> str:
        """The label of the decision: `"learned"`, `"inferred"`, `"explore"`, `"probe"`, `"hinted"`,
        `"paused"`, or `"none"`.
        """
    @property
    def rule(self) -> str:
        """The rule of the policy that made the choice, or `"none"`."""
    @property
    def confidence(self) -> float | None:
        """The fetcher's confidence for this URL, from 0 to 1; None without a fetcher."""
    @property
    def sample_size(self) -> float | None:
        """The decayed number of attempts behind the confidence; None without a fetcher."""
    @property
    def propensity(self) -> float | None:
        """The probability with which the policy made this choice; None without a fetcher."""
    @property
    def breaker_ignored(self) -> bool:
        """Whether the fetcher's breaker on this domain is open and was ignored."""
    @property
    def paused_until(self) -> float | None:
        """The end of the pause, in seconds since 1970; None when there is no pause."""
    @property
    def is_host_paused(self) -> bool:
        """Whether the whole host is paused."""
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Take(Decision):
    """A decision for a fetcher.

    >>> decision = fetchwise.Selector().select("https://example.org/")
    >>> isinstance(decision, fetchwise.Take), decision.kind
    (True, 'take')
    """
    __match_args__: ClassVar[tuple[Literal["fetcher"]]]
    @property
    def kind(self) -> Literal["take"]: ...
    @property
    def fetcher(self) -> str: ...
    @property
    def confidence(self) -> float: ...
    @property
    def sample_size(self) -> float: ...
    @property
    def propensity(self) -> float: ...
    @property
    def paused_until(self) -> None: ...
    def __bool__(self) -> Literal[True]: ...

@final
class Paused(Decision):
    """A decision against a request for now: the link or its host is paused until `paused_until`.

    >>> fetchwise.Paused.__match_args__
    ('paused_until',)
    """
    __match_args__: ClassVar[tuple[Literal["paused_until"]]]
    @property
    def kind(self) -> Literal["paused"]: ...
    @property
    def fetcher(self) -> None: ...
    @property
    def paused_until(self) -> float: ...
    def __bool__(self) -> Literal[False]: ...

@final
class GiveUp(Decision):
    """A decision against any further attempt: none is worth its cost.

    >>> selector = fetchwise.Selector(fetchers=["direct_access"])
    >>> isinstance(selector.select("https://example.org/", excluded=["direct_access"]), fetchwise.GiveUp)
    True
    """
    @property
    def kind(self) -> Literal["give_up"]: ...
    @property
    def fetcher(self) -> None: ...
    @property
    def paused_until(self) -> None: ...
    def __bool__(self) -> Literal[False]: ...

@final
class NoViableFetcher(Decision):
    """A decision against any attempt: no fetcher gets past the vendor of the host.

    >>> issubclass(fetchwise.NoViableFetcher, fetchwise.Decision)
    True
    """
    @property
    def kind(self) -> Literal["no_viable_fetcher"]: ...
    @property
    def fetcher(self) -> None: ...
    @property
    def paused_until(self) -> None: ...
    def __bool__(self) -> Literal[False]: ...

@final
class Explanation:
    """An explanation of a decision. `str()` is for people and says what `fetchwise explain` prints;
    `to_dict()` is for programs. A notebook shows the candidates, too.

    >>> explanation = fetchwise.Selector().explain("https://example.org/a.pdf")
    >>> explanation.fetcher, explanation.to_dict()["heuristics"][0]
    ('direct_access', {'type': 'domain', 'value': 'example.org'})
    """
    @property
    def fetcher(self) -> str | None:
        """The fetcher that `select` would choose, or None."""
    def to_dict(self) -> dict[str, Any]:
        """Returns the fields of `fetchwise explain --json` that do not depend on the program:
        decision, heuristics, candidates, steps, counterfactuals.
        """
    def _repr_html_(self) -> str:
        """Returns the explanation for a notebook, with the candidates."""

@final
class Attempt:
    """One request by one fetcher for one URL, and its result.

    Frozen: `delivered()` and `failed(kind)` return a new attempt. Durations are in milliseconds,
    times in seconds since 1970 (`time.time()`).

    >>> attempt = fetchwise.Attempt("https://example.org/a", "direct_access", status=503, duration_ms=120)
    >>> attempt = attempt.failed(fetchwise.ErrorKind.SERVER_ERROR)
    >>> attempt.success, attempt.error_type, attempt.weight
    (False, 'server_error', 1.0)
    """
    def __new__(
        cls,
        url: object,
        fetcher: str,
        *,
        link: str | None = None,
        status: int | None = None,
        headers: _Headers | None = None,
        duration_ms: int = 0,
        at: float | None = None,
        source: str | None = None,
        rule: str | None = None,
        confidence: float | None = None,
        propensity: float | None = None,
        hint: _Hint | None = None,
        try_no: int = 1,
        heuristics: _Pairs | None = None,
    ) -> Attempt: ...
    @classmethod
    def from_response(
        cls,
        decision: Decision,
        *,
        url: object,
        verdict: Verdict,
        duration_ms: int = 0,
        link: str | None = None,
        at: float | None = None,
        try_no: int = 1,
        heuristics: _Pairs | None = None,
    ) -> Attempt:
        """Creates the attempt of a classified response. The outcome, headers and heuristics come from
        the verdict, the reasons for the request from the decision.

        >>> decision = fetchwise.Selector().select("https://example.org/")
        >>> verdict = fetchwise.Detector().classify(b"<h1>Forbidden</h1>", status=403)
        >>> fetchwise.Attempt.from_response(decision, url="https://example.org/", verdict=verdict, duration_ms=31).error_type
        'blocked_403'
        """
    def delivered(self) -> Attempt:
        """Returns the attempt as ended with content."""
    def failed(self, kind: str) -> Attempt:
        """Returns the attempt as failed for good with an `ErrorKind` (or its name). It counts by the
        kind's weight, which is 0 for failures that no fetcher caused. Any other name is kept and
        counts in full.
        """
    def weighing(self, weight: float) -> Attempt:
        """Returns the attempt with another weight: 0 while a retry may still succeed."""
    def to_dict(self) -> dict[str, Any]:
        """Returns all fields, as in the JSON lines of `fetchwise import` and `export`."""
    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Attempt:
        """Creates the attempt that such a dict describes. `url`, `fetcher`, `success` and
        `attempted_at` are required. A time in the future becomes now.

        >>> line = {"url": "https://example.org/", "fetcher": "playwright", "success": True, "attempted_at": 1763650000123}
        >>> fetchwise.Attempt.from_dict(line).to_dict()["attempted_at"]
        '2025-11-20T14:46:40.123Z'
        """
    @classmethod
    def from_json(cls, line: str) -> Attempt:
        """Creates the attempt that one line of JSON describes."""
    def to_json(self) -> str:
        """Returns one line of JSON, without a line break."""
    @property
    def id(self) -> str:
        """The UUID of the attempt."""
    @property
    def link(self) -> str:
        """The caller's name for the link; the URL unless another name is set."""
    @property
    def url(self) -> str:
        """The requested URL, without user info and fragment."""
    @property
    def fetcher(self) -> str:
        """The fetcher that made the request."""
    @property
    def success(self) -> bool:
        """Whether content was delivered."""
    @property
    def is_banned(self) -> bool:
        """Whether the site blocked the request."""
    @property
    def error_type(self) -> str | None:
        """The reason of the failure, as the name of an `ErrorKind`, or None."""
    @property
    def status(self) -> int | None:
        """The HTTP status, or None."""
    @property
    def duration_ms(self) -> int:
        """The duration in milliseconds."""
    @property
    def attempted_at(self) -> float:
        """The time of the request, in seconds since 1970."""
    @property
    def weight(self) -> float:
        """The weight as evidence: 0, 0.5 or 1."""
    @property
    def heuristics(self) -> list[tuple[str, str]]:
        """The heuristics of the attempt: pairs of type and value."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Detector:
    """Distinguishes content from a block or captcha, a client-rendered shell, an empty page, and a
    waiting room.

    A detector is compiled once and shared by all threads. Its rules can be replaced while pages are
    read. No page makes it raise.

    >>> detector = fetchwise.Detector()
    >>> verdict = detector.classify(b"<title>Just a moment...</title><script>window._cf_chl_opt={}</script>", status=403)
    >>> verdict.is_blocked, verdict.vendor, verdict.outcome
    (True, 'cloudflare', 'blocked')
    """
    def __new__(
        cls,
        *,
        rules: _Path | None = None,
        max_bytes: int | None = None,
        block_threshold: float | None = None,
        count_all: bool = False,
    ) -> Detector: ...
    def classify(
        self,
        body: _Body,
        *,
        url: str | None = None,
        final_url: str | None = None,
        status: int = 200,
        headers: _Headers | None = None,
    ) -> Verdict:
        """Classifies one response: its decoded body (`bytes` are not copied), and whatever else is
        known about it.

        `headers` is a mapping or pairs, of `str` or `bytes`. The time is linear in the bytes read.
        """
    def judge(
        self,
        status: int,
        headers: _Headers | None,
        body: _Body,
        *,
        url: str | None = None,
        final_url: str | None = None,
    ) -> FetchResult:
        """Judges a whole response and returns the fetch result, with everything that an attempt
        records of it. `Visit.report` accepts it. `final_url` is the URL after redirects: a pause or
        block counts at its host.

        >>> answer = fetchwise.Detector().judge(403, {"Retry-After": "120"}, b"<h1>Forbidden</h1>")
        >>> answer.outcome, answer.error_for("direct_access")
        ('blocked', 'blocked_403')
        """
    def explain(
        self,
        body: _Body,
        *,
        url: str | None = None,
        final_url: str | None = None,
        status: int = 200,
        headers: _Headers | None = None,
    ) -> dict[str, Any]:
        """Classifies like `classify`, and returns everything that matched: a dict with `verdict`,
        `matches` and `cues`.

        >>> explained = fetchwise.Detector().explain(b"<title>Just a moment...</title><script>window._cf_chl_opt={}</script>")
        >>> any(match["counted"] for match in explained["matches"])
        True
        """
    def reload(self, *, rules: _Path | None = None) -> None:
        """Reloads the rules, from the file of the constructor or another one, while other threads
        continue to read. When it raises `ConfigError`, the old rules stay in force.

        >>> detector = fetchwise.Detector()
        >>> detector.reload(rules="no-such-file.toml")
        Traceback (most recent call last):
        fetchwise.ConfigError: ...
        """
    @property
    def rule_count(self) -> int:
        """The number of rules."""

@final
class Signer:
    """A signer of requests (Web Bot Auth), with the keys of ``fetchwise identity``.

    ``config`` is a TOML file with the section ``[identity]``. ``agent``, ``keys`` (a directory) and
    ``key`` (a PEM) take precedence over it. The keys are read again every hour. One signer serves
    all threads.

    >>> signer = fetchwise.Signer(config="fetchwise.toml")  # doctest: +SKIP
    >>> signer.headers("https://example.org/")  # doctest: +SKIP
    {'Signature-Agent': ..., 'Signature-Input': ..., 'Signature': ...}
    """
    def __new__(
        cls,
        *,
        config: _Path | None = None,
        agent: str | None = None,
        keys: _Path | None = None,
        key: str | None = None,
    ) -> Signer: ...
    @property
    def agent(self) -> str:
        """The origin that publishes the keys."""
    def headers(self, url: object, method: str = "GET") -> dict[str, str]:
        """Returns the headers of one request's signature, which is valid for a minute. Each redirect
        and each repetition needs a separate one. A plain http URL is not signed: the result is
        empty.
        """
    def observe(self, url: object, names: list[str]) -> None:
        """Notes the names of a response's headers: they show what form of signature the host reads."""
    def reload(self) -> None:
        """Reads the keys again, after a rotation."""

@final
class Verdict:
    """The classification of a response. Frozen; `reason` explains it in one sentence.

    >>> verdict = fetchwise.Detector().classify(b"<html><body><div id=root></div><script src=/app.js></script></body></html>")
    >>> verdict.is_content, verdict.outcome, verdict.error_for("direct_access"), verdict.error_for("playwright")
    (False, 'shell', 'wrong_tool', 'empty_content')
    """
    @property
    def is_content(self) -> bool:
        """Whether there is enough to read, and no block or waiting room. Ignores the status: see
        `outcome`.
        """
    @property
    def is_blocked(self) -> bool:
        """Whether the response is a challenge or a refusal."""
    @property
    def block_type(self) -> str | None:
        """`"blocked_captcha"` or `"blocked_403"` for a block, else None."""
    @property
    def is_queued(self) -> bool:
        """Whether the response is a waiting room."""
    @property
    def is_network_block(self) -> bool:
        """Whether the network of the crawler refuses, not the site: a provider, a filter, a captive
        portal.
        """
    @property
    def is_empty(self) -> bool:
        """Whether the response is HTML with almost nothing to read."""
    @property
    def is_shell(self) -> bool:
        """Whether the response is the shell of an application, whose content comes by script."""
    @property
    def vendor(self) -> str | None:
        """The vendor of the block or waiting room, when known."""
    @property
    def rule(self) -> str | None:
        """The id of the deciding rule, if there is one."""
    @property
    def framework(self) -> str | None:
        """The framework of the page, when it is known."""
    @property
    def confidence(self) -> float:
        """The confidence, from 0 to 1; 0 when nothing was found."""
    @property
    def text_chars(self) -> int:
        """The number of visible characters; a lower bound unless `text_complete`."""
    @property
    def text_complete(self) -> bool:
        """Whether `text_chars` counts all of the text."""
    @property
    def is_html(self) -> bool:
        """Whether the body is HTML."""
    @property
    def has_paywall(self) -> bool:
        """Whether the text continues for subscribers only."""
    @property
    def has_login_wall(self) -> bool:
        """Whether the response is a password form although something else was requested."""
    @property
    def is_soft_404(self) -> bool:
        """Whether the page has a success status but says that the content does not exist."""
    @property
    def vendors_present(self) -> list[str]:
        """Vendors that are present, which is not evidence of a block."""
    @property
    def redirect(self) -> str | None:
        """The target of a page that only redirects its reader, as it is written there."""
    @property
    def status(self) -> int:
        """The status that was passed to the detector."""
    @property
    def outcome(self) -> str:
        """The outcome of the request, which takes the status into account: `"content"`, `"blocked"`,
        `"shell"`, `"empty"`, `"redirect"`, `"queued"` or `"http"`.
        """
    @property
    def reason(self) -> str:
        """The reason, in one sentence for people."""
    def error_for(self, fetcher: str, *, renders: bool | None = None) -> str | None:
        """Returns the failure that this counts as when `fetcher` made the request: the name of an
        `ErrorKind`, or None for content. `renders` says whether the fetcher runs scripts if its
        name does not imply it.
        """

@final
class FetchResult:
    """The result of one request, with everything that an attempt records of it. `Detector.judge`
    returns it for a response; `FetchResult(kind)` is a result without one.

    >>> fetchwise.FetchResult("timeout", message="no byte in 30 s").error_for("direct_access")
    'timeout'
    """
    def __new__(
        cls,
        kind: str,
        *,
        status: int | None = None,
        headers: _Headers | None = None,
        retry_after: float | None = None,
        duration: float | None = None,
        message: str | None = None,
        vendor: str | None = None,
        final_url: str | None = None,
    ) -> FetchResult: ...
    def with_duration(self, seconds: float) -> FetchResult:
        """Returns the result with the duration of the request, in seconds."""
    @property
    def outcome(self) -> str:
        """The outcome: a name like `Verdict.outcome`, or that of a failure before the response."""
    @property
    def is_content(self) -> bool:
        """Whether the request delivered content."""
    @property
    def is_blocked(self) -> bool:
        """Whether the response was a challenge or a refusal."""
    @property
    def vendor(self) -> str | None:
        """The vendor of the block, when known."""
    @property
    def status(self) -> int | None:
        """The HTTP status, when there was one."""
    @property
    def message(self) -> str:
        """An explanation for people."""
    def error_for(self, fetcher: str, *, renders: bool | None = None) -> str | None:
        """Returns the same as `Verdict.error_for`."""

@final
class Journal:
    """A directory of attempts, pauses and paces, open for writing.

    Pass it to a `Selector`, which replays its attempts and records into it. A directory has one
    writer: a second one raises `LockedError` with the holder's pid. After a fork, the child must
    not use it (`ForkedError`). As a context manager it closes itself, and everything recorded is
    then on disk. `durability` is `"memory"`, `"os"` (survives `kill -9`; the default),
    `"interval:250ms"` or `"sync"`; `on_full` is `"block"`, `"error"` or `"shed"`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with fetchwise.Journal(folder) as journal:
    ...         selector = fetchwise.Selector(journal=journal)
    ...         selector.record(fetchwise.Attempt("https://example.org/", "playwright").delivered())
    ...     fetchwise.Selector(journal=folder).masses("domain", "example.org", "playwright")["attempts"]
    1
    """
    def __new__(
        cls,
        dir: _Path,
        *,
        durability: str = "os",
        on_full: str = "block",
        linger_ms: int | None = None,
        segment_bytes: int | None = None,
    ) -> Journal: ...
    @classmethod
    def open(cls, dir: _Path) -> Journal:
        """Opens a journal, like `Journal(dir)`."""
    def flush(self) -> None:
        """Waits until everything recorded so far is on disk."""
    def settled(self) -> None:
        """Waits until everything recorded so far is acknowledged at the journal's durability. By
        default it then survives `kill -9`.
        """
    def flush_async(self) -> asyncio.Future[None]:
        """Returns an awaitable `flush`. Cancelling it loses nothing."""
    def settled_async(self) -> asyncio.Future[None]:
        """Returns an awaitable `settled`. Cancelling it loses nothing."""
    def snapshot(self, *, config: _Path | None = None) -> dict[str, int]:
        """Writes a snapshot of all evidence so far, so that the next start reads less. `config` is the
        file of the selectors, if they use one. Returns figures: `covers_seq`, `records`, `bytes`,
        `entries`.
        """
    def snapshot_async(self, *, config: _Path | None = None) -> asyncio.Future[dict[str, int]]:
        """Returns an awaitable `snapshot`, which runs in a separate thread."""
    def compact(
        self, *, retain_days: float | None = None, dry_run: bool = False, config: _Path | None = None
    ) -> dict[str, Any]:
        """Drops attempts older than `retain_days` from the log. Their evidence stays, in a snapshot.
        Works alongside the writer. Returns figures: attempts and bytes before and after.
        """
    def verify(self) -> dict[str, Any]:
        """Reads everything on disk and checks whether it is sound. Returns `sound` and `attempts`."""
    def metrics(self) -> dict[str, int]:
        """Returns the counts and gauges of the log since it was opened, by name."""
    @property
    def health(self) -> str:
        """Returns `"good"`, `"closed"`, or the reason why attempts do not reach the disk."""
    @property
    def dir(self) -> pathlib.Path:
        """The directory."""
    def close(self) -> None:
        """Writes and syncs the remaining records, and unlocks the directory. A second call does
        nothing.
        """
    def __enter__(self) -> Journal: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Visit:
    """The visit of one URL, from the decision to the last recorded attempt, including retries, other
    fetchers, pauses and paces.

    `next()` returns the next step: fetch, wait, or None; `report()` takes the result. Dropping the
    visit, or leaving its `with`, releases everything that it holds, so cancelling is always safe.
    """
    def next(self) -> FetchStep | WaitStep | None:
        """Returns the next step, a `FetchStep` or a `WaitStep`, or None when the visit has ended
        (`end` says how). Report a fetch, or drop it, before the next call.
        """
    def report(
        self, step: FetchStep, outcome: FetchResult | Verdict | str | BaseException, *, duration: float | None = None
    ) -> None:
        """Reports the result of a fetch: a `FetchResult`, a `Verdict`, an `ErrorKind` or `"content"`,
        or the exception that the client raised. Records the attempt before it returns. `duration`
        is in seconds; the default is the time since the step.
        """
    def give_up(self, step: WaitStep) -> None:
        """Declines to wait for `step`. The visit ends with its last failure, or as paused until then."""
    def close(self) -> None:
        """Releases everything that the visit and its last step hold. It returns no further steps;
        recorded attempts stay.
        """
    @property
    def end(self) -> End | None:
        """The end of the visit, once `next()` has returned None."""
    @property
    def url(self) -> str | None:
        """The address to request: the URL, or the target of a redirect that was written in HTML."""
    @property
    def requests(self) -> int:
        """The number of attempts that the visit has recorded."""
    def __enter__(self) -> Visit: ...
    def __exit__(self, *_exception: object) -> None: ...

@disjoint_base
class Step:
    """The next step of a visit: a `FetchStep` or, when `wait` is true, a `WaitStep`. A step that is
    dropped without a report has no effect.

    >>> selector = fetchwise.Selector(fetchers=["direct_access", "playwright"])
    >>> with selector.visit("https://example.org/") as visit:
    ...     isinstance(visit.next(), fetchwise.Step)
    True
    """
    @property
    def wait(self) -> bool:
        """Whether to wait and then call `next()` again."""
    @property
    def url(self) -> str:
        """The address to request."""

@final
class FetchStep(Step):
    """A step of a visit: one request with `fetcher` for `url`, within `deadline` seconds, to report to
    the visit.

    >>> selector = fetchwise.Selector(fetchers=["direct_access", "playwright"])
    >>> with selector.visit("https://example.org/") as visit:
    ...     step = visit.next()
    ...     step.wait, step.fetcher, step.deadline, step.is_probe
    (False, 'direct_access', 3.0, True)
    """
    __match_args__: ClassVar[tuple[Literal["fetcher"], Literal["url"]]]
    @property
    def wait(self) -> Literal[False]: ...
    @property
    def fetcher(self) -> str:
        """The fetcher to use."""
    @property
    def deadline(self) -> float:
        """Seconds for the whole request."""
    @property
    def is_probe(self) -> bool:
        """Whether the request is a probe: short, because a longer request can follow."""
    @property
    def max_redirects(self) -> int:
        """The maximum number of redirects."""
    @property
    def decision(self) -> Take:
        """The decision that chose the fetcher."""

@final
class WaitStep(Step):
    """A step of a visit: a wait of `seconds`, or until the event that is waited for. Then call
    `next()` again.

    >>> selector = fetchwise.Selector(fetchers=["direct_access"], pace=False)
    >>> first, second = (selector.visit(f"https://example.org/{n}") for n in range(2))
    >>> step, other = first.next(), second.next()
    >>> match other:
    ...     case fetchwise.WaitStep(reason):
    ...         print(reason, other.seconds > 0)
    probe True
    """
    __match_args__: ClassVar[tuple[Literal["reason"]]]
    @property
    def wait(self) -> Literal[True]: ...
    @property
    def seconds(self) -> float:
        """The longest time to wait, in seconds from now. An earlier call is also fine."""
    @property
    def reason(self) -> Literal["probe", "trial", "local_fault", "pace", "doubt"]:
        """The reason of the wait: `"probe"`, `"trial"`, `"local_fault"`, `"pace"` or `"doubt"`."""
    def block(self, seconds: float | None = None) -> None:
        """Blocks until the wait is over, for at most `seconds` (default: until it is due). Other
        threads run meanwhile.
        """
    def _notified(self) -> asyncio.Future[None]:
        """An `asyncio` future that ends when the event that is waited for happens; never if only time
        can end the wait.
        """
    def ready(self) -> Awaitable[None]:
        """Returns an awaitable of the wait: it ends with the event that is waited for, or when the
        wait is due.
        """

@final
class End:
    """The end of a visit. Truthy when it delivered content.

    >>> selector = fetchwise.Selector(fetchers=["direct_access"])
    >>> visit = selector.visit("https://example.org/gone")
    >>> visit.report(visit.next(), "not_found")
    >>> visit.next(), visit.end.kind, visit.end.error_type
    (None, 'failed', 'not_found')
    """
    __match_args__: ClassVar[tuple[str, ...]]
    @property
    def kind(
        self,
    ) -> Literal["delivered", "failed", "paused", "paced", "no_viable_fetcher", "no_route", "no_fetcher"]:
        """`"delivered"`, `"failed"`, `"paused"`, `"paced"` (the host's pace admits no request in
        time), `"no_viable_fetcher"`, `"no_route"` or `"no_fetcher"`.
        """
    @property
    def is_delivered(self) -> bool:
        """Whether the visit delivered content."""
    @property
    def error_type(self) -> str | None:
        """The reason of the failure, as the name of an `ErrorKind`; None unless it failed."""
    @property
    def vendor(self) -> str | None:
        """The vendor that no fetcher gets past; None unless that is the reason."""
    @property
    def fetcher(self) -> str | None:
        """The fetcher that delivered, or that made the last attempt."""
    @property
    def source(self) -> str | None:
        """The label of the decision that delivered, or that ended the visit."""
    @property
    def confidence(self) -> float:
        """The fetcher's confidence at the time of the decision."""
    @property
    def status(self) -> int | None:
        """The last HTTP status."""
    @property
    def is_banned(self) -> bool:
        """Whether any attempt was blocked."""
    @property
    def requests(self) -> int:
        """The number of recorded attempts."""
    @property
    def was_trial(self) -> bool:
        """Whether the last attempt was the trial of a host that refuses all requests. That says
        nothing of the link.
        """
    @property
    def is_default_page(self) -> bool:
        """Whether what was delivered is a page of no site: of a parked domain, a hoster, or a product
        before its log-in.
        """
    @property
    def paused_until(self) -> float | None:
        """The end of the pause, in seconds since 1970; None when there is no pause."""
    @property
    def paused(self) -> str | None:
        """The paused object: `"link"`, `"host"` or `"pace"`; None unless the visit ended as paused."""
    @property
    def message(self) -> str:
        """An explanation for people; empty when content was delivered."""
    def __bool__(self) -> bool: ...

def import_attempts(
    lines: Iterable[str | bytes | dict[str, Any] | Attempt], journal: Journal, *, selector: Selector | None = None
) -> dict[str, Any]:
    """Imports attempts into a journal, each once: JSON lines (`str` or `bytes`), dicts or `Attempt`s,
    from any iterable, such as an open file.

    `selector` observes them at once; selectors made later replay them from the journal. Returns the
    result: `lines`, `imported`, `duplicates`, `failed`, `clamped`, `unknown_fields`, and `errors`
    as pairs of line and reason, for the first thousand of them.

    >>> import tempfile
    >>> line = {"url": "https://example.org/", "fetcher": "playwright", "success": True, "attempted_at": 1763650000123}
    >>> with tempfile.TemporaryDirectory() as folder, fetchwise.Journal(folder) as journal:
    ...     counts = fetchwise.import_attempts([line, line, "nonsense"], journal)
    >>> counts["imported"], counts["duplicates"], counts["failed"]
    (1, 1, 1)
    """
def export_attempts(journal: Journal | _Path, out: _Write | _Path) -> int:
    """Exports the attempts of a journal, or of a directory, as JSON lines to a path or to anything
    that has `write(str)`. Returns their number.

    A directory needs no writer, so it can be read alongside a running crawler.

    >>> import io, tempfile
    >>> out = io.StringIO()
    >>> with tempfile.TemporaryDirectory() as folder, fetchwise.Journal(folder) as journal:
    ...     fetchwise.Selector(journal=journal).record(fetchwise.Attempt("https://example.org/", "playwright").delivered())
    ...     fetchwise.export_attempts(journal, out)
    1
    >>> out.getvalue().count("\\n")
    1
    """
