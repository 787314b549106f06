"""Applications in Python whose text comes by a WebSocket or by a fetch of their scripts: Streamlit, Gradio and Panel."""

import json

from hosts import PORT, App


class PythonApp(App):
    count = 30
    seconds = 400.0
    path = "/?article={number}"
    #: The program, which reads `articles.json`.
    program = ""

    def build(self):
        self.write("articles.json", json.dumps([{"title": one.title, "paragraphs": one.paragraphs} for one in self.articles]))
        self.write("app.py", f'import json\n\nARTICLES = json.load(open("{self.place}/articles.json"))\n\n{self.program}')


class Streamlit(PythonApp):
    name = "streamlit"
    rule = "`streamlit run`; 30 articles, by WebSocket"
    python = ("streamlit==1.67.0",)
    program = """import streamlit as st

article = ARTICLES[int(st.query_params.get("article", "0"))]
st.title(article["title"])
for paragraph in article["paragraphs"]:
    st.write(paragraph)
"""

    def set_up(self):
        options = ["--server.headless=true", "--browser.gatherUsageStats=false", f"--server.address={self.behind}", f"--server.port={PORT}"]
        self.run("streamlit", [self.python_folder / "streamlit", "run", self.place / "app.py", *options])


class Gradio(PythonApp):
    name = "gradio"
    rule = "`Blocks` with a text for each request; 30 articles, by EventSource"
    python = ("gradio==6.31.0",)
    program = """import os
import gradio as gr


def show(request: gr.Request):
    article = ARTICLES[int(request.query_params.get("article", "0"))]
    return "# " + article["title"] + "\\n\\n" + "\\n\\n".join(article["paragraphs"])


with gr.Blocks(title="Articles") as demo:
    text = gr.Markdown()
    demo.load(show, None, text)

demo.launch(server_name=os.environ["ADDRESS"], server_port=int(os.environ["PORT"]))
"""

    def set_up(self):
        environment = {**self.software.environment(), "ADDRESS": self.behind, "PORT": str(PORT), "GRADIO_ANALYTICS_ENABLED": "False"}
        self.run("gradio", [self.python_folder / "python", self.place / "app.py"], env=environment)


class Panel(PythonApp):
    name = "panel"
    rule = "`panel serve`; 30 articles, by WebSocket"
    python = ("panel==1.8.3",)
    path = "/app?article={number}"
    program = """import panel as pn

pn.extension()
number = int(pn.state.session_args.get("article", [b"0"])[0])
article = ARTICLES[number]
pn.Column(pn.pane.Markdown("# " + article["title"]), *(pn.pane.Markdown(part) for part in article["paragraphs"])).servable()
"""

    def set_up(self):
        options = ["--address", self.behind, "--port", PORT, "--allow-websocket-origin", f"{self.address}:{PORT}"]
        self.run("panel", [self.python_folder / "panel", "serve", self.place / "app.py", *options])


HOSTS = [Streamlit, Gradio, Panel]
