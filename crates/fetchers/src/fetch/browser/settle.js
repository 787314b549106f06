// Resolves once the main thread has come around, with what the page shows: its number of elements, the length of its
// text, and the time that this took in milliseconds. Timers and tasks of the page that are due run before.
new Promise((done) => {
  const begun = performance.now();
  setTimeout(() => {
    const root = document.documentElement;
    const elements = document.getElementsByTagName("*").length;
    const text = root ? root.textContent.length : 0;
    done([elements, text, Math.round(performance.now() - begun)].join(" "));
  }, 100);
})
