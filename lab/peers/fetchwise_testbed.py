"""fetchwise on the testbed: the program, set up as in its README, with the arguments of this script. Submits its pages."""

import json
import os
import subprocess
import sys
import tempfile

from hand_in import Pages, links

pages = Pages()
with tempfile.TemporaryDirectory() as place:
    listed = os.path.join(place, "links.txt")
    with open(listed, "w") as file:
        file.write("\n".join(links()))
    command = [os.environ["FETCHWISE"], "--data-dir", os.path.join(place, "data"), "fetch", "--json"]
    command += ["--input", listed, "--out", os.path.join(place, "pages"), "--allow-network", "127.0.0.0/8", *sys.argv[1:]]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=place, check=False)
    for line in done.stdout.splitlines():
        result = json.loads(line)
        if result["success"]:
            with open(os.path.join(place, result["file"]), "rb") as file:
                pages.add(result["url"], file.read().decode(errors="replace"))
    pages.close()
