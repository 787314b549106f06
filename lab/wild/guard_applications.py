"""Limiters inside applications, as their READMEs have them: express-rate-limit, rate-limiter-flexible, flask-limiter."""

from hosts import PORT, Documentation, Guard

EXPRESS = """import express from 'express';
{imports}
const app = express();
{limiter}
app.use(express.static('{root}'));
app.listen({port}, '{address}');
"""


class Express(Guard):
    debian = (Documentation.PACKAGE,)
    imports = limiter = ""

    def set_up(self):
        text = EXPRESS.format(imports=self.imports, limiter=self.limiter, root=self.documentation.root, port=PORT, address=self.behind)
        server = self.node_folder / "server.mjs"
        server.write_text(text)
        self.run("server", ["node", server])


class ExpressRateLimit(Express):
    name = "express-rate-limit"
    rule = "100 in 15 minutes, declared in `RateLimit`; the list has 90 links, so no rate applies"
    count, quick = 90, True
    node = ("express@5.1.0", "express-rate-limit@8.2.1")
    imports = "import { rateLimit } from 'express-rate-limit';"
    limiter = """app.use(rateLimit({
    windowMs: 15 * 60 * 1000,
    limit: 100,
    standardHeaders: 'draft-8',
    legacyHeaders: false,
    ipv6Subnet: 56,
}));"""


class Flexible(Express):
    name = "rate-limiter-flexible"
    rule = "10 per second of the clock; 429"
    best, count = 10.0, 240
    node = ("express@5.1.0", "rate-limiter-flexible@8.1.0")
    imports = "import { RateLimiterMemory } from 'rate-limiter-flexible';"
    limiter = """const limiter = new RateLimiterMemory({ points: 10, duration: 1 });
app.use((request, response, next) => {
    limiter.consume(request.ip).then(() => next()).catch(() => response.status(429).send('Too Many Requests'));
});"""


class FlaskLimiter(Guard):
    name = "flask-limiter"
    rule = "60 per minute and 5 per second; 429"
    debian = (Documentation.PACKAGE,)
    python = ("flask==3.1.2", "flask-limiter==4.1.1")
    best = 1.0

    def set_up(self):
        server = self.write(
            "app.py",
            f"""from flask import Flask, send_from_directory
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

app = Flask(__name__, static_folder=None)
limiter = Limiter(get_remote_address, app=app, default_limits=["60 per minute", "5 per second"], storage_uri="memory://")


@app.route("/<path:path>")
def page(path):
    return send_from_directory("{self.documentation.root}", path)
""",
        )
        self.run("flask", [self.python_folder / "flask", "--app", server, "run", "--host", self.behind, "--port", PORT])


HOSTS = [ExpressRateLimit, Flexible, FlaskLimiter]
