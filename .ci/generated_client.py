"""Generates a Python client from the server's OpenAPI description, and makes a visit with it.

    .ci/generated_client.py PROGRAM        (needs openapi-python-client and openapi-spec-validator)
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

DESCRIPTION = pathlib.Path(__file__).parent.parent / "crates/serve/src/openapi.json"
# Its body is JSON lines, for which the generator has no type.
NOT_GENERATED = {"recordAttempts"}


def main(program):
    # The program takes these for settings.
    for name in [name for name in os.environ if name.startswith("FETCHWISE_")]:
        del os.environ[name]
    bin = pathlib.Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([sys.executable, "-m", "openapi_spec_validator", DESCRIPTION], check=True)
        subprocess.run(
            [bin / "openapi-python-client", "generate", "--path", DESCRIPTION, "--meta", "none", "--output-path", folder / "client"],
            check=True,
            capture_output=True,
        )
        paths = json.loads(DESCRIPTION.read_text())["paths"]
        operations = {operation["operationId"] for methods in paths.values() for operation in methods.values()}
        snake = lambda name: "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)
        generated = {path.stem for path in (folder / "client/api").glob("*/*.py")}
        missing = {name for name in operations if snake(name) not in generated}
        assert missing == NOT_GENERATED, f"not generated: {missing}"

        sys.path.insert(0, str(folder))
        from client import Client
        from client.api.server import get_mode
        from client.api.visits import begin_visits, report_to_visit
        from client.models import EndStep, FetchStep, Problem, Report, Visit

        server = subprocess.Popen(
            [program, "serve", "--json", "--listen", "127.0.0.1:0", "--data-dir", folder / "log"], stdout=subprocess.PIPE, text=True
        )
        try:
            address = json.loads(server.stdout.readline())["listening"]
            client = Client(base_url=f"http://{address}")
            assert get_mode.sync(client=client).mode == "learning"
            begun = begin_visits.sync(client=client, body=Visit(url="https://example.org/a"))
            assert isinstance(begun.step, FetchStep), begun
            ended = report_to_visit.sync(client=client, id=begun.visit, body=Report(outcome="content", status=200))
            assert isinstance(ended.step, EndStep) and ended.step.end == "delivered", ended
            refused = begin_visits.sync(client=client, body=Visit(url="no"))
            assert isinstance(refused, Problem), refused
        finally:
            server.terminate()
            server.wait()
    print("a generated Python client made a visit")


main(sys.argv[1])
