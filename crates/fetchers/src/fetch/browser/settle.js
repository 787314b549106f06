// Resolves once the main thread has come around, with what the page shows: its number of elements, the length of its
// text, the time that this took in milliseconds, the length of the text that is visible (of a long text all counts), and
// whether something may still run. Timers and tasks of the page that are due run before.
new Promise((done) => {
  const begun = performance.now();
  setTimeout(() => {
    const root = document.documentElement;
    const elements = document.getElementsByTagName("*").length;
    const text = root ? root.textContent.length : 0;
    const ms = Math.round(performance.now() - begun);
    const body = document.body;
    const visible = text > 8192 ? text : body ? (body.innerText ?? "").trim().length : 0;
    const runs = "script,meta[http-equiv=refresh i],[onload],[onerror],iframe,frame,object,embed";
    done([elements, text, ms, visible, document.querySelector(runs) ? 1 : 0].join(" "));
  }, 100);
})
